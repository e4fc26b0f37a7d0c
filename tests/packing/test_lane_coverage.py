"""e = (W * chunk + w) * V + v: one owner and one slot for every element, proved and enumerated."""

import dataclasses
import itertools

import pytest
from packing_runs import compiled

from tvm_tilex import layout
from tvm_tilex.analysis.coverage import element_maps, prove_coverage, slot_maps
from tvm_tilex.analysis.peeling import peeled_parts, prove_peeled_coverage
from tvm_tilex.errors import ProofError
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.resources import stripe_length
from tvm_tilex.tirx.compat import Analyzer, tirx
from tvm_tilex.transform.common import substitute
from tvm_tilex.transform.execution_map import ExecutionMap

WIDTHS = (1, 2, 7, 31, 32, 33, 64, 100, 127, 129, 256, 257)


def plan_of(lanes: int, subgroups: int, elements: int) -> GroupPlan:
    """A plan with narrow SIMD groups, so that enumeration stays small."""
    return GroupPlan(
        programs=1,
        reduction_subgroups_per_program=subgroups,
        programs_per_group=1,
        lane_elements=elements,
        lanes=lanes,
        threads=lanes * subgroups,
        blocks=1,
        shared_bytes=0,
        stripe_scalars=0,
        stripes=(),
        barrier_sites=0,
        collectives=(),
        independent_subgroups=True,
        score=0.0,
        rounds=0,
        candidates=(),
    )


def owned_by(
    worker: int, plan: GroupPlan, count: int, unroll: int, head: int = 0
) -> list[tuple[int, int]]:
    """(element, slot) in execution order, from running the emitted statements for one worker."""
    variable = tirx.Var("w", "int32")
    log = tirx.decl_buffer((count + 1,), "int32", "log")
    execution = ExecutionMap(plan, variable, "int32", head=tirx.IntImm("int32", head))
    statement = execution.visit(
        count,
        lambda pack: pack.within(pack.each(tirx.BufferStore(log, pack.slot, [pack.element]))),
        unroll=unroll,
    )
    found: list[tuple[int, int]] = []
    simplify = Analyzer().simplify

    def run(node, values):
        def value(expression):
            constants = {v: tirx.IntImm("int32", n) for v, n in values.items()}
            return int(simplify(substitute(expression, constants)).value)

        if isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                run(part, values)
        elif isinstance(node, tirx.For):
            for step in range(int(node.extent.value)):
                run(node.body, {**values, node.loop_var: step})
        elif isinstance(node, tirx.IfThenElse):
            if value(node.condition):
                run(node.then_case, values)
        else:
            assert isinstance(node, tirx.BufferStore), node
            found.append((value(node.indices[0]), value(node.value)))

    if statement is not None:
        run(statement, {variable: worker})
    return found


@pytest.mark.parametrize("elements", [1, 2, 4, 8])
@pytest.mark.parametrize(("lanes", "subgroups"), [(4, 1), (4, 2), (2, 3)])
def test_the_emitted_statements_visit_each_element_once(lanes, subgroups, elements):
    plan = plan_of(lanes, subgroups, elements)
    for count in (1, 3, 8, 9, 31, 32, 33, 50):
        everything = []
        for worker in range(plan.workers):
            owned = owned_by(worker, plan, count, unroll=1)
            slots = [slot for _, slot in owned]
            assert len(set(slots)) == len(slots)
            assert all(slot < stripe_length(count, plan.workers, elements) for slot in slots)
            for element, slot in owned:  # the inverse of the specification
                assert worker == element // elements % plan.workers
                chunk, lane = element // (plan.workers * elements), element % elements
                assert slot == chunk * elements + lane
            assert owned == sorted(owned)  # a worker keeps the source's order
            everything += [element for element, _ in owned]
        assert sorted(everything) == list(range(count))
        longest = stripe_length(count, plan.workers, elements)
        assert max(len(owned_by(w, plan, count, 1)) for w in range(plan.workers)) == longest


@pytest.mark.parametrize("unroll", [2, 4, 8])
def test_unrolled_chunks_visit_the_same_elements_in_the_same_order(unroll):
    for elements, count in itertools.product((1, 4), (5, 33, 64, 100)):
        plan = plan_of(2, 2, elements)
        for worker in range(plan.workers):
            assert owned_by(worker, plan, count, unroll) == owned_by(worker, plan, count, 1)


