"""Where TVM's layouts are wrong or surprise: the right value, and the native objects both ways."""

import itertools
from collections import Counter

import pytest
import tvm
from tvm.tirx.layout import ComposeLayout as NativeCompose
from tvm.tirx.layout import Iter as NativeIter
from tvm.tirx.layout import R, S, laneid, warpid
from tvm.tirx.layout import TileLayout as NativeTile

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    IndexSet,
    LayoutTextError,
    Transform,
    compose,
    image,
    index_map,
    parse_map,
    prove,
)
from tvm_tilex.layout.bridges import ComposeLayout, Iter, TileLayout, parse_tvm
from tvm_tilex.tirx.tile_layout import from_native, to_native, to_tile_layout


def integer(value):
    return int(tvm.sym.Analyzer().simplify(value))


def test_the_offset_survives_where_tvm_fuses_thread_axes():
    native = NativeTile(S[(4, 8, 2) : (1 @ warpid, 1 @ laneid, 1)] + 3 @ laneid + 2 @ warpid)
    layout = from_native(native)
    assert layout.map.codomain.names == ("warpid", "laneid", "m")
    assert layout.map(0, 0, 0) == (2, 3, 0)
    fuse = index_map(
        layout.map.codomain,
        IndexSet.box(tx=1024, m=2),
        lambda warpid, laneid, m: (warpid * 32 + laneid, m),
    )
    assert compose(fuse, layout.map)(0, 0, 0) == (67, 0)


def test_the_width_of_a_swizzled_layout_covers_its_greatest_index():
    native = NativeCompose(0, 3, 3, NativeTile(S[(6, 10) : (10, 1)]))
    layout = from_native(native)
    assert integer(native.span()) == 60  # TVM's own figure: an allocation of it is short
    values = [layout.map(*p) for p in layout.map.domain.points()]
    assert max(values) == 63
    assert layout.map.codomain.box_size == 64
    assert image(layout.map).value is not None


def test_constants_are_int64_both_ways():
    native = NativeTile(S[4 : 2**30])
    assert integer(native.apply(3)["m"]) == -1073741824  # TVM wraps in int32
    layout = from_native(native)
    assert layout.map(3) == 3221225472
    assert integer(to_native(layout).apply(3)["m"]) == 3221225472
    large = parse_tvm("S[(1048576, 1048576):(1048576, 1)]")
    assert large.size == 2**40
    assert integer(to_native(large).size()) == 2**40
    assert large.map(2**20 - 1, 2**20 - 1) == 2**40 - 1


def test_a_tile_steps_by_the_width_of_the_inner_layout_not_by_its_offset():
    """TVM's tile() of an inner layout with an offset of 5 steps by 13 and leaves holes."""
    inner = parse_tvm("S[(2,4):(4,1)] + 5")
    outer = parse_tvm("S[(2,3):(3,1)]")
    native = to_native(inner).tile(to_native(outer), [2, 3], [2, 4])
    assert [integer(it.stride) for it in native.shard] == [39, 4, 13, 1]
    right = parse_tvm("S[(2,2,3,4):(24,4,8,1)] + 5")
    width = 8
    for a, x, b, y in right.map.domain.points():
        assert right.map(a, x, b, y) == outer.map(a, b) * width + inner.map(x, y)
    values = {right.map(*p) for p in right.map.domain.points()}
    assert values == set(range(5, 53))


def test_two_replicas_are_all_of_their_copies():
    assert len(NativeTile(S[4:1] + R[2:8] + R[2:16]).replica) == 1  # TVM keeps the last one
    layout = parse_tvm("S[4:1] + R[2:8] + R[2:16]")
    assert layout.replica == (Iter(2, 8), Iter(2, 16))
    assert layout.placement.copies(1) == Counter({(("m", v),): 1 for v in (1, 9, 17, 25)})
    with pytest.raises(LayoutTextError, match="two S"):
        parse_tvm("S[4:1] + S[2:4]")


def test_copies_that_collide_with_other_elements_are_shown():
    layout = from_native(NativeTile(S[4 : 1 @ laneid] + R[4 : 1 @ laneid]))
    assert prove(layout.map, 0).injectivity.disproven
    held = layout.placement.contents()
    assert [len(held[(("laneid", lane),)]) for lane in range(1, 6)] == [2, 3, 4, 3, 2]
    assert held[(("laneid", 3),)] == ((0,), (1,), (2,), (3,))
    twice = parse_tvm("S[2:2] + R[2:0]").placement
    once = parse_tvm("S[2:2]").placement
    assert twice.same_as(once, multiplicity=False) and not twice.same_as(once)


def test_a_domain_is_checked_where_tvm_goes_on():
    layout = from_native(NativeTile(S[(8, 8) : (8, 1)]))
    whole = layout.map_over([64])
    for outside in (64, -1):
        with pytest.raises(LayoutError, match="outside"):
            whole(outside)
    with pytest.raises(LayoutError, match="not the size 24"):
        parse_tvm("S[(4, 6):(6, 1)]").map_over([4, 5])


def test_slices_stay_inside_and_may_be_empty():
    """TVM accepts [6, 12) of 8, and an empty slice becomes a layout with an extent of 0."""
    whole = parse_tvm("S[8:3]").map_over([8])
    outside = index_map(IndexSet.box(x=6), IndexSet.box(i0=12), lambda x: x + 6)
    with pytest.raises(LayoutError, match="i0"):
        compose(whole, outside)
    nothing = index_map(IndexSet.box(x=0), IndexSet.box(i0=8), lambda x: x + 2)
    empty = compose(whole, nothing)
    assert list(empty.domain.points()) == [] and prove(empty, 0).injectivity.proven


