"""CuTe layouts as values: text form, checked evaluation, exact width, maps both ways."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    ComposedLayout,
    CuteLayout,
    Swizzle,
    index_map,
    parse_cute_layout,
    parse_map,
)
from tvm_tilex.layout.errors import DomainError, LayoutTextError
from tvm_tilex.layout.index_set import IndexSet


def colex(shape, stride, index):
    """The definition, written again: digits first mode fastest, times strides."""
    if isinstance(shape, int):
        return index % shape * stride, index // shape
    total = 0
    for mode, step in zip(shape, stride, strict=True):
        value, index = colex(mode, step, index)
        total += value
    return total, index


NESTS = st.recursive(
    st.tuples(st.integers(1, 5), st.integers(-9, 9)),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(list),
    max_leaves=4,
)


def side(nest, k):
    return nest[k] if isinstance(nest, tuple) else tuple(side(entry, k) for entry in nest)


LAYOUTS = NESTS.map(lambda nest: CuteLayout(side(nest, 0), side(nest, 1)))


@settings(max_examples=80, deadline=None)
@given(LAYOUTS)
def test_values_width_text_and_map_follow_the_definition(layout):
    expected = [colex(layout.shape, layout.stride, i)[0] for i in range(layout.size())]
    assert list(layout.values()) == expected == [layout(i) for i in range(layout.size())]
    assert layout.cosize() == max(expected) - min(expected) + 1
    assert parse_cute_layout(str(layout)) == layout
    linear = layout.to_map(linear=True)
    assert [linear(i) for i in range(layout.size())] == expected
    assert CuteLayout.from_map(layout.to_map()) == layout


@pytest.mark.parametrize(
    ("text", "printed", "size", "cosize"),
    [
        ("((4,2),8):((1,4),16)", "((4,2),8):((1,4),16)", 64, 120),
        ("(_4,_8):(_8,_1)", "(4,8):(8,1)", 32, 32),
        ("(4,8)", "(4,8):(1,4)", 32, 32),
        ("(4):(1)", "(4,):(1,)", 4, 4),
        ("7", "7:1", 7, 7),
        ("()", "():()", 1, 1),
        ("4:-1", "4:-1", 4, 4),
        ("(4,4):(1,-4)", "(4,4):(1,-4)", 16, 16),
        ("(3,0):(1,3)", "(3,0):(1,3)", 0, 0),
        ("S<3,0,3> o 0 o (6,10):(10,1)", "S<3,0,3> o 0 o (6,10):(10,1)", 60, 64),
        ("Sw<2,0,3> o 5 o (4,2):(1,8)", "S<2,0,3> o 5 o (4,2):(1,8)", 8, 14),
        ("(4,3):(1,10) o 0 o 6:1", "(4,3):(1,10) o 0 o 6:1", 6, 12),
    ],
)
def test_text_size_and_width(text, printed, size, cosize):
    layout = parse_cute_layout(text)
    assert str(layout) == printed and parse_cute_layout(printed) == layout
    assert (layout.size(), layout.cosize()) == (size, cosize)
    values = list(layout.values())
    assert not values or cosize == max(values) - min(values) + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(4", "the end|column"),
        ("4:1@0", "column 4"),
        ("S<1,0,1>", "unexpected input"),
        ("S<3,0,2> o 0 o 4:1", "shift"),
        ("(4,3):(1)", "congruent"),
        ("-4:1", "negative"),
        ("4:9223372036854775807", "64-bit"),
        ("(4,3):(1,10) o 0 o 13:1", "past the domain"),
    ],
)
def test_malformed_text_is_one_error(text, message):
    with pytest.raises(LayoutTextError, match=message):
        parse_cute_layout(text)


def test_coordinates_may_be_coarser_and_are_checked():
    layout = parse_cute_layout("((4,2),8):((1,4),16)")
    assert layout(17) == layout(1, 2) == layout((1, 2)) == layout(((1, 0), 2)) == 33
    for coord in (64, -1, (8, 0), ((4, 0), 0)):
        with pytest.raises(DomainError):
            layout(coord)
    with pytest.raises(LayoutError, match="does not fit"):
        layout(1, 2, 3)


def test_sixty_four_bit_indices():
    layout = parse_cute_layout(f"({2**29 + 1},4):(4,1)")
    assert layout(2**29, 0) == 2147483648  # 32-bit arithmetic gives -2147483648
    assert parse_cute_layout("(1048576,1048576):(1048576,1)")(2**40 - 1) == 1099511627775
    assert parse_cute_layout("4:1073741824")(3) == 3221225472


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(1, 0, 1), (2, 0, 3), (3, 1, 3), (2, 1, -2), (3, 0, 4), (0, 0, 0)]),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 30)), min_size=1, max_size=3),
)
def test_swizzled_width_is_exact(parameters, offset, digits):
    inner = CuteLayout(tuple(n for n, _ in digits), tuple(s for _, s in digits))
    layout = ComposedLayout(Swizzle(*parameters), offset, inner)
    values = [Swizzle(*parameters)(offset + y) for y in inner.values()]
    assert list(layout.values()) == values
    assert layout.cosize() == max(values) - min(values) + 1
    linear = layout.to_map(linear=True)
    assert [linear(i) for i in range(layout.size())] == values
    assert parse_cute_layout(str(layout)) == layout


def test_a_large_swizzle_enumerates_only_its_outer_blocks():
    layout = parse_cute_layout("S<3,4,3> o 0 o (4096,4095,4096):(4096,16777216,1)")
    assert layout.cosize() == 4096 * 4095 * 4096
    assert (
        parse_cute_layout("S<3,0,3> o 0 o (6,10000000000):(10000000000,1)").cosize() == 6 * 10**10
    )


def test_swizzle_formula_against_the_published_grid():
    layout = parse_cute_layout("S<3,0,3> o 0 o (8,8):(8,1)")
    assert [layout(i, 3) for i in range(8)] == [3, 10, 17, 24, 39, 46, 53, 60]
    assert CuteLayout.from_map(layout.to_map()) == layout


def test_only_shape_and_stride_become_a_cute_layout():
    box = IndexSet.box(i=6)
    assert str(CuteLayout.from_map(index_map(box, IndexSet.box(x=12), lambda i: 2 * i))) == "6:2"
    for map in (
        index_map(box, IndexSet.box(x=99), lambda i: i * i % 7),
        parse_map("4:1 + 3"),
        parse_map("(4,2):(1@lane,1@warp)"),
    ):
        with pytest.raises(LayoutError, match="not a CuTe layout"):
            CuteLayout.from_map(map)


def test_a_layout_after_a_swizzle_becomes_a_map():
    inner = ComposedLayout(Swizzle(1, 0, 2), 0, CuteLayout(54, 1))
    layout = ComposedLayout(CuteLayout((6, 9), (9, 1)), 0, inner)
    map = layout.to_map(linear=True)
    assert [map(i) for i in range(54)] == list(layout.values())
    assert sorted(layout.values()) == list(range(54))


def test_extension_keeps_every_value():
    layout = parse_cute_layout("((4,2),3):((1,4),16)")
    longer = layout.extended(30)
    assert str(longer) == "((4,2),4):((1,4),16)"
    assert [longer(i) for i in range(24)] == list(layout.values())
    assert layout.extended(5) is layout
    with pytest.raises(LayoutError, match="empty"):
        parse_cute_layout("(3,0):(1,3)").extended(1)
