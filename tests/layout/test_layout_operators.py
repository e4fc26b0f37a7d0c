"""Operators of the layout algebra: published vectors, and every case known to go wrong elsewhere.

Right values are by enumeration of the definitions. The published vectors are those of CuTe's
"Layout Algebra" page; the others come from public reports and differential runs.
"""

import pytest

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    ComposedLayout,
    CuteLayout,
    IndexSet,
    OperatorError,
    Swizzle,
    blocked_product,
    coalesce,
    complement,
    composition,
    contiguity,
    cosize,
    equal_maps,
    filter,
    filter_zeros,
    flat_divide,
    flat_product,
    index_map,
    left_inverse,
    logical_divide,
    logical_product,
    lt,
    parse_cute_layout,
    parse_map,
    raked_product,
    restrict,
    right_inverse,
    slice_layout,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)
from tvm_tilex.layout.errors import DomainError

L = parse_cute_layout
A2 = L("(9,(4,8)):(59,(13,1))")
TILER = (L("3:3"), L("(2,4):(1,8)"))
BLOCK, GRID = L("(2,5):(5,1)"), L("(3,4):(1,3)")

VECTORS = [
    (coalesce, (L("(2,(1,6)):(1,(6,2))"),), "12:1"),
    (coalesce, (L("(2,(1,6)):(1,(6,2))"), (1, 1)), "(2,6):(1,2)"),
    (composition, (L("(6,2):(8,2)"), L("(4,3):(3,1)")), "((2,2),3):((24,2),8)"),
    (composition, (L("20:2"), L("(5,4):(4,1)")), "(5,4):(8,2)"),
    (composition, (L("(10,2):(16,4)"), L("(5,4):(1,5)")), "(5,(2,2)):(16,(80,4))"),
    (composition, (L("(12,(4,8)):(59,(13,1))"), (L("3:4"), L("8:2"))), "(3,(2,4)):(236,(26,1))"),
    (composition, (L("(12,(4,8)):(59,(13,1))"), (3, 8)), "(3,(4,2)):(59,(13,1))"),
    (composition, (L("(4,8):(8,1)"), L("(8,4)")), "((4,2),4):((8,1),2)"),
    (complement, (L("4:1"), 24), "6:4"),
    (complement, (L("6:4"), 24), "4:1"),
    (complement, (L("(4,6):(1,4)"), 24), "1:0"),
    (complement, (L("4:2"), 24), "(2,3):(1,8)"),
    (complement, (L("4:2"), (4, 6)), "(2,3):(1,8)"),
    (complement, (L("(2,4):(1,6)"), 24), "3:2"),
    (complement, (L("(2,2):(1,6)"), 24), "(3,2):(2,12)"),
    (logical_divide, (L("(4,2,3):(2,1,8)"), L("4:2")), "((2,2),(2,3)):((4,1),(2,8))"),
    (logical_divide, (A2, TILER), "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))"),
    (zipped_divide, (A2, TILER), "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))"),
    (tiled_divide, (A2, TILER), "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"),
    (flat_divide, (A2, TILER), "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))"),
    (zipped_divide, (L("(8,24):(24,1)"), (4, 8)), "((4,8),(2,3)):((24,1),(96,8))"),
    (tiled_divide, (L("24:1"), L("4:2")), "(4,2,3):(2,1,8)"),
    (flat_divide, (L("24:1"), L("(2,2):(2,4)")), "(2,2,2,3):(2,4,1,8)"),
    (zipped_divide, (L("(8,6,5):(1,8,48)"), (4, None)), "((4,6),(2,1,5)):((1,8),(4,0,48))"),
    (logical_product, (L("(2,2):(4,1)"), L("6:1")), "((2,2),(2,3)):((4,1),(2,8))"),
    (logical_product, (L("(2,2):(4,1)"), L("(4,2):(2,1)")), "((2,2),(4,2)):((4,1),(8,2))"),
    (logical_product, (BLOCK, (L("3:5"), L("4:6"))), "((2,3),(5,4)):((5,10),(1,30))"),
    (blocked_product, (BLOCK, GRID), "((2,3),(5,4)):((5,10),(1,30))"),
    (raked_product, (BLOCK, GRID), "((3,2),(4,5)):((10,5),(30,1))"),
    (blocked_product, (L("4:1"), GRID), "((4,3),(1,4)):((1,4),(0,12))"),
    (tiled_product, (BLOCK, GRID), "((2,5),3,4):((5,1),10,30)"),
    (zipped_product, (BLOCK, GRID), "((2,5),(3,4)):((5,1),(10,30))"),
    (flat_product, (BLOCK, GRID), "(2,5,3,4):(5,1,10,30)"),
    (left_inverse, (L("8:2"),), "(2,8):(0,1)"),
    (left_inverse, (L("(2,3,4):(12,1,3)"),), "(12,2):(2,1)"),
    (right_inverse, (L("(4,8):(8,1)"),), "(8,4):(4,1)"),
    (filter, (L("(4,2,3):(0,1,2)"),), "6:1"),
    (filter_zeros, (L("((4,2),3):((0,1),2)"),), "((1,2),3):((0,1),2)"),
]


