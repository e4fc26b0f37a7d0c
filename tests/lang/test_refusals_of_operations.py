"""Refusals of operations, reductions and nests: type, text and the user's file and line."""

import inspect

import numpy as np
import pytest
from refusals import SPECS, Refusals, check_refused, kernel_of

import tvm_tilex as tx
from tvm_tilex.errors import CaptureError, DTypeError, ShapeError

refuses = Refusals()


# Operations


@refuses(DTypeError, "add: operands are float32, int64; cast one")
def operands_of_two_types(p):
    p.value = p.value + p.i[p.origin, p.row]  # <- refused


@refuses(DTypeError, "exp: takes float operands, not int64")
def exponential_of_integers(p):
    tx.exp(p.i[p.origin, p.row])  # <- refused


@refuses(DTypeError, "floor_divide: takes integer operands, not float32")
def floor_division_of_floats(p):
    p.value = p.value // 2  # <- refused


@refuses(DTypeError, "1.5 is not a int64 literal")
def fraction_in_integer_arithmetic(p):
    p.i[p.origin, p.row] * 1.5  # <- refused


@refuses(DTypeError, "is not a int64 literal")
def integer_literal_out_of_range(p):
    p.i[p.origin, p.row] + 2**63  # <- refused


@refuses(DTypeError, "1e+39 is not a float32 literal")
def float_literal_that_overflows(p):
    p.value = p.value + 1e39  # <- refused


@refuses(DTypeError, "70000.0 is not a float16 literal")
def float16_literal_that_overflows(p):
    tx.cast(p.value, "float16") + 70000.0  # <- refused


@refuses(CaptureError, "ndarray is neither a tile nor a number")
def numpy_array_operand(p):
    p.value = p.value + np.ones(8, np.float32)  # <- refused


@refuses(CaptureError, "exp: no operand is a tile")
def exponential_of_a_number(p):
    tx.exp(1.0)  # <- refused


@refuses(DTypeError, "where: the condition is float32, not bool")
def condition_that_is_not_bool(p):
    p.value = tx.where(p.value, p.value, 0.0)  # <- refused


@refuses(DTypeError, "unknown dtype 'float64'")
def cast_to_an_unknown_type(p):
    tx.cast(p.value, "float64")  # <- refused


@refuses(DTypeError, "unknown dtype 'int9'")
def coordinate_of_an_unknown_type(p):
    tx.coordinate(p.columns, "int9")  # <- refused


# Reductions and gather


@refuses(ShapeError, "reduce: the tile has no axis 'rows' of extent 3 (it has one: 1, columns: 8)")
def reduction_over_a_missing_axis(p):
    tx.reduce(p.value, p.rows, tx.add)  # <- refused


@refuses(ShapeError, "no axis 'columns' of extent 8 (it has one: 1)")
def reduction_twice_over_one_axis(p):
    tx.reduce(tx.reduce(p.value, p.columns, tx.add), p.columns, tx.add)  # <- refused


@refuses(ShapeError, "'columns' is not an axis")
def reduction_over_a_name(p):
    tx.reduce(p.value, "columns", tx.add)  # <- refused


@refuses(CaptureError, "is no combiner; use tx.add, tx.maximum or tx.minimum")
def reduction_by_a_python_function(p):
    tx.reduce(p.value, p.columns, sum)  # <- refused


@refuses(CaptureError, "policy='left': use one of unordered_tree")
def reduction_with_an_unknown_policy(p):
    tx.reduce(p.value, p.columns, tx.add, policy="left")  # <- refused


@refuses(CaptureError, "nan='maybe': use one of target, propagate, unspecified")
def reduction_with_an_unknown_nan_policy(p):
    tx.reduce(p.value, p.columns, tx.maximum, nan="maybe")  # <- refused


@refuses(DTypeError, "a bool tile has no add; cast it to int32 first")
def sum_of_bool(p):
    tx.reduce(p.value > 0, p.columns, tx.add)  # <- refused


