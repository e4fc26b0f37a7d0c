"""CuTe: widths, domains and units where implementations differ, each with the right value."""

import itertools
from types import SimpleNamespace

import pytest

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import parse_map
from tvm_tilex.layout.bridges import from_cute, recast_cute
from tvm_tilex.layout.cute_layout import ComposedLayout, CuteLayout, Swizzle, parse_cute_layout


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("4:-1", 4),  # pycute: -2
        ("(4,4):(1,-4)", 16),  # pycute: -8
        ("S<3,0,3> o 0 o (6,10):(10,1)", 64),  # CuTe DSL: 60, the greatest index is 63
    ],
)
def test_the_width_of_negative_strides_and_swizzles(text, width):
    """cutlass 1497."""
    layout = parse_cute_layout(text)
    values = list(layout.values())
    assert layout.cosize() == width == max(values) - min(values) + 1


@pytest.mark.parametrize("arguments", [(2, 0, 3), (3, 3, 3), (3, 4, 3), (1, 0, 1), (2, 1, -3)])
def test_swizzles_are_the_published_bijection(arguments):
    bits, base, shift = arguments
    swizzle = Swizzle(*arguments)
    mask = ((1 << bits) - 1) << (base + max(shift, 0))
    for x in range(1024):
        moved = (x & mask) >> shift if shift >= 0 else (x & mask) << -shift
        assert swizzle(x) == x ^ moved
    assert sorted(map(swizzle, range(1024))) == list(range(1024))


@pytest.mark.parametrize("arguments", [(3, 0, 2), (2, 1, 1)])
def test_a_swizzle_with_more_bits_than_shift_is_refused(arguments):
    """CuTe DSL accepts it and evaluates the identity; CuTe C++ refuses."""
    native = SimpleNamespace(
        inner=SimpleNamespace(num_bits=arguments[0], num_base=arguments[1], num_shift=arguments[2]),
        offset=0,
        outer=SimpleNamespace(shape=(8, 8), stride=(8, 1)),
    )
    with pytest.raises(LayoutError, match="shift"):
        from_cute(native)


def test_evaluation_checks_the_domain():
    """CuTe goes on past the size: (4,8):(8,1) at 32 is 8 there."""
    layout = CuteLayout((4, 8), (8, 1))
    assert layout(11) == 26 and layout(2, 3) == 19
    for outside in ((32,), (5, 9), (-1,)):
        with pytest.raises(LayoutError, match="outside"):
            layout(*outside)


def test_indices_are_64_bit():
    """cutlass 3604: an int32 product gives -2147483648 in row 2**29."""
    assert CuteLayout((2**29 + 1, 4), (4, 1))(2**29, 0) == 2147483648
    assert CuteLayout((2**20, 2**20), (2**20, 1))(2**20 - 1, 2**20 - 1) == 1099511627775
    assert parse_map(f"({2**29 + 1},4):(4,1)")(2**29, 0) == 2147483648


def native_objects(layout):
    """The attribute spellings of pycute, the CuTe DSL and TileLang."""
    if isinstance(layout, CuteLayout):
        return [SimpleNamespace(shape=layout.shape, stride=layout.stride)]
    inner = SimpleNamespace(shape=layout.layout.shape, stride=layout.layout.stride)
    bits, base, shift = layout.outer.arguments
    return [
        SimpleNamespace(
            layoutB=SimpleNamespace(bits=bits, base=base, shift=shift),
            offset=layout.offset,
            layoutA=inner,
        ),
        SimpleNamespace(
            inner=SimpleNamespace(num_bits=bits, num_base=base, num_shift=shift),
            offset=layout.offset,
            outer=inner,
        ),
        SimpleNamespace(
            swizzle=SimpleNamespace(b_bits=bits, m_base=base, s_shift=shift),
            offset=layout.offset,
            layout=inner,
        ),
    ]


@pytest.mark.parametrize(
    "text", ["((4,2),8):((1,4),16)", "7:3", "S<3,3,3> o 8 o (8,(4,2)):(64,(1,4))"]
)
def test_real_objects_by_their_attributes(text):
    layout = parse_cute_layout(text)
    for native in native_objects(layout):
        assert from_cute(native) == layout


