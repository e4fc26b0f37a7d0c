"""Fibers, and inverses on the image of maps that are not onto."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    DISPROVEN,
    CuteLayout,
    IndexSet,
    cardinality,
    choose,
    index_map,
    lt,
    parse_map,
    preimage,
    prove,
    try_inverse,
)
from tvm_tilex.layout.errors import CodomainError

B = IndexSet.box
CLAMP = index_map(
    B(block=3, q=8), B(p=17), lambda block, q: choose(lt(block * 8 + q, 17), block * 8 + q, 16)
)
GUARDED = B(i=5, j=5).where(lambda i, j: lt(i + j, 6))
MAPS = {
    "sum": parse_map("(4,8):(1,1)"),
    "broadcast": parse_map("(4,3):(0,2)"),
    "negative": parse_map("(4,3):(-1,2)"),
    "digits": parse_map("(3,(2,2)):(2,(1,8))"),
    "clamp": CLAMP,
    "guarded": index_map(GUARDED, B(x=9), lambda i, j: i + j),
    "two axes": index_map(B(i=4, j=4), B(a=2, b=7), lambda i, j: (i // 2, i + j)),
    "xor": index_map(B(i=8), B(x=8), lambda i: i ^ (i >> 1)),
    "empty": index_map(B(i=0), B(x=4), lambda i: i),
}


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", MAPS)
def test_fibers_partition_the_domain(name):
    map = MAPS[name]
    found = []
    for value in map.codomain.points():
        fiber = preimage(map, *value)
        points = list(fiber.points())
        assert all(as_tuple(map(*p)) == value for p in points)
        assert cardinality(fiber).value == len(points)
        found.extend(points)
    assert sorted(found) == sorted(map.domain.points())


def test_a_fiber_of_a_huge_map_is_narrow():
    fiber = preimage(parse_map("(1048576,1048576):(1048576,1)"), 2**39 + 5)
    assert list(fiber.points()) == [(524288, 5)]


def test_fibers_are_refused_off_the_codomain_and_for_partial_maps():
    with pytest.raises(CodomainError, match="outside the codomain"):
        preimage(parse_map("4:2"), 7)
    with pytest.raises(LayoutError, match="1 coordinates"):
        preimage(MAPS["two axes"], 1)
    partial = index_map(B(i=4), B(x=9), lambda i: 8 // i)
    with pytest.raises(LayoutError, match="total"):
        preimage(partial, 4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-40, 40)), min_size=1, max_size=3))
def test_inverse_on_the_image_is_right_where_given(digits):
    layout = CuteLayout(tuple(n for n, _ in digits), tuple(s for _, s in digits))
    map = layout.to_map()
    values = {p: as_tuple(map(*p)) for p in map.domain.points()}
    answer = try_inverse(map, on_image=True)
    if len(set(values.values())) < len(values):
        assert answer.verdict.kind is DISPROVEN
        return
    if answer.value is None:
        return
    inverse = answer.value
    assert set(inverse.domain.points()) == set(values.values())
    assert all(as_tuple(inverse(*v)) == p for p, v in values.items())


@pytest.mark.parametrize(
    "text",
    ["8:2", "(4,8):(10,1)", "(2,2):(4,3)", "(6,5,5):(1,32,6)", "(4,2):(-1,8)", "(3,4):(2@a,5@b)"],
)
def test_maps_that_are_not_onto_have_an_inverse_on_their_image(text):
    map = parse_map(text)
    assert try_inverse(map).verdict.kind is DISPROVEN
    inverse = try_inverse(map, budget=1 << 12, on_image=True).value
    assert prove(inverse).all_proven
    assert cardinality(inverse.domain).value == cardinality(map.domain).value


def test_the_image_of_a_huge_padded_layout():
    map = parse_map("(1000000,1000000):(1,1000016)")
    answer = try_inverse(map, budget=0, on_image=True)
    assert answer.verdict.proven
    assert answer.value(1000016 * 7 + 3) == (3, 7)
    with pytest.raises(LayoutError):
        answer.value(1000007)
