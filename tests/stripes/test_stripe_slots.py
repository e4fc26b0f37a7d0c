"""No place of a staged stripe has two owners, and none is outside: enumerated, and proved."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stripe_runs import compiled

from tvm_tilex.analysis import coverage
from tvm_tilex.analysis.coverage import prove_staging, staged_maps
from tvm_tilex.analysis.structure import Domain
from tvm_tilex.errors import ProofError
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.plan.resources import stripe_length, stripe_packs
from tvm_tilex.tirx.compat import Analyzer, structural_walk, tirx
from tvm_tilex.transform import map_subgroups
from tvm_tilex.transform.common import substitute
from tvm_tilex.transform.execution_map import ExecutionMap
from tvm_tilex.transform.stripe_storage import StripeStorage


def plan_of(subgroups, packed, elements, blocks=1, lanes=4):
    """A plan with narrow SIMD groups, so that enumeration stays small."""
    return GroupPlan(
        programs=packed,
        reduction_subgroups_per_program=subgroups,
        programs_per_group=packed,
        lane_elements=elements,
        lanes=lanes,
        threads=lanes * subgroups * packed,
        blocks=blocks,
        blocks_per_program=blocks,
        shared_bytes=0,
        staged_bytes=1,  # that there is something
        stripe_scalars=0,
        stripes=(),
        barrier_sites=0,
        collectives=(),
        independent_subgroups=True,
        score=0.0,
        rounds=0,
        candidates=(),
    )


PROGRAM = tirx.Var("program", "int32")


def tile(name, count):
    """A domain that keeps the program's ``count`` elements of a view."""
    view = tirx.decl_buffer((9, count), "float32", f"{name}_view")
    kept = tirx.decl_buffer((count,), "float32", name, scope="local")
    e = tirx.Var("e", "int32")
    nothing = tirx.Evaluate(tirx.IntImm("int32", 0))
    loop = tirx.For(
        e, tirx.IntImm("int32", 0), tirx.IntImm("int32", count), tirx.ForKind.SERIAL, nothing
    )
    return Domain((loop,), tirx.BufferStore(kept, view[PROGRAM, e], [e]), None)


def places(plan, domains, rank=0):
    """(tile, thread, element, place) of everything that a threadgroup stores, and its length."""
    thread = tirx.Var("thread", "int32")
    local = tirx.floormod(thread, tirx.IntImm("int32", plan.workers))
    if plan.blocks_per_program > 1:
        local = thread + tirx.IntImm("int32", rank * plan.threads)
    execution = ExecutionMap(plan, local, "int32")
    storage = StripeStorage.of(plan, execution, thread, domains, program=PROGRAM, narrow=True)
    log = tirx.decl_buffer((1,), "int32", "log")
    simplify = Analyzer().simplify
    found = []

    def visit(node, values, at):
        def value(expression):
            constants = {v: tirx.IntImm("int32", n) for v, n in values.items()}
            return int(simplify(substitute(expression, constants)).value)

        if isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                visit(part, values, at)
        elif isinstance(node, tirx.For):
            for step in range(int(node.extent.value)):
                visit(node.body, {**values, node.loop_var: step}, at)
        elif isinstance(node, tirx.IfThenElse):
            if value(node.condition):
                visit(node.then_case, values, at)
        else:
            element = value(node.value)
            found.append((at, values[thread], element, value(node.indices[0])))

    for number, domain in enumerate(domains):

        def body(pack, domain=domain):
            stored = storage.write(domain.store.buffer, domain.store.value, pack)
            assert stored.buffer.same_as(storage.staged)
            return pack.within(pack.each(tirx.BufferStore(log, pack.element, list(stored.indices))))

        statement = execution.visit(domain.count, body)
        for lane in range(plan.threads):
            visit(statement, {thread: lane}, number)
    return found, int(storage.staged.ty.shape[0].value)