def test_well_formed_is_what_the_proofs_say():
    """TVM's verify_well_formed checks scopes only: holes and collisions pass it."""
    for text, injective in (("S[(2, 2):(1, 1)]", False), ("S[(2, 2):(8, 1)]", True)):
        layout = parse_tvm(text)
        assert to_native(layout).verify_well_formed()
        assert prove(layout.map, 0).injectivity.proven is injective
        assert prove(layout.map, 0).surjectivity.proven is not injective


def test_unit_replicas_and_their_order_do_not_change_a_placement():
    a = parse_tvm("S[4:1] + R[(1, 2):(5, 3)]").placement
    assert a.same_as(parse_tvm("S[4:1] + R[2:3]").placement)
    b = parse_tvm("S[4:1] + R[(2, 3):(12, 4)]").placement
    assert b.same_as(parse_tvm("S[4:1] + R[(3, 2):(4, 12)]").placement)
    assert b.same_as(parse_tvm("S[4:1] + R[6:4]").placement)


def test_a_slice_that_tvm_declines():
    """[3, 6) of S[(2,4):(100,1)] has the values 3, 100, 101."""
    layout = parse_tvm("S[(2,4):(100,1)]")
    window = index_map(IndexSet.box(x=3), IndexSet.box(i0=8), lambda x: x + 3)
    part = compose(layout.map_over([8]), window)
    assert [part(x) for x in range(3)] == [3, 100, 101]


@pytest.mark.parametrize("inner", [True, False])
def test_swizzles_both_ways(inner):
    native = NativeCompose(0, 3, 3, NativeTile(S[(8, 8) : (8, 1)]), inner)
    layout = from_native(native)
    assert layout.swizzle == (3, 0, 3 if inner else -3)
    expected = [3, 10, 17, 24, 39, 46, 53, 60] if inner else None
    values = [layout.map(i, 3) for i in range(8)]
    assert expected is None or values == expected
    assert from_native(to_native(layout)) == layout
    assert from_native(to_tile_layout(layout.map)) == layout
    assert isinstance(layout.map, Transform)
    assert ComposeLayout.from_map(layout.map) == layout


@pytest.mark.parametrize(
    ("native", "rule"),
    [
        (lambda: NativeTile.from_iters([NativeIter(tvm.tirx.Var("n", "int64"), 1, "m")]), "'n'"),
        (lambda: NativeCompose(0, 3, 3, NativeTile(S[64:1] + R[2:64])), "replica"),
        (lambda: NativeCompose(0, 3, 3, NativeTile(S[64 : 1 @ laneid])), "not 'laneid'"),
        (lambda: NativeCompose(0, 3, 3, NativeTile(S[64:-1])), "negative offset"),
        (lambda: tvm.tirx.IntImm("int32", 3), "not a TileLayout"),
    ],
)
def test_what_has_no_meaning_is_refused(native, rule):
    with pytest.raises(LayoutError, match=rule):
        from_native(native())


def test_absent_axes_are_zero_and_names_round_trip():
    a = parse_tvm("S[4:1@laneid]").placement
    b = parse_tvm("S[4:1@laneid] + 0@warpid").placement
    assert a.same_as(b)
    named = from_native(NativeTile.from_iters([NativeIter(4, 2, "custom_axis")]))
    assert named.map.codomain.names == ("custom_axis",)
    assert to_native(named).shard[0].axis.name == "custom_axis"


def test_row_major_digits_are_the_reverse_of_cutes():
    layout = parse_tvm("S[(2,3,4):(100,10,1)]")
    assert [layout.map_over([24])(x) for x in (0, 1, 4, 12)] == [0, 1, 10, 100]
    assert str(layout.map_over([24])).endswith("((4,3,2),):((1@m,10@m,100@m),))")


@pytest.mark.parametrize("shape", [(24,), (6, 4), (2, 12), (4, 6), (3, 8), (1, 24, 1), (8, 3)])
def test_any_shape_of_the_same_size_is_a_view(shape):
    layout = parse_tvm("S[(2,3,4):(24@laneid,4,1)] + R[2:1@warpid] + 7")
    over = layout.placement_over(shape)
    elements = itertools.product(*map(range, shape))
    digits = itertools.product(range(2), range(3), range(4))
    for element, point in zip(elements, digits, strict=True):
        assert over.copies(*element) == layout.placement.copies(*point)


def test_group_is_the_splitting_of_iterators():
    grouped, starts = parse_tvm("S[32:1]").group([4, 8])
    assert str(grouped) == "S[(4, 8):(8, 1)]" and starts == (0, 1, 2)
    with pytest.raises(LayoutError, match="divide"):
        parse_tvm("S[(4, 6):(6, 1)]").group([6, 4])


def test_maps_outside_the_subset_are_not_exported():
    with pytest.raises(LayoutError, match="not in the shard/replica subset"):
        TileLayout.from_map(parse_map("bit_linear({a: 4} -> {b: 4}, [[[3], [2]]], [0])"))
    with pytest.raises(LayoutError, match="is not one of"):
        TileLayout.from_map(parse_map("4:1"), ["i9"])