@pytest.mark.parametrize(
    ("operator", "arguments", "text"), VECTORS, ids=lambda v: getattr(v, "__name__", str(v))
)
def test_published_vectors(operator, arguments, text):
    result = operator(*arguments)
    assert str(result) == text
    assert result.obligations and all(o.verdict.proven for o in result.obligations)


# -- composition -----------------------------------------------------------------------------


def values(layout):
    return list(layout.values())


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        # weak stride divisibility: accepted as (2,3):(6,3) by CuTe C++ and CuTe DSL
        ("(4,6,8):(2,3,5)", "6:3", [0, 6, 7, 8, 9, 15]),
        # returned as 4:1 by pycute
        ("(4,3):(1,10)", "6:1", [0, 1, 2, 3, 10, 11]),
        # returned as (3,2):(5,15) by CuTe DSL and TileLang
        ("(4,5):(5,1)", "(3,2):(1,3)", [0, 5, 10, 15, 1, 6]),
        # returned with 3 points by pycute
        ("(3,2):(2,1)", "(4,1):(1,1)", [0, 2, 4, 1]),
    ],
)
def test_a_composition_without_flat_form_stays_composed(outer, inner, expected):
    result = composition(L(outer), L(inner)).layout
    assert isinstance(result, ComposedLayout)
    assert values(result) == expected and result.size() == len(expected)
    assert result.shape == L(inner).shape
    map = result.to_map(linear=True)
    assert [map(i) for i in range(result.size())] == expected


def test_a_crop_that_does_not_divide_is_flat():
    crop = composition(L("(32,128):(128,1)"), L("(30,128):(1,32)"))
    assert str(crop) == "(30,128):(128,1)"
    # proved by its forms, whatever the size
    large = composition(L("(32,1048576):(1048576,1)"), L("(30,1048576):(1,32)"), budget=0)
    assert str(large) == "(30,1048576):(1048576,1)"


def test_the_last_mode_is_unbounded_only_on_request():
    outer, inner = L("(2,3):(4,1)"), L("(3,4):(3,1)")
    with pytest.raises(OperatorError, match=r"mode 1 of .* ends at 5; unbounded_last_mode"):
        composition(outer, inner)
    result = composition(outer, inner, unbounded_last_mode=True).layout
    assert values(result) == [0, 5, 3, 4, 2, 7, 1, 6, 4, 5, 3, 8]


def test_two_points_are_always_flat():
    assert str(composition(L("(4,3):(1,10)"), L("2:5"))) == "2:11"


def test_composition_refuses_what_has_no_value():
    with pytest.raises(OperatorError, match="past the domain"):
        composition(L("4:1"), L("3:-1"))
    with pytest.raises(OperatorError, match="mode 0 of"):
        composition(L("(4,8):(8,1)"), (5, 2))
    with pytest.raises(OperatorError, match="3 tilers for the 2 modes"):
        composition(L("(4,8):(8,1)"), (1, 1, 1))
    with pytest.raises(OperatorError, match="2 tilers for the 1 modes"):
        composition(L("(4,8):(8,1)"), ((2, 2), 2))


def test_composition_of_swizzles():
    swizzled = composition(Swizzle(3, 0, 3), L("(8,8):(8,1)")).layout
    assert str(swizzled) == "S<3,0,3> o 0 o (8,8):(8,1)"
    row = composition(swizzled, L("8:8")).layout
    assert values(row) == [swizzled(i) for i in range(0, 64, 8)]
    behind = composition(L("(8,8):(8,1)"), swizzled).layout
    assert values(behind) == [L("(8,8):(8,1)")(x) for x in swizzled.values()]


# -- complement ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "target", "reason"),
    [
        # zero extents from pycute and CuTe DSL: (3,0,2):(1,6,8)
        ("(2,2):(4,3)", 16, "no layout fills the holes"),
        ("(4,4):(1,2)", 32, "not injective"),
        # accepted as (-1,0):(1,-4) by CuTe C++
        ("4:-1", 8, "negative stride"),
        ("4:2", 20, "not a multiple of 8; round_up=True covers"),
        ("(3,2):(3,1)", 30, "no layout fills the holes"),
        ("4:1", 0, "empty"),
        ("(4,0):(1,4)", 8, "empty"),
        ("S<1,0,1> o 0 o 4:1", 8, "not a sum of strides"),
    ],
)
def test_a_complement_is_refused_where_there_is_none(layout, target, reason):
    with pytest.raises(OperatorError, match=reason):
        complement(L(layout), target)


