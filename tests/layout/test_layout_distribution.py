"""Distributions: the owner-preserving law, replicas, exchange; and the access of each use."""

from __future__ import annotations

import pytest

from tvm_tilex.analysis.coverage import distributions
from tvm_tilex.errors import LayoutError, ProofError
from tvm_tilex.layout import (
    BitLinear,
    IndexExpr,
    IndexSet,
    MixedRadix,
    Product,
    equal_maps,
    index_map,
    lt,
    parse_map,
)
from tvm_tilex.layout.atoms import MMA_M16N8K16_F16_F32, SIMDGROUP_8X8_F32
from tvm_tilex.layout.views import (
    Access,
    BoundsPolicy,
    Buffer,
    Distribution,
    TensorView,
    exchange,
    local_exchange,
)
from tvm_tilex.layout.witness import prefix_pair

SHAPES = [(1, 32, 1), (77, 32, 1), (1000, 96, 4), (4096, 128, 4), (50257, 1024, 8), (31, 32, 8)]


@pytest.mark.parametrize(("count", "workers", "elements"), SHAPES)
def test_the_execution_map_is_owner_preserving(count, workers, elements):
    """What the mapper emits, without enumeration: one owner, the worker itself."""
    parts = list(distributions(count, workers, elements))
    assert 1 <= len(parts) <= 2
    for part in parts:
        assert part.participants == part.owner_axes == ("w",) and part.logical_axes == ("e",)
        assert part.owner_preserving(0).proven
        assert part.held_once(0).proven and part.covers(0).proven
    last = parts[-1].holders(count - 1, budget=0)
    ((_, w, v),) = last.value
    pack = workers * elements
    assert (w, v) == ((count - 1) // elements % workers, (count - 1) % elements), pack


def test_the_law_is_refuted_with_a_witness():
    domain = IndexSet.box(w=4, slot=8)
    owned = IndexSet.box(w=4, e=32)
    moved = index_map(domain, owned, lambda w, slot: ((w + slot) % 4, w * 8 + slot))
    verdict = Distribution(moved, ("w",), 1).owner_preserving(0)
    assert verdict.disproven
    ((w, slot),), ((held,), (mine,)) = verdict.witness.points, verdict.witness.values
    assert mine == w and held == moved(w, slot)[0] != w
    assert f"names the owner ({held},)" in verdict.reason


def test_the_law_is_unknown_where_nothing_decides():
    domain = IndexSet.box(w=3, slot=5)
    # (w * w * w + 2 * w) % 3 is 0, so the owner is w, which no rule here knows.
    hidden = index_map(
        domain,
        IndexSet.box(w=3, e=15),
        lambda w, slot: (w + (w * w * w + 2 * w) % 3, w * 5 + slot),
    )
    held = Distribution(hidden, ("w",), 1)
    assert held.owner_preserving(0).unknown
    assert held.owner_preserving().proven  # 15 points


def test_a_coarser_owner():
    """Participants are (group, lane); the owner of an element is the group."""
    domain = IndexSet.box(group=4, lane=32, slot=2)
    elements = index_map(
        domain, IndexSet.box(row=4, column=64), lambda group, lane, slot: (group, slot * 32 + lane)
    )
    held = Distribution.owned(elements, ("group", "lane"), owners=("group",))
    assert held.owner_axes == ("group",) and held.slots == ("slot",)
    assert held.owner_preserving(0).proven and held.held_once(0).proven and held.covers(0).proven


def test_replicas_are_visible():
    broadcast = Distribution.owned(
        index_map(IndexSet.box(w=4, slot=2), IndexSet.box(e=2), lambda w, slot: slot), ("w",)
    )
    assert broadcast.held_once(0).disproven and broadcast.covers(0).proven
    assert broadcast.holders(1).value == ((0, 1), (1, 1), (2, 1), (3, 1))
    assert broadcast.holders(1, budget=7).verdict.unknown
    with pytest.raises(LayoutError, match="an element has the coordinates"):
        broadcast.holders(1, 2)


@pytest.mark.parametrize("extent", range(2, 66))
def test_every_difference_of_a_ragged_prefix_is_a_pair_of_members(extent):
    bits = (extent - 1).bit_length()
    for delta in range(1 << bits):
        a, b = prefix_pair(delta, extent)
        assert 0 <= a < extent and 0 <= b < extent and a ^ b == delta


@pytest.mark.parametrize("workers", [2, 3, 5, 17, 31, 33])
def test_rank_decides_bit_linear_distributions_of_ragged_participants(workers):
    bits = (workers - 1).bit_length()
    domain = IndexSet.box(w=workers, slot=4)
    space = IndexSet.box(e=1 << (bits + 2))
    plain = [(1 << (k + 2),) for k in range(bits)]
    full = BitLinear(domain, space, (tuple(plain), ((1,), (2,))))
    plainly = Distribution.owned(full, ("w",))
    assert plainly.held_once(0).proven and plainly.owner_preserving(0).proven
    for k in range(bits):  # bit k of w does what slot bit 0 does
        folded = [*plain[:k], (1,), *plain[k + 1 :]]
        twice = Distribution.owned(BitLinear(domain, space, (tuple(folded), ((1,), (2,)))), ("w",))
        verdict = twice.held_once(0)
        assert verdict.disproven
        a, b = verdict.witness.points
        assert a != b and max(a[0], b[0]) < workers
        assert twice.elements(*a) == twice.elements(*b)


# -- exchange ----------------------------------------------------------------------------------


def held(name, workers, slots, function, **space):
    """The distribution in which ``name`` holds ``function(name, slot)``."""
    box = IndexSet.box({name: workers, "slot": slots})
    return Distribution.owned(index_map(box, IndexSet.box(space), function), (name,))


def blocked(order):
    domain, space = IndexSet.box(w=32, slot=4), IndexSet.box(e=128)
    step = (4, 1) if order == "blocked" else (1, 32)
    return Distribution.owned(MixedRadix((32, 4), step, 0, domain, space), ("w",))


def test_equal_owners_need_no_repartition():
    striped = blocked("striped")
    assert local_exchange(striped, striped, 0).proven
    reversed_slots = Distribution.owned(
        index_map(
            IndexSet.box(w=32, slot=4), IndexSet.box(e=128), lambda w, slot: (3 - slot) * 32 + w
        ),
        ("w",),
    )
    assert local_exchange(striped, reversed_slots, 0).proven
    renamed = exchange(striped, reversed_slots, 0).value
    assert [renamed(5, slot) for slot in range(4)] == [(5, 3), (5, 2), (5, 1), (5, 0)]


def test_other_owners_need_one_and_the_witness_says_which_element():
    striped, runs = blocked("striped"), blocked("blocked")
    verdict = local_exchange(striped, runs, 0)
    assert verdict.disproven
    ((w, slot),) = verdict.witness.points
    element = runs.elements(w, slot)
    assert (
        element % 32 != w and verdict.reason == f"{element} moves from ({element % 32},) to ({w},)"
    )
    moved = exchange(striped, runs, 0).value
    for point in runs.map.domain.points():
        assert striped.elements(*moved(*point)) == runs.elements(*point)


def test_an_accumulator_is_the_next_product_s_operand():
    """Two C tiles of m16n8k16 side by side are its A operand, slot for slot."""
    operands = MMA_M16N8K16_F16_F32.operands
    box = IndexSet.box(lane=32, slot=8)
    c = operands["C"].map
    lane, slot = box.coordinates
    rows, columns = (
        (slot // 2 % 2) * 8 + lane // 4,
        (slot // 4) * 8 + lane % 4 * 2 + slot % 2,
    )
    two = IndexExpr(box, IndexSet.box(m=16, k=16), (rows, columns))
    for tile in range(2):  # it is C twice
        for point in c.domain.points():
            row, column = c(*point)
            assert two(point[0], point[1] + 4 * tile) == (row, column + 8 * tile)
    producer = Distribution.owned(two, ("lane",))
    consumer = Distribution.owned(operands["A"].map, ("lane",))
    assert local_exchange(producer, consumer, 0).proven
    assert equal_maps(
        exchange(producer, consumer, 0).value, parse_map(f"identity({box})"), 0
    ).proven


def test_an_accumulator_is_not_the_other_operand():
    operands = SIMDGROUP_8X8_F32.operands
    box, space = operands["C"].map.domain, IndexSet.box(r=8, c=8)

    def renamed(name, swap=False):
        i, j = operands[name].map.outputs
        values = (j, i) if swap else (i, j)
        return Distribution.owned(IndexExpr(box, space, values), ("lane",))

    assert local_exchange(renamed("C"), renamed("B"), 0).proven
    assert local_exchange(renamed("C"), renamed("B", swap=True), 0).disproven  # a transposition


def test_replicated_producers_are_decided_by_enumeration():
    everyone = Distribution.owned(
        index_map(IndexSet.box(w=4, slot=8), IndexSet.box(e=8), lambda w, slot: slot), ("w",)
    )
    some = Distribution.owned(
        index_map(IndexSet.box(w=4, slot=2), IndexSet.box(e=8), lambda w, slot: w * 2 + slot),
        ("w",),
    )
    assert local_exchange(everyone, some).proven  # everyone holds everything
    back = local_exchange(some, everyone)
    assert back.disproven
    assert local_exchange(everyone, some, 8).unknown
    halves = Distribution.owned(
        index_map(IndexSet.box(w=4, slot=4), IndexSet.box(e=8), lambda w, slot: w % 2 * 4 + slot),
        ("w",),
    )
    verdict = local_exchange(halves, some)
    assert verdict.disproven and "is held by (0,), (2,), and read by" in verdict.reason


def test_different_values_and_participants():
    other = Distribution.owned(
        index_map(IndexSet.box(w=32, slot=4), IndexSet.box(f=128), lambda w, slot: w * 4 + slot),
        ("w",),
    )
    with pytest.raises(LayoutError, match="distributions are of different values"):
        local_exchange(blocked("striped"), other)
    threads = Distribution.owned(
        index_map(IndexSet.box(t=32, slot=4), IndexSet.box(e=128), lambda t, slot: t * 4 + slot),
        ("t",),
    )
    assert local_exchange(blocked("striped"), threads).unknown


def test_contradictions_are_refused():
    elements = parse_map("(4,8):(8,1)")
    with pytest.raises(LayoutError, match="'w' is not one of"):
        Distribution.owned(elements, ("w",))
    with pytest.raises(LayoutError, match="'w' is not one of"):
        Distribution(elements, ("w",), 0)
    with pytest.raises(LayoutError, match="owner axes of the codomain"):
        Distribution(elements, ("i0",), 1)
    named = index_map(IndexSet.box(w=4, s=8), IndexSet.box(s=8, e=4), lambda w, s: (s, w))
    with pytest.raises(LayoutError, match="'s' is no participant's"):
        Distribution(named, ("w",), 1)
    clash = index_map(IndexSet.box(e=4, s=8), IndexSet.box(e=32), lambda e, s: e * 8 + s)
    with pytest.raises(LayoutError, match="names a participant and an element"):
        Distribution.owned(clash, ("e",))
    many = Product((elements, elements))
    assert Distribution.owned(many, ("i0_0", "i0_1")).owner_preserving(0).proven


# -- access ------------------------------------------------------------------------------------


def rows_of(columns, bounds=BoundsPolicy.zero):
    buffer = Buffer.linear("x", "float32", 3 * columns)
    return TensorView.dense(buffer, bounds, rows=3, columns=columns)


def striped_use(columns, workers=32, elements=4):
    """Every worker of a program accesses V consecutive elements of each chunk."""
    view, chunks = rows_of(columns), -(-columns // (workers * elements))
    events = IndexSet.box(p=3, w=workers, chunk=chunks, v=elements)
    where = index_map(
        events, IndexSet.box(rows=3, columns=chunks * workers * elements),
        lambda p, w, chunk, v: (p, (chunk * workers + w) * elements + v),
    )  # fmt: skip
    return Access(view, where, ("p", "w", "chunk"))


def test_an_access_is_proved_before_it_is_emitted():
    use = striped_use(1024)
    assert use.local == ("v",) and use.use.validity == ()
    assert use.emission(0).facts and use.exclusive(0).proven
    assert use.vector(0).value == 4
    assert use.use.buffer is use.view.buffer


def test_a_ragged_row_carries_its_guard():
    use = striped_use(1000)
    assert len(use.use.validity) == 1 and use.use.always_valid(0).disproven
    assert use.emission(0) and use.exclusive(0).proven
    # A pack of V is inside as a whole, and aligned, where V divides the row.
    assert [striped_use(n).vector().value for n in (1000, 1002, 1001)] == [4, 2, 1]


def test_two_uses_of_one_view_have_two_accesses():
    view = rows_of(64)
    write = Access(view, parse_map("identity({rows: 3, columns: 64})"), ("rows",))
    read = Access(
        view,
        index_map(IndexSet.box(p=3, w=32, s=3), view.domain, lambda p, w, s: (p, w + s)),
        ("p", "w"),
    )
    assert write.exclusive(0).proven and read.exclusive(0).disproven  # neighbours overlap
    assert read.use.buffer is write.use.buffer


def test_events_are_participants():
    use = striped_use(1024)
    frontier = IndexSet.box(p=3, w=32, chunk=8)
    assert use.within(frontier, 0).proven
    assert use.within(IndexSet.box(p=3, w=31, chunk=8), 0).unknown
    few = use.within(IndexSet.box(p=3, w=31, chunk=8))
    assert few.disproven and "'w': 31" in few.reason
    assert use.within(IndexSet.box(p=3, lane=32, chunk=8)).unknown
    halves = frontier.where(lambda p, w, chunk: lt(w, 16))
    assert use.within(halves).disproven


def test_an_access_past_the_buffer_is_not_emitted():
    buffer = Buffer.linear("x", "float32", 10)
    view = TensorView.of(buffer, MixedRadix(16, 1, 0, IndexSet.box(i=16), buffer.space))
    use = Access(view, parse_map("identity({i: 16})"), ("i",))
    with pytest.raises(ProofError, match="bounds is DISPROVEN"):
        use.emission(0)
    assert use.vector(0).value == 1  # nothing is local
    with pytest.raises(LayoutError, match="'z' is not an axis"):
        Access(view, parse_map("identity({i: 16})"), ("z",))
    with pytest.raises(LayoutError, match="2 coordinates for the view's axes"):
        Access(view, parse_map("identity({i: 4, j: 4})"), ("i",))
