"""Laws over random layouts: import, map and export keep the meaning; copies are correspondences."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.layout import ReplicaKind, equal_correspondences
from tvm_tilex.layout.bridges import (
    ComposeLayout,
    Iter,
    Placement,
    TileLangFragment,
    TileLayout,
    TritonLayout,
    parse_tilelang,
    parse_triton,
    parse_tvm,
)
from tvm_tilex.layout.bridges.placement import location, tabulate

LAWS = settings(max_examples=60, deadline=None, derandomize=True)
AXES = st.sampled_from(["m", "laneid", "warpid", "custom"])
ITERS = st.builds(Iter, st.integers(1, 5), st.integers(-20, 20), AXES)
OFFSETS = st.dictionaries(AXES, st.integers(-5, 50), max_size=3).map(lambda d: tuple(d.items()))
TILES = st.builds(
    TileLayout,
    st.lists(ITERS, max_size=3).map(tuple),
    st.lists(ITERS, max_size=2).map(tuple),
    OFFSETS,
)


def same_map(a, b):
    return tabulate(a) == tabulate(b) and a.codomain.names == b.codomain.names


@LAWS
@given(TILES)
def test_tvm_layouts(layout):
    replica = layout.placement.replica
    again = TileLayout.from_map(layout.map, replica)
    assert again.shard == layout.shard and again.replica == layout.replica
    assert again.placement.same_as(layout.placement)
    assert parse_tvm(str(layout)) == layout


@LAWS
@given(TILES)
def test_placements_are_correspondences(layout):
    placement = layout.placement
    relation = placement.correspondence(ReplicaKind.BROADCAST)
    assert {name for name, _ in relation.replicas} == set(placement.replica)
    names = relation.target.names
    counted = Counter()
    for (element, where), times in relation.pairs().items():
        counted[element, location(names, where)] += times
    direct = Counter()
    for element in {e for (e, _) in counted}:
        for where, times in placement.copies(*element).items():
            direct[element, where] += times
    assert counted == direct
    assert equal_correspondences(relation.converse().converse(), relation).proven


@LAWS
@given(
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 2),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 20)), min_size=1, max_size=3),
    st.integers(0, 9),
    st.booleans(),
)
def test_tvm_swizzles(bits, base, more, digits, offset, inner):
    tile = TileLayout(tuple(Iter(n, d) for n, d in digits), (), (("m", offset),))
    layout = ComposeLayout(base, bits, bits + more, tile, inner)
    assert parse_tvm(str(layout)) == layout
    if bits:
        again = ComposeLayout.from_map(layout.map)
        assert again.swizzle == layout.swizzle and same_map(again.map, layout.map)


@st.composite
def triton_layouts(draw):
    outs = [(f"d{k}", 1 << draw(st.integers(0, 4))) for k in range(draw(st.integers(1, 3)))]
    vector = st.tuples(*(st.integers(0, n - 1) for _, n in outs))
    names = draw(
        st.lists(st.sampled_from(["register", "lane", "warp", "block", "in"]), unique=True)
    )
    bases = [(n, draw(st.lists(vector, max_size=3))) for n in names]
    return TritonLayout.from_bases(bases, outs)


@LAWS
@given(triton_layouts())
def test_triton_layouts(layout):
    again = TritonLayout.from_map(layout.map)
    assert again == layout and same_map(again.map, layout.map)
    if layout.bases:
        assert parse_triton(str(layout)) == layout


@LAWS
@given(triton_layouts(), st.randoms(use_true_random=False))
def test_conversions_of_reordered_bits(layout, random):
    """B is A with its vectors dealt out again: C exists and B(C(x)) = A(x)."""
    vectors = [v for _, basis in layout.bases for v in basis]
    random.shuffle(vectors)
    other = TritonLayout.from_bases([("a", vectors[:2]), ("b", vectors[2:])], layout.out_dims)
    c = layout.invert_and_compose(other)
    for point, value in tabulate(layout.map):
        middle = c.map.apply(*point)
        row = middle if isinstance(middle, tuple) else (middle,)
        back = other.map.apply(*row)
        assert (back if isinstance(back, tuple) else (back,)) == value


TERMS = st.sampled_from(["i*4", "i//2", "i%3", "j*16", "j%4", "(i^j)", "(j//2)*3", "rep", "rep*8"])


@LAWS
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([1, 2, 4]),
    st.lists(TERMS, min_size=1, max_size=3),
    st.lists(TERMS.filter(lambda t: "rep" not in t), min_size=1, max_size=3),
)
def test_tilelang_fragments(rows, columns, copies, thread, index):
    thread = [t for t in thread if copies > 1 or "rep" not in t] or ["i"]
    text = f"[{rows}, {columns}] * {copies} -> ({' + '.join(thread)}, {' + '.join(index)})"
    layout = parse_tilelang(text)
    assert isinstance(layout, TileLangFragment)
    replica = layout.placement.replica
    again = TileLangFragment.from_map(layout.map, replica[0] if replica else None)
    assert same_map(again.map, layout.map)
    assert parse_tilelang(str(layout)) == layout
    assert Placement(again.map, replica).same_as(layout.placement)