def test_a_complement_never_exceeds_the_target():
    assert str(complement(L("4:2"), 8)) == "2:1"  # no mode of extent 1
    assert str(complement(L("4:2"), 24)) == "(2,3):(1,8)"  # not (2,4), which reaches 32


def test_rounding_up_is_an_option():
    up = complement(L("4:2"), 20, round_up=True)
    assert str(up) == "(2,3):(1,8)"
    assert "bijection onto [0, 24)" in str(up.obligations[0])
    with pytest.raises(OperatorError, match="holes"):
        complement(L("(2,2):(4,3)"), 16, round_up=True)


def test_zero_strides_do_not_change_a_complement():
    assert str(complement(L("(4,2):(2,0)"), 24)) == "(2,3):(1,8)"


# -- divides ---------------------------------------------------------------------------------


def test_a_divide_without_complement_is_refused():
    # ((3,2),4):((3,1),9), 24 of the 30 points, from all four implementations
    with pytest.raises(OperatorError, match=r"logical_divide: complement of .* no layout fills"):
        logical_divide(L("(6,5):(1,6)"), L("(3,2):(3,1)"))
    with pytest.raises(OperatorError, match="mode 1: complement of 5:1"):
        zipped_divide(L("(4,8):(1,4)"), (2, 5))
    with pytest.raises(OperatorError, match="repeats an index"):
        logical_divide(L("8:1"), L("(2,2):(1,0)"))
    with pytest.raises(OperatorError, match="negative stride"):
        logical_divide(L("8:1"), L("4:-1"))


def test_a_divide_past_a_mode_keeps_every_value():
    # a dynamic tiler gave 288 points that reach 234 of the 254 values
    source = L("(12,(4,8)):(7,(1,30))")
    result = zipped_divide(source, 128).layout
    assert isinstance(result, ComposedLayout) and result.size() == source.size() == 384
    assert values(result) == values(source) and len(set(values(result))) == 254


def test_a_ragged_divide_is_an_option():
    with pytest.raises(OperatorError, match="round_up"):
        logical_divide(L("10:3"), 4)
    assert str(logical_divide(L("10:3"), 4, round_up=True)) == "(4,3):(3,12)"
    ragged = zipped_divide(L("(10,7):(1,10)"), (4, 4), round_up=True).layout
    assert str(ragged) == "((4,4),(3,2)):((1,10),(4,40))"
    assert set(values(L("(10,7):(1,10)"))) <= set(values(ragged))


def test_a_swizzled_layout_divides_and_multiplies():
    source = L("S<3,0,3> o 0 o (8,8):(8,1)")
    tiles = zipped_divide(source, (4, 4)).layout
    assert str(tiles) == "S<3,0,3> o 0 o ((4,4),(2,2)):((8,1),(32,4))"
    assert tiles((1, 2), (1, 1)) == source(5, 6)
    grown = logical_product(L("S<2,0,2> o 0 o (4,4):(4,1)"), L("(2,2):(1,2)")).layout
    assert sorted(values(grown)) == list(range(64))


# -- products --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "tiler", "expected"),
    [
        ("(2,4):(1,1)", "(5,1):(3,0)", "((2,4),(5,1)):((1,1),(15,0))"),  # SIGFPE in CuTe DSL
        ("(8,8):(1,9)", "(2,2):(2,1)", "((8,8),(2,2)):((1,9),(144,72))"),  # padded rows
        ("(2,2):(4,3)", "3:1", "((2,2),3):((4,3),8)"),
        ("4:-1", "3:1", "(4,3):(-1,4)"),
        # strides that overlap: six copies one apart (pycute) alias at 12 = 8 + 4
        ("(4,2):(12,8)", "6:1", "((4,2),6):((12,8),45)"),
        ("(4,2):(1,0)", "(3,2):(1,0)", "((4,2),(3,2)):((1,0),(4,0))"),
    ],
)
def test_products_of_unusual_blocks(block, tiler, expected):
    assert str(logical_product(L(block), L(tiler))) == expected


def test_an_integer_tiler_of_a_product_is_a_product():
    assert str(logical_product(L("4:1"), 6)) == "(4,6):(1,4)"  # a divide in pycute


