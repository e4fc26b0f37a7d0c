"""Rows that run together: which do, in what order their loops stand, and that no bit changes."""

import re

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.processor import processor_facts
from tvm_tilex.build.target import resolve_target
from tvm_tilex.plan.processor import ProcessorFacts, rows_together
from tvm_tilex.transform import plan_rows
from tvm_tilex.transform.options import CompileOptions

CATALOG = kernels.catalog()
# No processor's own caches: 32 KiB in the first level.
GENERIC = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v3"}
OTHER = CompileOptions(max_thread_candidates=255)
CALLING = ["softmax", "log_softmax", "logsumexp", "cross_entropy"]


def scheduled(name, rows, columns, target=GENERIC):
    entry = CATALOG[name]
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns), target=target)
    return artifact.scheduled[artifact.name].script()


@pytest.mark.parametrize(("row_bytes", "most", "first_level", "expected"), [
    (3072, 16, 48 << 10, 16), (3072, 16, 32 << 10, 8), (1024, 16, 32 << 10, 16),
    (3072, 10, 48 << 10, 8), (1024, 3, 48 << 10, 1), (12288, 16, 48 << 10, 4),
    (16384, 16, 48 << 10, 1), (0, 16, 32 << 10, 16),
])  # fmt: skip
def test_how_many_rows_run_together(row_bytes, most, first_level, expected):
    assert rows_together(row_bytes, most, ProcessorFacts(first_level)) == expected


def test_only_this_machines_target_has_this_machines_caches():
    assert processor_facts(resolve_target(GENERIC)) == ProcessorFacts()
    host = processor_facts(resolve_target("llvm"))
    assert host.first_level >= 8 << 10 and host.second_level >= host.first_level


def test_phases_stand_one_after_the_other():
    text = scheduled("softmax", 16384, 256)
    assert "for block in T.parallel(1024" in text and "for group in range(2)" in text
    loops = re.findall(r"for row(?:, chunk)? in (?:range\(8\)|T.grid\(8, 16\))", text)
    assert len(loops) == 3  # maxima; exponentials and sums; quotients
    assert "T.alloc_local((8, 256))" in text  # the exponentials of eight rows
    first, second = (m.start() for m in list(re.finditer("for row in", text))[:2])
    assert first < text.index("tilex.maximum(") < second < text.index("tilex.exp(")


def test_the_next_groups_rows_are_asked_for():
    text = scheduled("softmax", 16384, 256)
    assert "T.address_of(input[T.min(block * 16 + group * 8 + row + 8, 16383)," in text


def test_logarithms_of_all_rows_are_one_vector():
    text = scheduled("cross_entropy", 16384, 256)
    *_, last = text.split("for chunk in ")
    assert last.startswith("range(1)") and "T.vectorized(16)" in last and "tilex.log(" in last
    assert "T.if_then_else" not in last  # the label's logit is chosen before, row by row


@pytest.mark.parametrize(("name", "rows", "columns"), [
    ("layernorm", 16384, 256),  # bound by memory
    ("row_sum", 16384, 256),
    ("softmax", 16384, 4096),  # four rows do not fit
    ("softmax", 300, 256),  # few rows
])  # fmt: skip
def test_others_stay_apart(name, rows, columns):
    text = scheduled(name, rows, columns)
    assert "for row" not in text and "for group" not in text
    assert "tilex.together" not in text and "tilex.block" not in text


@pytest.mark.parametrize("rows", [2048, 2065, 4111])
@pytest.mark.parametrize("columns", [1, 37, 256, 333])
@pytest.mark.parametrize("name", CALLING)
def test_no_bit_changes(name, rows, columns, monkeypatch):
    entry = CATALOG[name]
    together = entry.arguments(rows, columns)
    if name == "cross_entropy":
        labels = together[1]
        labels[::7], labels[3::11] = -1, 1 << 40  # nothing is loaded there
    apart = [np.copy(argument) for argument in together]
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns))
    if columns >= 37:
        assert "for row" in artifact.scheduled[artifact.name].script()
    artifact(*together)
    monkeypatch.setattr(plan_rows, "rows_together", lambda *facts: 1)
    # Other options, so that the artifact is another one.
    other = tx.compile(entry.kernel, *entry.specs(rows, columns), options=OTHER)
    assert "for row" not in other.scheduled[other.name].script()
    other(*apart)
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_row(value):
    entry = CATALOG["softmax"]
    x, out = entry.arguments(2065, 256)
    x[::5, 3] = value
    clean, kept = np.delete(np.arange(2065), np.s_[::5]), x.copy()
    tx.compile(entry.kernel, *entry.specs(2065, 256))(x, out)
    wide = kept[clean].astype(np.float64)
    wide = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(out[clean], wide / wide.sum(1, keepdims=True), rtol=2e-6)
    if value == -np.inf:
        assert (out[::5, 3] == 0).all()
    else:
        assert np.isnan(out[::5]).any(1).all()


def test_a_dynamic_number_of_rows():
    rows = tx.dynamic("P")
    artifact = tx.compile(kernels.logsumexp, tx.spec((rows, 64)), tx.spec((rows,)))
    assert "for row" in artifact.scheduled[artifact.name].script()
    for count in (0, 1, 15, 16, 33, 4096):
        x, out = np.zeros((count, 64), np.float32), np.empty(count, np.float32)
        artifact(x, out)
        np.testing.assert_allclose(out, np.log(64), rtol=1e-6)
