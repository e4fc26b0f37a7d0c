"""PrefetchRows: which loop asks for the next row and for the output's lines, and which does not."""

import operator
import re
from types import SimpleNamespace

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
    found = re.findall(r"T\.tilex\.prefetch\(T\.address_of\((\w+)\[.*?\]\), (\d), (\d), 1\)", text)
    assert len(found) == text.count("T.tilex.prefetch(")
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


def hosts(name, columns):
    """For each loop that asks: the operation in it, and what it asks for."""
    entry = CATALOG[name]
    artifact = tx.compile(entry.kernel, *entry.specs(64, columns), target="llvm")
    text = artifact.scheduled[artifact.name].script()
    found = []
    for loop in text.split("for chunk in ")[1:]:
        asked = set(re.findall(r"T\.address_of\((\w+)\[", loop.partition("for lane")[0]))
        if asked:
            body = loop.partition("for lane")[2].partition("\n")[2].partition("\n")[0]
            found.append(("exp" if "tilex.exp" in body else "store", asked))
    return found


@pytest.mark.parametrize(("name", "columns", "expected"), [
    # The exponentials are the last to read the row.
    ("softmax", 4096, [("exp", {"input", "output"})]),
    ("log_softmax", 4096, [("exp", {"output"}), ("store", {"input"})]),
    # Rows beyond the first level: the last pass.
    ("softmax", 32000, [("exp", {"output"}), ("store", {"input"})]),
])  # fmt: skip
def test_which_pass_asks_for_what(name, columns, expected):
    assert hosts(name, columns) == expected


def test_wide_rows_are_asked_into_the_second_level():
    assert {level for *_, level in prefetches("softmax", 64, 32000)} == {"2"}


@pytest.mark.parametrize(("name", "rows", "columns"), [
    ("softmax", 64, 256), ("softmax", 64, 131072), ("row_sum", 64, 48), ("row_sum", 1, 4096),
])  # fmt: skip
def test_short_rows_rows_beyond_the_cache_and_a_single_row_do_not(name, rows, columns):
    assert prefetches(name, rows, columns) == []


@pytest.mark.parametrize("columns", [4095, 4097])
def test_what_is_left_of_a_row_is_no_second_pass(columns):
    """The last elements of the first pass stand in loops of their own; the exponentials ask."""
    entry = CATALOG["softmax"]
    artifact = tx.compile(entry.kernel, *entry.specs(64, columns), target="llvm")
    text = artifact.scheduled[artifact.name].script()
    loop = text[text.rindex("for chunk", 0, text.index("T.tilex.prefetch(")) :]
    assert f"in range({columns // 16})" in loop.splitlines()[0]


def streamed(rows, columns, dtype="float32"):
    """(row, column) as a function of program and chunk, of each prefetch of a row sum."""
    entry = CATALOG["row_sum"]
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns, dtype), target="llvm")
    text = artifact.scheduled[artifact.name].script()
    places = re.findall(r"T\.address_of\(x\[(.*)\]\), 0, 3, 1\)", text)
    operators = SimpleNamespace(min=min, max=max, Add=operator.add)

    def at(place):
        code = compile(f"({place})", "<prefetch>", "eval")
        return lambda program, chunk: eval(
            code, {"T": operators, "program": program, "chunk": chunk}
        )

    return [at(place) for place in places]


@pytest.mark.parametrize(("columns", "dtype"), [(4096, "float32"), (4096, "bfloat16"),
                                                (256, "float32"), (320, "float32")])  # fmt: skip
def test_a_single_pass_asks_4_kib_ahead_and_never_beyond_the_array(columns, dtype):
    rows, size = 64, 4 if dtype == "float32" else 2
    found = streamed(rows, columns, dtype)
    assert found
    first = found[0]

    def place(at, program, chunk):
        row, column = at(program, chunk)
        return size * (row * columns + column)

    unit = min(4096, columns * size)  # whole rows where one is shorter
    assert place(first, 0, 0) == -(-4096 // unit) * unit
    for at in found:
        for program in (0, 1, rows - 2, rows - 1):
            for chunk in range(columns // 64):
                assert place(at, program, chunk) < size * rows * columns


def test_a_single_row_of_a_dynamic_number_is_summed():
    rows = tx.dynamic("P")
    artifact = tx.compile(kernels.row_sum, tx.spec((rows, 4096)), tx.spec((rows,)), target="llvm")
    assert "T.tilex.prefetch(" in artifact.scheduled[artifact.name].script()
    for count in (0, 1, 2, 5):
        x, out = np.ones((count, 4096), np.float32), np.empty(count, np.float32)
        artifact(x, out)
        np.testing.assert_array_equal(out, 4096)


def test_the_last_row_is_not_passed():
    """The address is that of a row of the array, also in a ragged last block."""
    entry = CATALOG["softmax"]
    artifact = tx.compile(entry.kernel, *entry.specs(3001, 1024), target="llvm")
    text = artifact.scheduled[artifact.name].script()
    rows = re.findall(r"address_of\(input\[(.*?), ", text)
    assert rows and all(row.startswith("T.min(") for row in rows)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["softmax", "layernorm", "residual_layernorm", "cross_entropy", "row_sum"]
)
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
    assert "T.tilex.prefetch(" in artifact.scheduled[artifact.name].script()
    for count in (0, 1, 5):
        x = np.random.default_rng(count).standard_normal((count, 1024)).astype(np.float32)
        out = np.empty_like(x)
        artifact(x, out)
        np.testing.assert_allclose(out.sum(1), 1, rtol=1e-5)
