"""Correspondences: laws as multisets of pairs, copies kept apart, functions only where proved."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    DISPROVEN,
    UNKNOWN,
    Compose,
    Identity,
    IndexSet,
    Project,
    Replica,
    ReplicaKind,
    analyze_finite,
    as_function,
    choose,
    embed,
    eq,
    equal_correspondences,
    from_pairs,
    index_map,
    lt,
    parse_map,
    replicate,
    simplify,
    span,
)
from tvm_tilex.layout.correspondence import Join
from tvm_tilex.layout.errors import CodomainError

B = IndexSet.box
LAWS = settings(max_examples=60, deadline=None)
SETS = {"a": B(a=3), "b": B(b=4), "c": B(c0=2, c1=2), "d": B(d=3)}


def points(space):
    return list(space.points())


@st.composite
def relations(draw, source, target):
    """A multiset of pairs, as drawn and as a correspondence: by tables, or by maps."""
    a, b = SETS[source], SETS[target]
    if draw(st.booleans()):
        pair = st.tuples(st.sampled_from(points(a)), st.sampled_from(points(b)))
        found = draw(st.lists(pair, max_size=8))
        return Counter(found), from_pairs(found, a, b)
    copies = draw(st.integers(1, 3))
    space = B(x=draw(st.integers(1, 4)), y=copies)
    k = [draw(st.integers(0, 5)) for _ in range(6)]
    left = _into(space, a, k[:3], draw(st.booleans()))
    right = _into(space, b, k[3:], draw(st.booleans()))
    relation = span(left, right)
    return Counter((_tuple(left(*p)), _tuple(right(*p))) for p in space.points()), relation


def _into(space, box, k, cut):
    def at(x, y, move):
        total = k[0] + k[1] * x + k[2] * y + move
        return tuple(total % axis.extent for axis in box.axes)

    if not cut:
        return index_map(space, box, lambda x, y: at(x, y, 0))
    return index_map(space, box, lambda x, y: choose(lt(x, 2), at(x, y, 0), at(x, y, 1)))


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


def joined(first, second):
    total = Counter()
    for (a, b), m in first.items():
        for (c, d), n in second.items():
            if b == c:
                total[a, d] += m * n
    return total


def swapped(pairs):
    return Counter({(b, a): n for (a, b), n in pairs.items()})


@LAWS
@given(relations("a", "b"))
def test_converse_twice_is_the_relation(drawn):
    pairs, relation = drawn
    assert relation.pairs() == pairs
    assert relation.converse().pairs() == swapped(pairs)
    assert relation.converse().converse() == relation
    assert equal_correspondences(relation.converse().converse(), relation).proven


@LAWS
@given(relations("a", "b"), relations("b", "c"))
def test_converse_of_a_composition(first, second):
    whole = first[1].then(second[1])
    expected = joined(first[0], second[0])
    assert whole.pairs() == expected
    flipped = second[1].converse().then(first[1].converse())
    assert whole.converse().pairs() == flipped.pairs() == swapped(expected)
    # the legs on the guarded product of the occurrence spaces say the same
    legs = span(whole.left, whole.right)
    assert legs.pairs() == expected
    assert {(e.left, e.right): e.at for e in whole.occurrences()}.keys() == expected.keys()
    assert all(_tuple(whole.left(*e.at)) == e.left for e in whole.occurrences())


@LAWS
@given(relations("a", "b"), relations("b", "c"), relations("c", "d"))
def test_composition_is_associative_with_identities(first, second, third):
    r, s, t = first[1], second[1], third[1]
    expected = joined(joined(first[0], second[0]), third[0])
    assert r.then(s).then(t).pairs() == expected == r.then(s.then(t)).pairs()
    for side in (embed(Identity(r.source)).then(r), r.then(embed(Identity(r.target)))):
        assert side.pairs() == first[0]


@settings(LAWS, max_examples=25)
@given(relations("a", "b"), relations("c", "d"), relations("b", "c"), relations("d", "a"))
def test_product(first, second, third, fourth):
    both = first[1].product(second[1])
    expected = Counter()
    for (a, b), m in first[0].items():
        for (c, d), n in second[0].items():
            expected[a + c, b + d] += m * n
    assert both.pairs() == expected
    assert both.converse().pairs() == first[1].converse().product(second[1].converse()).pairs()
    composed = both.then(third[1].product(fourth[1]))
    separate = first[1].then(third[1]).product(second[1].then(fourth[1]))
    assert composed.pairs() == separate.pairs()


@LAWS
@given(relations("a", "b"), relations("b", "c"))
def test_simplification_keeps_the_multiset(first, second):
    whole = first[1].then(second[1])
    short = simplify(whole)
    assert short.corr.pairs() == whole.pairs()
    assert all(verdict.proven for _, verdict in short.obligations)


@LAWS
@given(relations("a", "b"))
def test_as_function_demands_one_value_for_every_point(drawn):
    pairs, relation = drawn
    images = {p: {b for (a, b) in pairs if a == p} for p in points(SETS["a"])}
    answer = as_function(relation)
    if all(len(found) == 1 for found in images.values()):
        assert answer.verdict.proven
        assert all({_tuple(answer.value(*p))} == found for p, found in images.items())
        return
    assert answer.verdict.kind is DISPROVEN and answer.value is None
    witness = answer.verdict.witness
    if witness.missing is not None:
        assert not images[witness.missing]
    else:
        assert any(set(witness.values) <= found for found in images.values())
        assert witness.values[0] != witness.values[1]


@LAWS
@given(relations("a", "b"), relations("a", "b"))
def test_equality_counts_occurrences(first, second):
    verdict = equal_correspondences(first[1], second[1])
    assert verdict.proven == (first[0] == second[0])
    if verdict.disproven:
        pair = verdict.witness.points
        assert verdict.witness.values == ((first[0][pair],), (second[0][pair],))
    as_sets = equal_correspondences(first[1], second[1], multiset=False)
    assert as_sets.proven == (first[0].keys() == second[0].keys())


# -- functions -------------------------------------------------------------------------------


def test_functions_embed_and_compose():
    f = parse_map("(4,8):(1,1)")
    g = index_map(B(x=11), B(y=6), lambda x: x // 2)
    whole = embed(f).then(embed(g))
    assert isinstance(whole, Join) and whole.pairs() == embed(Compose(g, f)).pairs()
    short = simplify(whole)
    assert short.corr.space.names == ("i0", "i1") and len(short.obligations) == 3
    function = as_function(whole)
    assert function.verdict.proven and all(function.value(*p) == g(f(*p)) for p in points(f.domain))
    assert embed(f).converse().placements(3) == tuple(
        (p, (3,), p) for p in points(f.domain) if sum(p) == 3
    )


def test_a_large_join_is_lazy_and_decided_by_its_legs():
    f = parse_map("(1048576,1048576):(1048576,1)")
    g = index_map(B(x=2**40), B(y=2**39), lambda x: x // 2)
    whole = embed(f).then(embed(g))
    with pytest.raises(LayoutError, match="exceed the budget"):
        whole.pairs()
    composed = embed(Compose(g, f))
    assert equal_correspondences(whole, composed).proven
    assert as_function(whole, 0).verdict.proven
    other = embed(index_map(f.domain, B(y=2**39), lambda i0, i1: i0 * 524288 + (i1 ^ 1) // 2))
    assert equal_correspondences(whole, other).proven  # i1 // 2 forgets the flipped bit
    moved = embed(index_map(f.domain, B(y=2**39), lambda i0, i1: i0 * 524288 + (i1 ^ 2) // 2))
    refuted = equal_correspondences(whole, moved)
    pair = refuted.witness.points
    assert refuted.disproven and refuted.witness.values in (((1,), (0,)), ((0,), (1,)))
    (i0, i1), (y,) = pair
    holds = (y == i0 * 524288 + i1 // 2, y == i0 * 524288 + (i1 ^ 2) // 2)
    assert holds == tuple(count == (1,) for count in refuted.witness.values)
    back = whole.converse().placements(2**38 + 1)
    assert [e.right for e in back] == [(2**19, 2), (2**19, 3)]


def test_large_relations_are_refuted_by_a_fiber():
    f = parse_map("(1048576,1048576):(1048576,1)")
    # 1 MiB of sources share a target, so that only the fibers over sources are small
    halves = [index_map(f.domain, B(y=4), lambda i0, i1, k=k: i0 // 2**k) for k in (18, 19)]
    whole = [embed(half) for half in halves]
    for a, b in (whole, [side.converse() for side in whole]):
        verdict = equal_correspondences(a, b)
        assert verdict.disproven and sorted(verdict.witness.values) == [(0,), (1,)]
    copies = [replicate(f, [Replica("r", n, 0, ReplicaKind.BROADCAST)]) for n in (2, 3)]
    verdict = equal_correspondences(*copies)
    assert verdict.disproven and verdict.witness.values == ((2,), (3,))
    assert equal_correspondences(*copies, multiset=False).kind is UNKNOWN
    # differs at one point that is not probed: nothing is claimed
    odd = index_map(f.domain, f.codomain, lambda i0, i1: i0 * 2**20 + i1)
    one = index_map(
        f.domain,
        f.codomain,
        lambda i0, i1: choose(
            lt(i0, 5), i0 * 2**20 + i1, i0 * 2**20 + i1 - eq(i1, 7) * eq(i0, 2**19 + 3)
        ),
    )
    assert equal_correspondences(embed(odd), embed(one)).kind is UNKNOWN


def test_symbolic_extents_stay_legs():
    from tvm_tilex.layout import parameter

    n = parameter("n", 1, 64)
    f = index_map(B(i=n), B(x=64), lambda i: 63 - i)
    with pytest.raises(LayoutError, match="parameters"):
        embed(f).pairs()
    assert simplify(embed(f)).corr == embed(f)


def test_partial_and_many_valued_relations_are_refused_with_a_witness():
    missing = as_function(embed(parse_map("8:2")).converse())
    assert missing.verdict.witness.missing[0] % 2 == 1
    double = as_function(embed(parse_map("(4,2):(1,1)")).converse())
    assert double.verdict.kind is DISPROVEN and len(double.verdict.witness.points) == 2
    huge = span(
        Project(B(x=2**40, r=4), ("x",)),
        index_map(B(x=2**40, r=4), B(y=2**42), lambda x, r: 4 * x + r),
    )
    refused = as_function(huge, 0).verdict
    assert refused.kind is DISPROVEN
    assert refused.witness.values[0] != refused.witness.values[1]
    # a product of coordinates has no linear form: nothing is claimed beyond what is evaluated
    opaque = span(
        Project(B(x=2**20, r=4), ("x",)),
        index_map(B(x=2**20, r=4), B(y=1 << 41), lambda x, r: x * x + r * 0),
    )
    assert as_function(opaque, 0).verdict.proven
    product = index_map(B(x=2**20, r=2), B(y=2**40), lambda x, r: x * (x ^ r) // 2)
    refuted = as_function(span(Project(product.domain, ("x",)), product), 0).verdict
    assert refuted.kind is DISPROVEN and refuted.witness.points[0][0] == 2**20 - 1


# -- replication -----------------------------------------------------------------------------

PLACES = parse_map("8:4")


def test_every_copy_keeps_its_coordinate():
    placed = replicate(PLACES, [Replica("r", 4, 1, ReplicaKind.BROADCAST)])
    assert placed.replicas == (("r", ReplicaKind.BROADCAST),)
    assert placed.placements(3) == tuple(((3, r), (3,), (12 + r,)) for r in range(4))
    assert placed.target.shape == (32,) and analyze_finite(placed.right).all_proven
    assert as_function(placed).verdict.kind is DISPROVEN
    owner = as_function(placed.converse())
    assert owner.verdict.proven and [owner.value(s) for s in range(32)] == [
        s // 4 for s in range(32)
    ]


def test_copies_in_one_place_stay_distinct():
    placed = replicate(PLACES, [Replica("r", 3, 0, ReplicaKind.MULTICAST)])
    assert set(placed.pairs().values()) == {3}
    assert not equal_correspondences(placed, embed(PLACES)).proven
    assert equal_correspondences(placed, embed(PLACES), multiset=False).proven
    assert simplify(placed).corr.space == placed.space
    # they agree, so the function is there without a choice
    assert as_function(placed).verdict.proven
    # the space of a round trip has both copies: 3 x 3 ways for each element
    assert set(placed.then(placed.converse()).pairs().values()) == {9}


def test_an_owner_is_chosen_only_along_an_ownership_axis():
    placed = replicate(
        PLACES,
        [Replica("r", 2, 1, ReplicaKind.OWNERSHIP), Replica("s", 2, 2, ReplicaKind.BROADCAST)],
    )
    with pytest.raises(LayoutError, match="'s' is broadcast"):
        placed.select(s=0)
    with pytest.raises(LayoutError, match="copy 2 of 'r' is outside"):
        placed.select(r=2)
    with pytest.raises(LayoutError, match="no replica axis"):
        placed.select(i0=1)
    chosen = placed.select(r=1)
    assert chosen.replicas == (("s", ReplicaKind.BROADCAST),)
    assert {e.right for e in chosen.placements(3)} == {(13,), (15,)}
    one = replicate(PLACES, [Replica("r", 2, 1, ReplicaKind.OWNERSHIP)]).select(r=1)
    function = as_function(one)
    assert function.verdict.proven and [function.value(i) for i in range(8)] == [
        4 * i + 1 for i in range(8)
    ]


def test_named_axes_guards_and_branches_are_replicated():
    lanes = parse_map("(4,2):(1@lane,1@warp)")
    placed = replicate(lanes, [Replica("r", 2, {"lane": 4}, ReplicaKind.BROADCAST)])
    assert {e.right for e in placed.placements(3, 1)} == {(3, 1), (7, 1)}
    guarded = B(i=5, j=5).where(lambda i, j: lt(i + j, 4))
    ragged = index_map(guarded, B(x=25), lambda i, j: 5 * i + j)
    assert (
        sum(replicate(ragged, [Replica("r", 2, 25, ReplicaKind.MULTICAST)]).pairs().values()) == 20
    )
    cut = index_map(B(i=6), B(x=6), lambda i: choose(lt(i, 3), i, 8 - i))
    two = replicate(cut, [Replica("r", 2, -6, ReplicaKind.BROADCAST)])
    assert {e.right for e in two.placements(4)} == {(4,), (-2,)}
    with pytest.raises(LayoutError, match="name the target axes"):
        replicate(lanes, [Replica("r", 2, 4, ReplicaKind.BROADCAST)])
    with pytest.raises(LayoutError, match="steps along"):
        replicate(lanes, [Replica("r", 2, {"bank": 4}, ReplicaKind.BROADCAST)])
    with pytest.raises(LayoutError, match="clashes"):
        replicate(PLACES, [Replica("i0", 2, 4, ReplicaKind.BROADCAST)])


def test_replica_axes_survive_products_and_joins():
    placed = replicate(PLACES, [Replica("r", 2, 1, ReplicaKind.BROADCAST)])
    both = placed.product(placed)
    assert [kind for _, kind in both.replicas] == [ReplicaKind.BROADCAST] * 2
    assert {name for name, _ in both.replicas} <= set(both.space.names)
    join = placed.converse().then(placed)
    assert len(join.replicas) == 2 and {n for n, _ in join.replicas} <= set(join.space.names)
    # two pieces of hardware that hold one element: a pair for each pair of copies
    assert join.pairs() == Counter(
        {((4 * i + r,), (4 * i + s,)): 1 for i in range(8) for r in range(2) for s in range(2)}
    )


def test_overlapping_copies_show_in_the_multiset():
    # four lanes with four copies one lane apart: lanes 1 to 5 hold two to four elements
    placed = replicate(parse_map("4:1"), [Replica("r", 4, 1, ReplicaKind.BROADCAST)])
    holders = Counter(right for _, right in placed.pairs())
    assert [holders[(lane,)] for lane in range(7)] == [1, 2, 3, 4, 3, 2, 1]


# -- bad input -------------------------------------------------------------------------------


def test_malformed_correspondences_are_refused():
    with pytest.raises(LayoutError, match="occurrence spaces"):
        span(Identity(B(a=3)), Identity(B(a=4)))
    with pytest.raises(LayoutError, match="replica axes"):
        span(Identity(B(a=3)), Identity(B(a=3)), {"r": ReplicaKind.BROADCAST})
    with pytest.raises(LayoutError, match="middle sets"):
        embed(Identity(B(a=3))).then(embed(Identity(B(a=4))))
    with pytest.raises(LayoutError, match="needs its source"):
        from_pairs([])
    with pytest.raises(LayoutError, match="different ranks"):
        from_pairs([(1, 2), ((1, 2), 3)])
    with pytest.raises(LayoutError, match="outside"):
        from_pairs([(5, 0)], B(a=3), B(b=3))
    with pytest.raises(CodomainError):
        embed(PLACES).placements(8)
    with pytest.raises(LayoutError, match="ranks"):
        equal_correspondences(embed(Identity(B(a=3))), embed(Identity(B(a=3, b=1))))


def test_empty_relations():
    empty = from_pairs([], B(a=3), B(b=3))
    assert not empty.pairs() and not empty.converse().pairs()
    assert not empty.then(embed(Identity(B(b=3)))).pairs()
    assert as_function(empty).verdict.witness.missing == (0,)
    nothing = from_pairs([], B(a=0), B(b=3))
    assert as_function(nothing).verdict.proven


def test_negative_points_and_default_sets():
    relation = from_pairs([(-2, (0, 5)), (1, (3, -1)), (1, (3, -1))])
    assert str(relation.source) == "{a0: -2..4}"
    assert relation.pairs()[(1,), (3, -1)] == 2
    assert [e.at for e in relation.placements(1)] == [(1,), (2,)]


def test_placements_and_distributions_are_correspondences():
    from tvm_tilex.layout.bridges import parse_tvm
    from tvm_tilex.layout.views import Distribution

    placed = parse_tvm("S[(8,):(4@laneid,)]+R[4:1@laneid]+2@warpid").placement
    relation = placed.correspondence(ReplicaKind.BROADCAST)
    assert {e.right for e in relation.placements(3)} == {(12 + r, 2) for r in range(4)}
    elements = index_map(
        B(lane=8, copy=2, slot=2), B(x=16), lambda lane, copy, slot: 2 * lane + slot
    )
    held = Distribution.owned(elements, ("lane", "copy")).placement(ReplicaKind.MULTICAST)
    assert held.replicas == (("copy", ReplicaKind.MULTICAST),)
    assert [e.right for e in held.placements(5)] == [(2, 0, 1), (2, 1, 1)]


def test_a_join_whose_guard_is_unsafe_off_the_space_is_enumerated():
    positive = B(i=5).where(lambda i: lt(0, i))
    f = index_map(positive, B(q=9), lambda i: 8 // i)
    whole = embed(f).then(embed(index_map(B(q=9), B(h=5), lambda q: q // 2)))
    assert whole.pairs() == Counter({((i,), (8 // i // 2,)): 1 for i in range(1, 5)})
    assert simplify(whole).corr is whole
    function = as_function(whole)
    assert function.verdict.proven and [function.value(i) for i in range(1, 5)] == [4, 2, 1, 1]


def test_large_compositions_are_associative_by_proof():
    f = embed(parse_map("(1048576,1048576):(1048576,1)"))
    g = embed(index_map(B(x=2**40), B(y=2**40), lambda x: x ^ 5))
    h = embed(index_map(B(y=2**40), B(z=2**39), lambda y: y // 2))
    assert equal_correspondences(f.then(g).then(h), f.then(g.then(h))).proven
    flipped = h.converse().then(g.converse()).then(f.converse())
    assert equal_correspondences(f.then(g).then(h).converse(), flipped).proven
    cut = B(x=2**40).where(lambda x: lt(x, 12345678901))
    part = span(Identity(cut), index_map(cut, B(y=2**40), lambda x: x ^ 5))
    assert equal_correspondences(part, part.converse().converse()).proven