@refuses(CaptureError, "int is not a tile")
def reduction_of_a_number(p):
    tx.reduce(1, p.columns, tx.add)  # <- refused


@refuses(DTypeError, "gather: the index is float32, not int32 or int64")
def gather_by_floats(p):
    tx.gather(p.value, tx.reduce(p.value, p.columns, tx.add), p.columns)  # <- refused


@refuses(ShapeError, "the index must not have the gathered axis 'columns'")
def gather_by_an_index_over_the_gathered_axis(p):
    tx.gather(p.value, p.i[p.origin, p.row], p.columns)  # <- refused


@refuses(ShapeError, "gather: the tile has no axis 'rows'")
def gather_along_a_missing_axis(p):
    index = tx.reduce(p.i[p.origin, p.row], p.columns, tx.add)
    tx.gather(p.value, index, p.rows)  # <- refused


# Nests


@refuses(ShapeError, "parallel(...) takes tx.shape(axis, ...)")
def parallel_over_a_number(p):
    tx.parallel(4)  # <- refused


@refuses(CaptureError, "use 'auto' or 'subgroup'")
def parallel_with_an_unknown_binding(p):
    tx.parallel(tx.shape(p.rows), binding="warp")  # <- refused


@refuses(CaptureError, "nest.index() needs a dimension: the nest has 2")
def index_without_a_dimension(p):
    for inner in tx.parallel(tx.shape(p.rows, p.one)):
        inner.index()  # <- refused


@refuses(CaptureError, "left by break or return")
def break_out_of_an_inner_nest(p):
    for _ in tx.parallel(tx.shape(p.one)):  # <- refused
        break


@refuses(CaptureError, "was computed in a parallel nest that has ended")
def tile_of_a_closed_nest(p):
    for _ in tx.parallel(tx.shape(p.one)):
        inner = p.value + 1.0
    p.value = inner * 2.0  # <- refused


@refuses(CaptureError, "outside that nest")
def index_of_a_closed_nest(p):
    for inner in tx.parallel(tx.shape(p.one)):
        index = inner.index()
    p.x[tx.coord(index, 0), p.row]  # <- refused


@pytest.mark.parametrize(("body", "error", "text"), refuses.cases)
def test_refused_at_the_users_line(body, error, text):
    check_refused(body, error, text)


def test_every_case_is_refused_for_its_own_reason():
    def accepted(p):
        p.value = p.value + 1.0

    kernel_of(accepted).capture(SPECS)  # the frame around a case is right


def test_a_view_of_another_kernel_is_unknown():
    taken = []
    kernel_of(lambda p: taken.append(p.x)).capture(SPECS)
    line = inspect.currentframe().f_lineno + 3

    def foreign(p):
        p.value = taken[0][p.origin, p.row]

    with pytest.raises(CaptureError, match="x is not a parameter of case") as caught:
        kernel_of(foreign).capture(SPECS)
    assert caught.value.location.line == line


def test_a_tile_of_another_kernel_is_refused():
    taken = []
    kernel_of(lambda p: taken.append(p.value)).capture(SPECS)

    def foreign(p):
        p.value = taken[0] + 1.0

    with pytest.raises(CaptureError, match="nest that has ended"):
        kernel_of(foreign).capture(SPECS)


@pytest.mark.parametrize(
    "operation",
    [
        lambda: tx.exp(1.0),
        lambda: tx.reduce(1.0, tx.axis("a", 2), tx.add),
        lambda: next(tx.parallel(tx.shape(tx.axis("a", 2)))),
        lambda: tx.gather(1, 2, tx.axis("a", 2)),
        lambda: tx.coordinate(tx.axis("a", 2)),
    ],
)
def test_operations_outside_a_kernel_say_so(operation):
    with pytest.raises(CaptureError, match="only meaningful inside a") as caught:
        operation()
    assert caught.value.location.line == operation.__code__.co_firstlineno