@pytest.mark.parametrize("elements", [1, 2, 4, 8])
def test_coverage_is_proved_by_rules_and_agrees_with_enumeration(elements):
    for count, workers in itertools.product(WIDTHS, (32, 96)):
        assert prove_coverage(count, workers, elements).proven
        seen: list[int] = []
        places: set[tuple[int, int]] = set()
        parts = zip(
            element_maps(count, workers, elements),
            slot_maps(count, workers, elements),
            strict=True,
        )
        for owner, storage in parts:
            for point in owner.domain.points():
                element = owner.apply(*point)
                seen.append(element)
                place = tuple(storage.apply(*point))
                assert place[0] == element // elements % workers
                places.add(place)
        assert sorted(seen) == list(range(count)) and len(places) == count
        longest = max(slot for _, slot in places) + 1
        assert longest == stripe_length(count, workers, elements)


def test_rows_beyond_enumeration_are_proved_too():
    for count in (50_257, 131_072, 2**31 - 1):
        assert prove_coverage(count, 1024, 8).proven
        assert prove_peeled_coverage(count, 1024, 8).proven


@pytest.mark.parametrize("elements", [2, 4, 8])
@pytest.mark.parametrize(("lanes", "subgroups"), [(8, 2), (4, 4)])
def test_peeled_rows_are_visited_once_wherever_they_begin(lanes, subgroups, elements):
    """Counts around one pack, one chunk and several; a row too short for a pack is not peeled."""
    plan = dataclasses.replace(plan_of(lanes, subgroups, elements), peeled=True)
    chunk = plan.workers * elements
    wide = (2 * elements, 2 * elements + 1, chunk - 1, chunk + elements, 2 * chunk + 3)
    for count, head in itertools.product((2 * elements - 1, *wide), range(elements)):
        longest = stripe_length(count, plan.workers, elements, peeled=True)
        everything: list[int] = []
        for worker in range(plan.workers):
            owned = owned_by(worker, plan, count, unroll=1, head=head)
            slots = [slot for _, slot in owned]
            assert len(set(slots)) == len(slots)
            assert all(slot < longest for slot in slots)
            everything += [element for element, _ in owned]
        assert sorted(everything) == list(range(count))
        unrolled = [owned_by(w, plan, count, 2, head) for w in range(plan.workers)]
        assert unrolled == [owned_by(w, plan, count, 1, head) for w in range(plan.workers)]


@pytest.mark.parametrize("elements", [2, 4, 8])
def test_peeled_parts_make_the_row_and_begin_aligned(elements):
    for count in (2 * elements, 63, 257, 262):
        heads = []
        for parts in peeled_parts(count, elements):
            heads.append(parts.head)
            points = [p for m in (parts.packs, *parts.beside) for p in m.domain.points()]
            maps = [m for m in (parts.packs, *parts.beside) for _ in m.domain.points()]
            seen = [m.apply(*point) for m, point in zip(maps, points, strict=True)]
            assert sorted(seen) == list(range(count))
            begins = [parts.packs.apply(k, 0) for k in range(count // elements - 1)]
            assert all((begin - parts.head) % elements == 0 for begin in begins)
            last = begins[-1] - parts.head + 2 * elements  # the end of its second block
            assert last <= count
        assert heads == list(range(elements))


def test_too_few_workers_own_no_peeled_row():
    with pytest.raises(ProofError):
        prove_peeled_coverage(4095, 8, 8)
    assert prove_peeled_coverage(15, 8, 8).proven  # not peeled


def test_a_map_that_overlaps_is_refused():
    box = layout.IndexSet((layout.Axis("chunk", 4), layout.Axis("w", 32)))
    wrong = layout.index_map(
        box, layout.IndexSet((layout.Axis("e", 128),)), lambda chunk, w: chunk * 31 + w
    )
    with pytest.raises(ProofError, match="injectivity is DISPROVEN"):
        layout.require_proven(wrong, budget=0)


@pytest.mark.parametrize("columns", [1000, 4096, 4099])
@pytest.mark.parametrize("elements", [1, 2, 4, 8])
def test_plans_state_the_private_bound(columns, elements):
    artifact = compiled(
        "softmax", 2, columns, threads_per_group=96, reduction_lane_elements=elements
    )
    pack = 96 * elements
    bound = columns // pack * elements + min(columns % pack, elements)
    assert artifact.plan.stripes == (bound,)
    assert f"[{bound}];" in artifact.source  # the worker's array in the text
    assert artifact.plan.rounds == 4 * bound  # two reductions, the exponentials, the results
