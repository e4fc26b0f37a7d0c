"""BlockPrograms: consecutive programs in one parallel iteration, in storage allocated once."""

import re

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

CATALOG = kernels.catalog()


def scheduled(name, rows, columns):
    entry = CATALOG[name]
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns), target="llvm")
    return artifact, artifact.scheduled[artifact.name].script()


def parallel_loops(text):
    return re.findall(r"for (\w+) in T\.parallel\((.*?),", text)


@pytest.mark.parametrize(("rows", "blocks"), [(16384, 1024), (2048, 128), (16399, 1025)])
def test_narrow_rows_are_blocked(rows, blocks):
    _, text = scheduled("rmsnorm", rows, 256)
    assert parallel_loops(text) == [("block", str(blocks))]
    ragged = f"T.min(16, {rows} - block * 16)"
    assert ("for program in range(16)" in text) == (rows % 16 == 0)
    assert (ragged in text) == (rows % 16 != 0)


@pytest.mark.parametrize(("rows", "columns"), [(127, 256), (512, 131072), (1, 1)])
def test_few_rows_and_wide_ones_stay_apart(rows, columns):
    _, text = scheduled("softmax", rows, columns)
    assert parallel_loops(text) == [("program", str(rows))]


def test_storage_is_allocated_before_the_rows_and_small_storage_on_the_stack():
    artifact, text = scheduled("softmax", 16384, 4096)
    tile, rows = text.index("T.alloc_local((4096,)"), text.index("for program in range")
    assert tile < rows < text.index("T.alloc_local((64,)")
    # The exponentials of a row; maxima, sums and lanes are not the workspace's.
    assert artifact.source.count("TVMBackendAllocWorkspace@") <= 2


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 2047, 2064, 2065])
@pytest.mark.parametrize("name", ["softmax", "layernorm", "row_sum"])
def test_every_row_runs_once(name, rows):
    entry = CATALOG[name]
    arguments = entry.arguments(rows, 100)
    tx.compile(entry.kernel, *entry.specs(rows, 100))(*arguments)
    for comparison in entry.check(arguments):
        assert comparison.within, comparison


def test_dynamic_rows_are_blocked_by_their_work_alone():
    rows = tx.dynamic("P")
    artifact = tx.compile(kernels.row_sum, tx.spec((rows, 40)), tx.spec((rows,)))
    text = artifact.scheduled[artifact.name].script()
    assert "T.parallel" in text and "for block in" in text
    for count in (0, 1, 15, 16, 33):
        x, out = np.ones((count, 40), np.float32), np.zeros(count, np.float32)
        artifact(x, out)
        np.testing.assert_array_equal(out, 40)