COUNTS = [(1,), (7, 64), (37, 3, 16)]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize(
    ("subgroups", "packed", "elements"), [(1, 1, 1), (2, 1, 4), (1, 3, 2), (2, 2, 8)]
)
def test_every_element_has_one_place_of_its_own(counts, subgroups, packed, elements):
    plan = plan_of(subgroups, packed, elements)
    domains = [tile(f"tile{i}", count) for i, count in enumerate(counts)]
    found, length = places(plan, domains)
    # Each program of the threadgroup keeps every element of every tile once.
    stored = [(number, thread // plan.workers, element) for number, thread, element, _ in found]
    assert sorted(stored) == sorted(
        (number, program, element)
        for number, count in enumerate(counts)
        for program in range(packed)
        for element in range(count)
    )
    where = [place for *_, place in found]
    assert len(set(where)) == len(where)
    assert min(where) >= 0 and max(where) < length
    packs = sum(stripe_packs(count, plan.workers, elements) for count in counts)
    assert length == packs * plan.threads * elements
    # The V elements of a pack are consecutive and begin at a multiple of V.
    assert all(place % elements == element % elements for *_, element, place in found)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_threadgroup_of_a_cluster_keeps_its_own_part(rank):
    plan = plan_of(2, 1, 2, blocks=2)
    found, length = places(plan, [tile("tile", 37)], rank)
    where = [place for *_, place in found]
    assert len(set(where)) == len(where) and max(where) < length
    held = {element for *_, element, _ in found}
    other = {element for *_, element, _ in places(plan, [tile("tile", 37)], 1 - rank)[0]}
    assert held | other == set(range(37)) and not held & other


@given(
    packs=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    threads=st.integers(1, 9),
    elements=st.sampled_from((1, 2, 4, 8)),
)
@settings(max_examples=40, deadline=None)
def test_the_proved_maps_partition_the_allocation(packs, threads, elements):
    prove_staging(tuple(packs), threads, elements)
    found = []
    for places_of, count in zip(staged_maps(tuple(packs), threads, elements), packs, strict=True):
        grid = itertools.product(range(count), range(threads), range(elements))
        found += [places_of(*at) for at in grid]
    assert sorted(found) == list(range(sum(packs) * threads * elements))


def test_tiles_that_meet_are_not_proved(monkeypatch):
    """The proof is of the map that it is given: V places too few a thread are noticed."""
    index_map = coverage.index_map

    def narrower(domain, codomain, rule):
        return index_map(domain, codomain, lambda c, t, v: rule(c, t, v) - t)

    monkeypatch.setattr(coverage, "index_map", narrower)
    prove_staging.cache_clear()
    with pytest.raises(ProofError):
        prove_staging((2, 1), 64, 4)
    prove_staging.cache_clear()


def test_the_mapper_asks_for_the_proof(monkeypatch):
    asked = []
    monkeypatch.setattr(map_subgroups, "prove_staging", lambda *given: asked.append(given))
    options = {"threads_per_group": 64, "reduction_lane_elements": 4}
    compiled("softmax", 7, 515, "float32", reduction_stripe_storage="shared", **options)
    assert asked == [((3,), 64, 4)]


@pytest.mark.parametrize("columns", [3, 257, 4095, 4096])
@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_the_plan_counts_what_is_allocated(dtype, width, columns):
    options = {"threads_per_group": 128, "reduction_lane_elements": 8}
    artifact = compiled("softmax", 5, columns, dtype, reduction_stripe_storage="shared", **options)
    allocated = []

    def visit(statement):
        if statement.buffer.scope() == "shared.dyn":
            size = int(statement.buffer.ty.shape[0].value)
            allocated.append((size * width, str(statement.buffer.ty.dtype)))

    structural_walk(artifact.scheduled["softmax"].body, (tirx.AllocBuffer, visit))
    assert allocated == [(artifact.plan.staged_bytes, dtype)]
    (launch,) = artifact.device.launches
    assert launch.dynamic_shared_bytes == artifact.plan.staged_bytes
    slots = stripe_length(columns, 128, 8)
    assert artifact.plan.staged_bytes == 128 * width * (slots + -slots % 8)
