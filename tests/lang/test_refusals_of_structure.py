"""Refusals of control flow, axes, loads and stores: type, text and the user's file and line."""

import math

import pytest
from refusals import Refusals, check_refused

import tvm_tilex as tx
from tvm_tilex.errors import CaptureError, DTypeError, ShapeError

refuses = Refusals()


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


@pytest.mark.parametrize(("body", "error", "text"), refuses.cases)
def test_refused_at_the_users_line(body, error, text):
    check_refused(body, error, text)
