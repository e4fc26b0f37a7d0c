"""TileLang's traps: replica order, bounds that are not sizes, inverses, partial fragments."""

import pytest

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    BitLinear,
    IndexExpr,
    compose,
    equal_maps,
    flatten,
    image,
    index_map,
    normalize,
    prove,
    try_inverse,
)
from tvm_tilex.layout.bridges import (
    TileLangFragment,
    TileLangLayout,
    cute_of_map,
    parse_tilelang,
)
from tvm_tilex.layout.index_set import IndexSet


def test_the_replica_is_an_axis_and_every_copy_keeps_its_number():
    """TileLang takes the replica last in the callback and first in map_forward_thread."""
    text = "Fragment([8], forward_thread_fn=lambda i, rep: i*4 + rep, replicate=4)"
    fragment = parse_tilelang(text)
    assert fragment.map.domain.names == ("i", "rep")
    assert fragment.map(2, 3) == 11
    assert fragment.placement.replica == ("rep",) and fragment.placement.logical == ("i",)
    threads = [dict(where)["thread"] for where in fragment.placement.copies(3)]
    assert sorted(threads) == [12, 13, 14, 15]


def test_relabelled_copies_are_the_same_placement():
    """TileLang's is_equal says no to rep -> 3 - rep."""
    a = parse_tilelang("[8] * 4 -> (i*4 + rep, 0)")
    b = parse_tilelang("[8] * 4 -> (i*4 + 3 - rep, 0)")
    assert a.placement.same_as(b.placement)
    assert equal_maps(a.map, b.map, 0).disproven
    c = parse_tilelang("[8] * 4 -> (i*4 + rep//2, 0)")
    assert not c.placement.same_as(a.placement)


@pytest.mark.parametrize(
    ("text", "bijective"),
    [
        ("[8] -> (i + 3) % 8", True),
        ("[8] -> 7 - i", True),
        ("[8] -> i*3 % 8", True),
        ("[12] -> i%3*4 + i//3", True),
        ("[8, 8] -> i*8 + (j ^ i)", True),
        ("[6, 10] -> i*12 + j", False),
        ("[4, 4] -> j", False),
        ("[8] -> i // 2", False),
    ],
)
def test_forward_maps_that_tilelang_cannot_invert_are_imported(text, bijective):
    """TileLang's inverse() raises for the padded, broadcast, XOR and i*3%8 forms."""
    map = parse_tilelang(text).map
    facts = prove(map)
    answer = try_inverse(map)
    if not bijective:
        assert facts.injectivity.disproven or facts.surjectivity.disproven
        assert answer.value is None
        return
    assert facts.injectivity.proven and facts.surjectivity.proven
    if answer.value is not None:
        assert all(answer.value(map(*p)) in (p, p[0]) for p in map.domain.points())


@pytest.mark.parametrize(
    ("text", "least", "greatest", "bound"),
    [
        ("[6, 10] -> i*10 + (j ^ (i%2))", 0, 59, 66),
        ("[4] -> -i", -3, 0, 1),
        ("[4] -> i + 10", 10, 13, 14),
        ("[8] -> i*2", 0, 14, 15),
    ],
)
def test_the_image_is_exact_where_tilelang_gives_an_interval(text, least, greatest, bound):
    """``bound`` is what TileLang's output shape or thread size says."""
    map = parse_tilelang(text).map
    values = [map(*p) for p in map.domain.points()]
    assert (min(values), max(values)) == (least, greatest)
    found = image(map).value
    assert found.intervals == ((least, greatest),) and found.size == len(set(values))
    assert prove(map, 0).bounds.proven
    assert len(set(values)) != bound


def test_partial_fragments_are_not_replication():
    with pytest.raises(LayoutError, match="addends, not equal copies"):
        parse_tilelang(
            "PartialFragment([8], forward_thread_fn=lambda i, rep: i*4+rep, replicate=4)"
        )

    class PartialFragment:
        combine = 4

    with pytest.raises(LayoutError, match="addends, not equal copies"):
        TileLangFragment.from_native(PartialFragment())