def test_products_without_flat_form_and_refusals():
    result = logical_product(L("(4,2):(1,8)"), L("3:3")).layout
    assert isinstance(result, ComposedLayout)
    tiles = [values(result)[k : k + 8] for k in (0, 8, 16)]
    assert [t[0] for t in tiles] == [0, 20, 48] and len(set(values(result))) == 24
    for tiler, reason in ((L("3:-1"), "negative values"), (0, "0 elements"), (L("0:1"), "empty")):
        with pytest.raises(OperatorError, match=reason):
            logical_product(L("4:1"), tiler)
    with pytest.raises(OperatorError, match="DISPROVEN"):
        logical_product(BLOCK, (3, 4))


# -- inverses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(4,8):(10,1)", "(10,4):(4,1)"),  # 8:4 in pycute
        ("(2,2):(4,3)", "(3,3):(-1,2)"),  # (3,2):(4,2) in pycute, refused by CuTe DSL
        ("(1000,2000):(1,1010)", "(1010,2000):(1,1000)"),
    ],
)
def test_left_inverses(text, expected):
    result = left_inverse(L(text), budget=1 << 12)
    assert str(result) == expected
    assert [result.layout(L(text)(i)) for i in range(0, L(text).size(), 997)] == list(
        range(0, L(text).size(), 997)
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(3,2):(1,2)", "not injective"),
        ("(4,2):(1,0)", "not injective"),
        ("4:-1", "negative values"),
        ("(4,0):(1,4)", "empty"),
        ("(6,5,5):(1,32,6)", "no digit system"),
        ("S<1,0,1> o 4 o 4:1", "offset 0"),
    ],
)
def test_left_inverse_refusals(text, reason):
    with pytest.raises(OperatorError, match=reason):
        left_inverse(L(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(4,2):(0,1)", "2:4"),  # 1:0 in pycute
        ("(4,8):(10,1)", "8:4"),
        ("(2,2):(4,3)", "1:0"),
        ("4:-1", "1:0"),
        ("(3,2):(1,2)", "(2,2):(1,3)"),  # a mode taken in part
        ("S<3,0,3> o 0 o (8,8):(8,1)", "(8,8):(8,1) o 0 o S<3,0,3> o 0 o 64:1"),
        ("S<3,0,3> o 0 o (6,10):(10,1)", "8:6"),
    ],
)
def test_right_inverses(text, expected):
    result = right_inverse(L(text)).layout
    assert str(result) == expected
    assert [L(text)(result(i)) for i in range(result.size())] == list(range(result.size()))


# -- width, filter, slice --------------------------------------------------------------------


def test_cosize_is_the_width_of_the_image():
    assert cosize(L("4:-1")) == 4  # -2 in pycute
    assert cosize(L("(4,4):(1,-4)")) == 16  # -8 in pycute
    assert cosize(L("S<3,0,3> o 0 o (6,10):(10,1)")) == 64  # 60 elsewhere
    assert cosize(parse_map("(4,8):(8,1) + 3")) == 32
    assert cosize(parse_map("(4,4):(1,-4)")) == 16
    with pytest.raises(OperatorError, match="codomain axes"):
        cosize(parse_map("(4,2):(1@lane,1@warp)"))


def test_filters_keep_the_image_and_accept_every_sign():
    for text in ("(4,2,3):(0,-1,2)", "(2,3):(0,0)", "(4,2):(-1,-4)", "(3,0):(1,0)"):
        for operator in (filter, filter_zeros):
            assert set(values(operator(L(text)).layout)) == set(values(L(text)))


def test_slices_of_swizzled_and_nested_layouts():
    sliced, offset = slice_layout(L("S<3,4,3> o 0 o (10,2):(2,1)"), (None, 0))
    assert values(sliced) == list(range(0, 20, 2)) and offset == 0  # SIGABRT in CuTe DSL
    source = L("S<2,0,3> o 0 o (4,16):(1,4)")
    sliced, offset = slice_layout(source, (None, 13))
    assert [v + offset for v in values(sliced)] == [source(i, 13) for i in range(4)]
    kept, offset = slice_layout(L("((4,2),8):((1,4),16)"), ((None, 1), 3))
    assert (str(kept), offset) == ("4:1", 52)
    assert slice_layout(L("(4,8):(8,1)"), (1, 2))[1] == 10
    with pytest.raises(DomainError):
        slice_layout(L("(4,8):(8,1)"), (None, 8))
    with pytest.raises(OperatorError, match="does not fit"):
        slice_layout(L("(4,8):(8,1)"), (None, 1, 1))


