"""Triton's published vectors and reports: each with the value that brute force gives."""

import itertools

import pytest

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import IndexSet, cardinality, index_map, parse_map, prove, try_inverse
from tvm_tilex.layout.bridges import TritonLayout
from tvm_tilex.layout.composite import Compose

L = TritonLayout.from_bases


def points(layout):
    names = [n for n, _ in layout.in_dims]
    for point in itertools.product(*(range(n) for _, n in layout.in_dims)):
        yield dict(zip(names, point, strict=True))


def assert_converts(a, b, c):
    """B(C(x)) = A(x) for every x: a conversion is judged by this law, never by its bases."""
    assert c.in_dims == a.in_dims and c.out_dims == b.in_dims
    for x in points(a):
        assert tuple(b.apply(c.apply(x)).values()) == tuple(a.apply(x).values())


def test_broadcast_blocks_stay_with_their_block():
    """triton 4115: any C with thread part {2, 1} is right; block -> block is the convention."""
    a = L({"thread": [1, 2], "block": [0]}, {"o": 4})
    b = L({"thread": [2, 1], "block": [0]}, {"o": 4})
    c = a.invert_and_compose(b)
    assert_converts(a, b, c)
    assert dict(c.bases) == {"thread": ((2, 0), (1, 0)), "block": ((0, 1),)}


def test_an_equal_dimension_that_shares_bits_is_no_identity_of_the_rest():
    """triton 11645: 3.8.0 aborts; 8 of 8 points are right here."""
    a = L({"register": [1, 2], "block": [4]}, {"o": 8})
    b = L({"register": [1, 6], "block": [4]}, {"o": 8})
    c = a.invert_and_compose(b)
    assert_converts(a, b, c)
    assert dict(c.bases) == {"register": ((1, 0), (2, 1)), "block": ((0, 1),)}


def test_equality_of_a_dimension_does_not_include_output_sizes():
    """triton 10116: the same vectors with output sizes 4 and 8."""
    a = L({"register": [[1, 0], [2, 0]], "block": [[0, 0]]}, {"d0": 4, "d1": 1})
    b = L({"register": [[1, 0], [2, 0], [4, 0]], "block": [[0, 0]]}, {"d0": 8, "d1": 1})
    c = a.invert_and_compose(b)
    assert_converts(a, b, c)
    assert dict(c.bases) == {"register": ((1, 0), (2, 0)), "block": ((0, 1),)}


def test_distinct_owners_are_two_to_the_rank_not_to_the_bits():
    """triton 9185: zero and repeated bases are broadcast, not data."""
    layout = L({"register": [1, 2, 0], "lane": [4, 4, 0], "warp": [3]}, {"o": 8})
    answer = cardinality(layout.map, 0)
    assert answer.verdict.proven and answer.value == 8
    assert layout.map.domain.box_size == 2**7
    assert len({layout.apply(x)["o"] for x in points(layout)}) == 8
    assert prove(layout.map, 0).injectivity.disproven


@pytest.mark.parametrize(
    ("a", "b", "bases"),
    [
        ([2, 1, 4], [4, 1, 2], [4, 2, 1]),
        ([2, 1, 4], [0, 2, 1, 4], [2, 4, 8]),
    ],
)
def test_published_conversions(a, b, bases):
    first, second = L({"in1": a}, {"o": 8}), L({"in2": b}, {"o": 8})
    c = first.invert_and_compose(second)
    assert_converts(first, second, c)
    assert [v for (v,) in c.bases[0][1]] == bases


def test_published_composition():
    first = L({"in1": [[1, 1], [0, 1]], "in2": [[1, 0], [1, 2]]}, ["out1", "out2"])
    second = L({"out1": [[2, 2], [1, 0]], "out2": [[1, 1], [2, 1]]}, ["out3", "out4"])
    # The published composition embeds out1 of size 2 in the two bits of the second's out1.
    composed = TritonLayout.from_map(Compose(second.map, first.map))
    assert dict(composed.bases) == {"in1": ((3, 3), (1, 1)), "in2": ((2, 2), (0, 3))}
    assert composed.in_dims == first.in_dims and composed.out_dims == second.out_dims
    assert prove(composed.map, 0).surjectivity.disproven


def test_an_input_out_of_range_is_refused_where_triton_masks_it():
    layout = L({"in": [1, 2]}, {"out": 4})
    assert layout.apply({"in": 3}) == {"out": 3}
    for outside in (5, -1):
        with pytest.raises(LayoutError, match="outside"):
            layout.apply({"in": outside})


def test_inverse_of_a_conversion_layout():
    layout = L(
        {
            "register": [[0, 1], [8, 0]],
            "lane": [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]],
            "warp": [[0, 8], [16, 0]],
        },
        {"dim0": 32, "dim1": 16},
    )
    inverse = TritonLayout.from_map(try_inverse(layout.map, 0).value)
    assert inverse.apply({"dim0": 15, "dim1": 15}) == {"register": 3, "lane": 31, "warp": 1}
    assert [n for n, _ in inverse.out_dims] == ["register", "lane", "warp"]


@pytest.mark.parametrize(
    ("map", "rule"),
    [
        (parse_map("(6,4):(4,1)"), "'i0' has size 6, which is not a power of two"),
        (parse_map("(4,4):(6,1)"), "'index' has size 22, which is not a power of two"),
        (parse_map("4:1 + 4"), "0 maps to"),
        (
            index_map(IndexSet.box(x=8), IndexSet.box(y=8), lambda x: (x + x // 4) % 8),
            "not linear",
        ),
        (index_map(IndexSet.box(x=8), IndexSet.box(y=16), lambda x: x * 2 % 3), "not linear"),
        (
            index_map(IndexSet.box(x=8).where(lambda x: x < 3), IndexSet.box(y=8), lambda x: x),
            "guarded",
        ),
    ],
)
def test_export_refuses_what_is_not_linear(map, rule):
    with pytest.raises(LayoutError, match=rule):
        TritonLayout.from_map(map)


def test_export_of_maps_that_are_linear():
    for text in (
        "(4,8):(8,1)",
        "((2,4),8):((1,16),2)",
        "8:0",
        "bit_linear({a: 4} -> {b: 8}, [[[5], [2]]], [0])",
    ):
        map = parse_map(text)
        layout = TritonLayout.from_map(map)
        assert all(layout.map(*p) == map(*p) for p in map.domain.points())
        assert layout.map.domain.names == map.domain.names


def test_solvability_is_decided():
    a, b = L({"r": [1, 2]}, {"o": 4}), L({"r": [1]}, {"o": 4})
    with pytest.raises(LayoutError, match=r"r=2 -> .* has no preimage"):
        a.invert_and_compose(b)
    with pytest.raises(LayoutError, match="do not correspond"):
        a.invert_and_compose(L({"r": [1]}, {"p": 4}))