def test_a_map_outside_the_grammar_stays_an_index_expr_in_its_direction():
    layout = parse_tilelang("[10] -> (i//3)*4 + i%3")
    assert isinstance(layout.map, IndexExpr)
    assert [layout.map(i) for i in range(10)] == [0, 1, 2, 4, 5, 6, 8, 9, 10, 12]
    assert layout.map.domain.names == ("i",) and layout.map.codomain.names == ("index",)
    assert prove(layout.map).injectivity.proven
    with pytest.raises(LayoutError, match="not a CuTe layout"):
        cute_of_map(layout.map)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[8, 16] -> (j//4)*32 + i*4 + j%4", "(8,(4,4)):(4,(1,32))"),
        ("[8, 8] -> i*8 + (j ^ i)", "S<3,0,3> o 0 o (8,8):(8,1)"),
        ("[6, 10] -> i*12 + j", "(6,10):(12,1)"),
        ("[8, 64] -> i*64 + (j ^ (i*8))", "S<3,3,3> o 0 o (8,64):(64,1)"),
    ],
)
def test_the_cute_form_of_a_forward_map(text, expected):
    map = parse_tilelang(text).map
    found = cute_of_map(map)
    assert str(found) == expected
    assert all(found(*p) == map(*p) for p in map.domain.points())


@pytest.mark.parametrize("bank", [32, 64])
def test_tilelangs_own_swizzles_are_linear(bank):
    """TileLang prints a one-bit XOR as ``(a + b) % 2``; no carry reaches that bit."""
    half, quarter, eighth = bank // 2, bank // 4, bank // 8
    text = (
        f"[16, {bank}] -> (i//8, i%8*{bank} + (j//{half} + i%8//4)%2*{half}"
        f" + (j%{half}//{quarter} + i%4//2)%2*{quarter}"
        f" + (j%{quarter}//{eighth} + i%2)%2*{eighth} + j%{eighth})"
    )
    rows = f"[16, {bank}] -> i*{bank} + (j ^ (i%8*{eighth}))"
    layout = TileLangLayout((16, bank), parse_tilelang(text).map.outputs)
    linear = normalize(compose(flatten(layout.map.codomain), layout.map))
    assert isinstance(layout.map, BitLinear) and prove(layout.map, 0).all_proven
    assert equal_maps(linear, parse_tilelang(rows).map, 0).proven
    base = eighth.bit_length() - 1
    assert str(cute_of_map(linear)) == f"S<3,{base},3> o 0 o (16,{bank}):({bank},1)"


def test_a_column_modulo_that_does_not_divide_is_not_the_threads():
    """C[i, j] uses B[j % 7] on 16 x 64 over 128 threads: t % 7 is wrong in 512 of 1024."""
    events = IndexSet.box(i=8, t=128)
    target = IndexSet.box(k=7)
    right = index_map(events, target, lambda i, t: (i * 128 + t) % 64 % 7)
    short = index_map(events, target, lambda i, t: t % 7)
    assert sum(right(*p) != short(*p) for p in events.points()) == 512
    assert equal_maps(right, short).disproven


def test_a_fragment_covers_its_registers_once():
    fragment = parse_tilelang("[16,16] -> (i%8*4+j%8//2, (i//8)*4+(j//8)*2+j%2)")
    facts = prove(fragment.map, 0)
    assert facts.all_proven
    assert fragment.map.codomain.shape == (32, 8)


def test_exports_of_maps():
    map = parse_tilelang("[8] * 4 -> (i*4 + rep, i%2)").map
    again = TileLangFragment.from_map(map, "rep")
    assert all(again.map(*p) == map(*p) for p in map.domain.points())
    layout = TileLangLayout.from_map(parse_tilelang("[6,10] -> i*12 + j").map)
    assert parse_tilelang(str(layout)) == layout
    with pytest.raises(LayoutError, match="static zero-based"):
        TileLangLayout.from_map(
            index_map(IndexSet.box(i=4).where(lambda i: i < 3), IndexSet.box(e=4), lambda i: i)
        )
    with pytest.raises(LayoutError, match="'q' is not one of"):
        TileLangFragment.from_map(map, "q")
