"""Bounds on the number of values: what no output reads multiplies points, not values."""

import pytest

from tvm_tilex.layout import IndexSet, index_map, parse_map, prove
from tvm_tilex.layout.bridges import parse_tilelang, parse_tvm
from tvm_tilex.layout.image_bound import masked_count


def test_masked_values_are_counted_exactly():
    for mask in range(48):
        for extent in range(52):
            assert masked_count(mask, extent) == len({x & mask for x in range(extent)})
    assert masked_count(2**40 - 1, 2**50) == 2**40


@pytest.mark.parametrize(
    "text",
    [
        "Layout([16, 6], lambda i, j: j * 8 + (j ^ j // 2 % 8))",  # i is not read
        "Layout([6, 3], lambda i, j: j % 2 * 8 + i // 2)",  # one bit of each is not read
        "Layout([4, 4, 3], lambda i, j, k: i * 8 + (k ^ i % 4))",
        "Layout([3, 8], lambda i, j: i % 4 * 2 + i // 2 % 8)",
    ],
)
def test_ragged_bit_linear_maps_that_miss_values(text):
    map = parse_tilelang(text).map
    found = prove(map, budget=0).surjectivity
    assert found.disproven and "at most" in found.reason
    assert len({map(*p) for p in map.domain.points()}) < map.codomain.box_size


def test_swizzles_over_another_shape_that_miss_values():
    for text, shape in (
        ("ComposeLayout(0, 2, 2, S[(3, 1, 5, 2):(0, 4, 1, 8)])", [6, 1, 5, 1]),
        ("ComposeLayout(1, 2, 2, S[(5, 5, 4, 2):(4, 1, 2, 4)] + 31)", [20, 5, 2]),
    ):
        assert prove(parse_tvm(text).map_over(shape), budget=0).surjectivity.disproven


def test_a_bound_that_is_reached_refutes_nothing():
    box = IndexSet.box(i=3, j=40)
    product = index_map(box, IndexSet.box(x=9), lambda i, j: i * i * 2)
    assert prove(product, 0).surjectivity.disproven  # three values
    assert prove(product, 0).injectivity.disproven
    reached = index_map(box, IndexSet.box(x=3), lambda i, j: (i * i + 1) // 2)
    assert not prove(reached, 0).surjectivity.disproven  # 0, 1, 2
    assert prove(reached).surjectivity.proven
    assert prove(parse_map("(4,1000000):(1,0)"), 0).surjectivity.proven
