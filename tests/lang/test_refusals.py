"""Every refusal of a kernel's body: its type, its text and the user's file and line.

A case is the body of one program over a (3, 8) matrix. The line that must be named ends in
``# <- refused``.
"""

import inspect
import math
import pathlib

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.errors import CaptureError, DTypeError, ShapeError

CASES = []


def refuses(error, text):
    def register(body):
        CASES.append(pytest.param(body, error, text, id=body.__name__))
        return body

    return register


class Program:
    """What a case may use: views x, i (int64) and out; axes; a region; a loaded tile."""

    def __init__(self, x, i, out, nest, axes):
        self.x, self.i, self.out, self.nest = x, i, out, nest
        self.rows, self.one, self.columns = axes
        self.origin = tx.coord(nest.index(), 0)
        self.row = tx.shape(self.one, self.columns)
        self.value = x[self.origin, self.row]


def kernel_of(body):
    @tx.tile_kernel
    def case(
        x: tx.TensorView[tx.float32, 2],
        i: tx.TensorView[tx.int64, 2],
        out: tx.TensorView[tx.float32, 2, tx.Out],
    ):
        axes = tx.axis("rows", x.extent(0)), tx.axis("one", 1), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(axes[0])):
            program = Program(x, i, out, nest, axes)
            body(program)
            program.out(program.origin, program.row).store(program.value)

    return case


def refused_line(function):
    lines, first = inspect.getsourcelines(function)
    (line,) = [first + n for n, text in enumerate(lines) if text.endswith("# <- refused\n")]
    return line


SPECS = (tx.spec((3, 8)), tx.spec((3, 8)), tx.spec((3, 8)))


# Python control flow on a tile


@refuses(CaptureError, "no truth value")
def python_if(p):
    if p.value > 0:  # <- refused
        p.value = -p.value


@refuses(CaptureError, "no truth value")
def python_while(p):
    while p.value > 0:  # <- refused
        p.value = p.value - 1


@refuses(CaptureError, "use tx.where")
def conditional_expression(p):
    p.value = 1.0 if p.value > 0 else 0.0  # <- refused


@refuses(CaptureError, "& | ~ instead of and/or/not")
def boolean_operators(p):
    p.value = tx.where((p.value > 0) and (p.value < 1), 1.0, 0.0)  # <- refused


@refuses(CaptureError, "no truth value")
def chained_comparison(p):
    p.value = tx.where(0 < p.value < 1, p.value, 0.0)  # <- refused


@refuses(CaptureError, "no truth value")
def assertion(p):
    assert p.value > 0  # <- refused


@refuses(CaptureError, "no truth value")
def builtin_max(p):
    p.value = max(p.value, 0.0)  # <- refused


@refuses(CaptureError, "no Python value")
def loop_over_a_tile(p):
    for _ in p.value:  # <- refused
        pass


@refuses(CaptureError, "no Python value")
def math_function(p):
    p.value = math.exp(p.value)  # <- refused


@refuses(CaptureError, "a tile is not indexed")
def tile_subscript(p):
    p.value = p.value[0]  # <- refused


@refuses(CaptureError, "a program index has no value")
def python_if_on_an_index(p):
    if p.nest.index() == 0:  # <- refused
        p.value = -p.value


@refuses(CaptureError, "a program index has no value")
def range_over_an_index(p):
    for _ in range(p.nest.index()):  # <- refused
        pass


# Axes


@refuses(ShapeError, "axis 'columns' has extent 9 here and 8 at")
def one_name_two_extents(p):
    tx.axis("columns", 9)  # <- refused


@refuses(ShapeError, "names an axis twice")
def axis_twice_in_a_shape(p):
    tx.shape(p.columns, p.columns)  # <- refused


@refuses(ShapeError, "takes axes (or the literal 1), not 8")
def number_in_a_shape(p):
    tx.shape(p.one, 8)  # <- refused


@refuses(ShapeError, "not an integer")
def fractional_extent(p):
    tx.axis("half", 1.5)  # <- refused


@refuses(ShapeError, "negative extent -1")
def negative_extent(p):
    tx.axis("negative", -1)  # <- refused


@refuses(ShapeError, "'a b' is not an identifier")
def axis_name_with_a_blank(p):
    tx.axis("a b", 1)  # <- refused


