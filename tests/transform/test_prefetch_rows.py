"""PrefetchRows: which loop asks for the next row and for the output's lines, and which does not."""

import re

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

CATALOG = kernels.catalog()


def prefetches(name, rows, columns, dtype="float32"):
    """(buffer, 0 to read or 1 to write, level) of each prefetch, in order."""
    entry = CATALOG[name]
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns, dtype), target="llvm")
    text = artifact.scheduled[artifact.name].script()
    found = re.findall(r"T\.prefetch\(T\.address_of\((\w+)\[.*?\]\), (\d), (\d), 1\)", text)
    assert len(found) == text.count("T.prefetch(")
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("softmax", {("input", "0"), ("output", "1")}),
        ("layernorm", {("x", "0"), ("out", "1")}),
        ("cross_entropy", {("logits", "0")}),
        ("rmsnorm", {("x", "0")}),  # the second pass is the one that writes
    ],
)
def test_the_second_pass_asks(name, expected):
    found = prefetches(name, 64, 4096)
    assert {(buffer, use) for buffer, use, _ in found} == expected
    assert {level for *_, level in found} == {"3"}


def test_wide_rows_are_asked_into_the_second_level():
    assert {level for *_, level in prefetches("softmax", 64, 32000)} == {"2"}


@pytest.mark.parametrize(("name", "columns"), [("row_sum", 4096), ("softmax", 256),
                                               ("softmax", 131072)])  # fmt: skip
def test_one_pass_short_rows_and_rows_beyond_the_cache_do_not(name, columns):
    assert prefetches(name, 64, columns) == []


def test_the_last_row_is_not_passed():
    """The address is that of a row of the array, also in a ragged last block."""
    entry = CATALOG["softmax"]
    artifact = tx.compile(entry.kernel, *entry.specs(3001, 1024), target="llvm")
    text = artifact.scheduled[artifact.name].script()
    rows = re.findall(r"address_of\(input\[(.*?), ", text)
    assert rows and all(row.startswith("T.min(") for row in rows)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layernorm", "residual_layernorm", "cross_entropy"])
def test_results_stay_right(name, dtype):
    entry = CATALOG[name]
    arguments = entry.arguments(131, 2056, dtype)
    tx.compile(entry.kernel, *entry.specs(131, 2056, dtype))(*arguments)
    for comparison in entry.check(arguments):
        assert comparison.within, comparison


def test_a_dynamic_number_of_rows():
    rows = tx.dynamic("P")
    artifact = tx.compile(
        kernels.softmax, tx.spec((rows, 1024)), tx.spec((rows, 1024)), target="llvm"
    )
    assert "T.prefetch(" in artifact.scheduled[artifact.name].script()
    for count in (0, 1, 5):
        x = np.random.default_rng(count).standard_normal((count, 1024)).astype(np.float32)
        out = np.empty_like(x)
        artifact(x, out)
        np.testing.assert_allclose(out.sum(1), 1, rtol=1e-5)