def test_swizzles_with_too_many_bits_are_refused():
    for parameters in ((3, 0, 2), (2, 1, 1)):  # the identity in CuTe DSL
        with pytest.raises(LayoutError, match="shift"):
            Swizzle(*parameters)
    for parameters in ((2, 0, 3), (3, 3, 3), (3, 4, 3), (1, 0, 1)):
        size = Swizzle(*parameters).block
        assert sorted(map(Swizzle(*parameters), range(size))) == list(range(size))


def test_operators_accept_their_own_results_only_as_layouts():
    first = logical_divide(L("24:1"), 4)
    assert str(logical_divide(first, L("4:1"))) == "(4,6):(1,4)"
    assert str(coalesce(first)) == "24:1"
    with pytest.raises(OperatorError, match="MixedRadix is not a CuTe layout"):
        coalesce(parse_map("4:1"))
    assert isinstance(complement(first, 48).layout, CuteLayout)


def test_maps_compose_and_divide_as_functions_of_their_linear_index():
    box = IndexSet.box(i=8, j=6)
    source = index_map(box, IndexSet.box(x=64), lambda i, j: (i * 6 + j) ^ 3)
    tiles = zipped_divide(source, (4, 3))
    assert all(o.verdict.proven for o in tiles.obligations)
    for i in range(8):
        for j in range(6):
            assert tiles.layout(i % 4 + 4 * (j % 3), i // 4 + 2 * (j // 3)) == source(i, j)
    row = composition(source, L("6:8"))
    assert [row.layout(j) for j in range(6)] == [source(0, j) for j in range(6)]
    moved = composition(parse_map("(4,8):(8,1) + 3"), L("(8,4)"))
    assert str(moved.layout).endswith("((4,2),4):((8,1),2) + 3)")
    again = logical_divide(moved, 4).layout
    assert [again(i, 0) for i in range(4)] == [3, 11, 19, 27]
    with pytest.raises(OperatorError, match="round_up=True covers"):
        zipped_divide(source, (5, 3))
    with pytest.raises(OperatorError, match="no values past its domain"):
        zipped_divide(source, (5, 3), round_up=True)
    with pytest.raises(OperatorError, match="not a static box"):
        logical_divide(restrict(source, lambda i, j: lt(i + j, 5)), 4)


def test_a_swizzled_row_is_no_contiguous_run():
    plain, swizzled = L("(8,8):(1,8)"), L("S<3,0,3> o 0 o (8,8):(1,8)")
    assert contiguity(plain.to_map(linear=True)).value == 64
    assert contiguity(swizzled.to_map(linear=True)).value == 1
    # a base and a count do not describe row 3 of the swizzled layout
    row, offset = slice_layout(swizzled, (None, 3))
    assert values(row) == [3 ^ x | 24 for x in range(8)] and offset == 0


def test_a_modulus_that_does_not_divide_the_width_is_not_simplified_away():
    box = IndexSet.box(i=8, t=128)
    right = index_map(box, IndexSet.box(x=7), lambda i, t: (i * 128 + t) % 64 % 7)
    wrong = index_map(box, IndexSet.box(x=7), lambda i, t: t % 7)
    assert equal_maps(right, wrong).disproven
    assert sum(right(*p) != wrong(*p) for p in box.points()) == 512


def test_operators_of_sizes_past_32_bits():
    row = L("(536870913,4):(4,1)")
    assert str(zipped_divide(row, (1, 4))) == "((1,4),(536870913,1)):((0,1),(4,0))"
    assert str(complement(L("4:1073741824"), 2**40)) == "(1073741824,256):(1,4294967296)"
    assert cosize(row) == 4 * 536870913
    with pytest.raises(LayoutError, match="64-bit"):
        logical_product(L("2:4611686018427387904"), 4)


def test_tilers_of_nested_modes():
    source = L("((4,6),8):((1,4),24)")
    kept = composition(source, ((2, L("3:2")), None))
    assert str(kept) == "((2,3),8):((1,8),24)"
    by_pair = logical_divide(source, ((2, 3), 4)).layout
    assert str(by_pair) == "(((2,2),(3,2)),(4,2)):(((1,2),(4,12)),(24,96))"
    tiles = zipped_divide(source, ((2, 3), 4)).layout
    assert str(tiles) == "(((2,3),4),((2,2),2)):(((1,4),24),((2,12),96))"
    assert sorted(values(tiles)) == sorted(values(source))
    assert str(flat_divide(source, ((2, None),))) == "((2,6),(2,1),8):((1,4),(2,0),24)"
    grown = zipped_product(L("((2,3),4):((1,2),6)"), ((L("2:12"), None), L("2:12")))
    assert str(grown) == "(((2,3),4),((2,1),2)):(((1,2),6),((24,0),48))"