def test_dynamic_and_foreign_objects_are_refused():
    with pytest.raises(LayoutError, match="not a static integer"):
        from_cute(SimpleNamespace(shape=("n", 4), stride=(4, 1)))
    with pytest.raises(LayoutError, match="has no shape and stride"):
        from_cute(3)


@pytest.mark.parametrize("element_bits", [8, 16, 32, 64, 128])
def test_byte_swizzles_are_the_element_swizzles_on_every_byte(element_bits):
    """The 128-byte swizzle S<3,4,3> over bytes, seen from elements and back."""
    bytes_per = element_bits // 8
    element = parse_cute_layout(f"(8,{128 // bytes_per}):({128 // bytes_per},1)")
    in_bytes = ComposedLayout(Swizzle(3, 4, 3), 0, parse_cute_layout("(8,128):(128,1)"))
    in_elements = recast_cute(in_bytes, 8, element_bits)
    assert in_elements.layout == element
    base = 4 - (bytes_per.bit_length() - 1)
    assert in_elements.outer == Swizzle(3, base, 3)
    for row, column in itertools.product(range(8), range(128 // bytes_per)):
        place = in_elements(row, column)
        for byte in range(bytes_per):
            assert in_bytes(row, column * bytes_per + byte) == place * bytes_per + byte
    assert recast_cute(in_elements, element_bits, 8) == in_bytes


def test_sub_byte_elements():
    in_bytes = parse_cute_layout("S<3,4,3> o 0 o (8,128):(128,1)")
    in_nibbles = recast_cute(in_bytes, 8, 4)
    assert str(in_nibbles) == "S<3,5,3> o 0 o (8,256):(256,1)"
    assert all(in_nibbles(r, 2 * c + h) == 2 * in_bytes(r, c) + h
               for r in range(8) for c in range(0, 128, 7) for h in (0, 1))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "old", "new", "rule"),
    [
        ("S<3,1,3> o 0 o (8,64):(64,1)", 8, 32, "moves parts of a unit"),
        ("S<3,4,3> o 2 o (8,64):(64,1)", 8, 32, "offset 2 cuts a unit"),
        ("(8,6):(6,1)", 8, 32, "does not fill units"),
        ("(8,4):(6,1)", 8, 32, "stride 6 of .* cuts a unit"),
        ("(8,4):(8,2)", 8, 16, "no digit of .* continues a unit"),
        ("(8,4):(8,2)", 16, 8, "no digit of stride 1"),
        ("8:1", 12, 8, "do not divide"),
        ("S<1,0,1> o 0 o 8:1", 24, 8, "not a power of two"),
    ],
)
def test_inexact_recasts_are_refused(text, old, new, rule):
    with pytest.raises(LayoutError, match=rule):
        recast_cute(parse_cute_layout(text), old, new)


def test_a_swizzle_of_no_bits_has_no_unit_to_cut():
    layout = parse_cute_layout("S<0,1,-3> o 24 o (8,2):(1,8)")
    assert str(recast_cute(layout, 8, 64)) == "S<0,0,-3> o 3 o (1,2):(1,1)"


def test_a_swizzle_that_stays_inside_the_units():
    """Its bits never meet the layout: the wider units are checked point by point."""
    layout = parse_cute_layout("S<2,0,4> o 0 o (6,2):(1,6)")
    assert str(recast_cute(layout, 8, 16)) == "S<1,0,4> o 0 o (3,2):(1,3)"
    with pytest.raises(LayoutError, match="moves parts of a unit of 8"):
        recast_cute(parse_cute_layout("S<2,1,4> o 0 o (8,8):(8,1)"), 8, 64)


def test_units_across_digits():
    """Units of four filled by two digits; the rest keeps its hierarchy."""
    assert (
        str(recast_cute(parse_cute_layout("((2,4),3):((1,2),8)"), 8, 32)) == "((1,2),3):((0,1),2)"
    )
    assert str(recast_cute(parse_cute_layout("(8,8):(8,1)"), 8, 16)) == "(8,4):(4,1)"
    assert str(recast_cute(parse_cute_layout("(8,8):(8,1)"), 16, 8)) == "(8,16):(16,1)"
