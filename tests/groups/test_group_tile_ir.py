"""Groups in TileIR: text form, semantics, and single edits that break each rule."""

# ruff: noqa: E501

import numpy as np
import pytest
from group_samples import NAMES, arguments

import tvm_tilex as tx
from tvm_tilex.errors import VerifyError
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.ir.print import format_program
from tvm_tilex.ir.verify import verify


def captured(name):
    kernel, constants, arrays, outputs, expected = arguments(name)
    specs = [tx.spec(array.shape, array.dtype.name) for array in arrays]
    return kernel.capture(specs, constants), arrays[: len(arrays) - len(outputs)], expected


@pytest.mark.parametrize("name", NAMES)
def test_text_reads_back_to_an_equal_program(name):
    program, _, _ = captured(name)
    verify(program)
    assert parse_program(format_program(program)) == program


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_interpreter_gives_the_formula(name, precision):
    program, inputs, expected = captured(name)
    results = interpret(program, inputs, precision=precision)
    for got, want in zip(results, expected, strict=True):
        slack = 1e-5 if precision == "float32" else 1e-12
        np.testing.assert_allclose(got, want, rtol=slack, atol=slack)


def test_programs_of_one_batch_stop_at_different_iterations_and_keep_their_memory():
    text = """
    kernel k(y: out float32[4]) {
      parallel n0(p: 4) {
        group() {
          memory m0: float32[] shared
          write m0 = float32(0.0)
          pipeline n1(steps: 3) stop n0.0 {
            %0: float32[] = read m0
            %1: float32[] = add %0, float32(1.0)
            write m0 = %1
            next
          }
          %2: float32[] = read m0
          store y[n0.0](_) = %2
        }
      }
    }
    """
    program = parse_program(text)
    verify(program)
    assert parse_program(format_program(program)) == program
    (got,) = interpret(program, [])
    assert got.tolist() == [0, 1, 2, 3]


GOOD = """\
kernel good(x: in float32[4, 8], z: in float32[4, 8] predicate, y: out float32[4, 8]) {
  parallel n0(p: 1) {
    group(rows: 4) {
      memory m0: float32[rows: 4] shared
      write m0 = float32(1.0)
      %0: float32[rows: 4, k: 8] = load x[0, 0](rows: 4, k: 8)
      %1: float32[k: 8, columns: 8] = full 0.5
      %2: float32[rows: 4, columns: 8] = full 0.0
      %15: float32[rows: 4] = reduce add %0 over k
      pipeline n1(steps: 2) stop n0.0 with %3: float32[rows: 4] = %15, %4: float32[rows: 4, columns: 8] = %2 {
        %5: float32[rows: 4, columns: 8] = dot %0, %1 over k plus %4
        %6: float32[rows: 4] = read m0
        next %6, %5
      } -> %7: float32[rows: 4], %8: float32[rows: 4, columns: 8]
      %9: float32[rows: 4, columns: 8] = load z[0, 0](rows: 4, columns: 8) predicate
      %10: float32[rows: 4, columns: 8] = add %8, %7
      store y[0, 0](rows: 4, columns: 8) = %10
    }
  }
}
"""


def test_the_good_program_is_good():
    program = parse_program(GOOD)
    verify(program)
    assert format_program(program) == GOOD


MUTATIONS = {
    "a domain axis is reduced": ("group", [("%15: float32[rows: 4] = reduce add %0 over k", "%15: float32[k: 8] = reduce add %0 over rows"), ("%3: float32[rows: 4] = %15", "%3: float32[rows: 4] = float32(0.0)")]),
    "a domain axis is contracted": ("group", [("group(rows: 4)", "group(rows: 4, k: 8)")]),
    "a store lacks a domain axis": ("group", [("store y[0, 0](rows: 4, columns: 8) = %10", "store y[0, 0](_, columns: 8) = float32(0.0)")]),
    "a parallel nest in a group": ("group", [("store y[0, 0](rows: 4, columns: 8) = %10", "parallel n5(q: 1) { store y[0, 0](rows: 4, columns: 8) = %10 }")]),
    "a group is not alone": ("group", [("    group(", "    %20: float32[] = full 1.0\n    group(")]),
    "a group in a group": ("group", [("      memory m0", "      group() { }\n      memory m0")]),
    "a pipeline outside": ("group", [("    group(rows: 4) {", "    pipeline n7(steps: 2) { next }\n    group(rows: 4) {")]),
    "memory outside": ("group", [("    group(rows: 4) {", "    memory m9: float32[] shared\n    group(rows: 4) {")]),
    "an empty pipeline": ("extent", [("steps: 2", "steps: 0")]),
    "a nest number twice": ("nest", [("n1(steps", "n0(steps")]),
    "too few next": ("pipeline", [("next %6, %5", "next %6")]),
    "next of another type": ("pipeline", [("next %6, %5", "next %5, %5")]),
    "result of another type": ("pipeline", [("-> %7: float32[rows: 4]", "-> %7: float16[rows: 4]")]),
    "a state outside its body": ("ssa", [("add %8, %7", "add %8, %3")]),
    "a body value outside": ("ssa", [("add %8, %7", "add %8, %6")]),
    "a stop that is no coordinate": ("index", [("stop n0.0", "stop n1.0")]),
    "an accumulator of a 16-bit type": ("type", [("%2: float32[rows: 4, columns: 8] = full 0.0", "%2: float16[rows: 4, columns: 8] = full 0.0"), ("%4: float32", "%4: float16"), ("%5: float32", "%5: float16"), ("%8: float32[rows", "%8: float16[rows"), ("add %8, %7", "add %7, %7")]),
    "a contraction over a kept axis": ("type", [("group(rows: 4)", "group()"), ("over k plus", "over rows plus")]),
    "memory declared twice": ("memory", [("      write m0", "      memory m0: float32[] shared\n      write m0")]),
    "memory read before a write": ("memory", [("      write m0 = float32(1.0)\n", "")]),
    "memory holds another type": ("memory", [("write m0 = float32(1.0)", "write m0 = float16(1.0)")]),
    "no such memory": ("memory", [("read m0", "read m3"), ("write m0", "write m0")]),
    "memory holds an inactive tile": ("inactive", [("store y", "memory m1: float32[rows: 4, columns: 8] shared\n      write m1 = %9\n      store y")]),
    "an inactive accumulator": ("inactive", [("store y", "%11: float32[rows: 4, columns: 8] = dot %0, %1 over k plus %9\n      store y")]),
    "an inactive initial state": ("inactive", [("pipeline n1", "%12: float32[rows: 4, columns: 8] = load z[0, 0](rows: 4, columns: 8) predicate\n      pipeline n1"), ("%4: float32[rows: 4, columns: 8] = %2", "%4: float32[rows: 4, columns: 8] = %12")]),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_one_edit_breaks_its_rule(name):
    rule, edits = MUTATIONS[name]
    text = GOOD
    for old, new in edits:
        assert old in text, f"{old!r} is not in the program"
        text = text.replace(old, new)
    with pytest.raises(VerifyError, match=rf"\[rule: {rule}\]"):
        verify(parse_program(text))