@refuses(ShapeError, "axis name 3 is not text")
def axis_name_that_is_a_number(p):
    tx.axis(3, 4)  # <- refused


@refuses(ShapeError, "axis 'none' has extent 0")
def empty_tile_axis(p):
    p.x[p.origin, tx.shape(p.one, tx.axis("none", 0))]  # <- refused


# Loads and regions


@refuses(ShapeError, "x has rank 2; the origin has 1 indices")
def origin_of_another_rank(p):
    p.x[tx.coord(0), p.row]  # <- refused


@refuses(ShapeError, "the shape 1 axes")
def shape_of_another_rank(p):
    p.x[p.origin, tx.shape(p.columns)]  # <- refused


@refuses(ShapeError, "x: dimension 0 is indexed from 1 to 3, its extent is 3")
def load_past_the_extent(p):
    p.x[tx.coord(p.nest.index() + 1, 0), p.row]  # <- refused


@refuses(ShapeError, "x: dimension 0 is indexed from -2 to 0")
def load_before_the_view(p):
    p.x[tx.coord(-p.nest.index(), 0), p.row]  # <- refused


@refuses(CaptureError, "takes an origin and a shape")
def load_by_origin_alone(p):
    p.x[p.origin]  # <- refused


@refuses(CaptureError, "a region is tx.coord(...) and tx.shape(...)")
def load_by_numbers(p):
    p.x[0, 0]  # <- refused


@refuses(CaptureError, "'out' view and cannot be loaded")
def load_of_an_output(p):
    p.out[p.origin, p.row]  # <- refused


@refuses(ShapeError, "x.extent(2): the view has dimensions 0 to 1")
def extent_of_a_missing_dimension(p):
    p.x.extent(2)  # <- refused


@refuses(CaptureError, "coord(...) takes integers and nest.index(), not float")
def fractional_origin(p):
    tx.coord(0.5, 0)  # <- refused


@refuses(CaptureError, "the divisor must be a positive constant")
def index_divided_by_an_index(p):
    tx.coord(10 // p.nest.index(), 0)  # <- refused


@refuses(CaptureError, "nest.index(1): the nest has dimensions 0 to 0")
def index_of_a_missing_dimension(p):
    p.nest.index(1)  # <- refused


# Stores


@refuses(DTypeError, "store to out: the tile is bool, the view float32")
def store_of_another_dtype(p):
    p.out(p.origin, p.row).store(p.value > 0)  # <- refused


@refuses(ShapeError, "store to out: the tile has one: 1, the region one: 1, columns: 8")
def store_of_another_shape(p):
    p.out(p.origin, p.row).store(tx.reduce(p.value, p.columns, tx.add))  # <- refused


@refuses(ShapeError, "the region one: 1, other: 8")
def store_over_another_axis_of_equal_extent(p):
    region = tx.shape(p.one, tx.axis("other", 8))
    p.out(p.origin, region).store(p.value)  # <- refused


@refuses(CaptureError, "x is an 'in' view and cannot be stored")
def store_to_an_input(p):
    p.x(p.origin, p.row).store(p.value)  # <- refused


@refuses(CaptureError, "is not a store; write out(origin, shape).store(tile)")
def store_by_assignment(p):
    p.out[p.origin, p.row] = p.value  # <- refused


@refuses(CaptureError, "str is neither a tile nor a number")
def store_of_text(p):
    p.out(p.origin, p.row).store("1")  # <- refused


@refuses(ShapeError, "out: dimension 0 is indexed from 1 to 3")
def store_past_the_extent(p):
    p.out(tx.coord(p.nest.index() + 1, 0), p.row).store(p.value)  # <- refused


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


@pytest.mark.parametrize(("body", "error", "text"), CASES)
def test_refused_at_the_users_line(body, error, text):
    line = refused_line(body)
    with pytest.raises(error) as caught:
        kernel_of(body).capture(SPECS)
    message = str(caught.value)
    assert type(caught.value) is error
    assert caught.value.location.line == line
    assert pathlib.Path(caught.value.location.file).samefile(__file__)
    assert message.startswith(f"{caught.value.location}: ")
    assert text in message
    assert message.count("\n") <= 1 and len(message) <= 200


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
