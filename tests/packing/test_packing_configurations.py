"""Cooperating packing: 4 operators x 9 configurations, right, in bounds and as planned.

Thread, worker and program coordinates of the specification's section 4.3; the last column of the
table is what is special about the row.
"""

import pytest
from packing_runs import (
    assert_right,
    barriers_in,
    collectives_in,
    compiled,
    entry,
    launch,
    scratch_bytes_in,
    shape_of,
    syncs,
)

import tvm_tilex as tx
from tvm_tilex.errors import MappingError, OptionError

OPERATORS = ("row_sum", "softmax", "layernorm_no_affine", "minmax")
# S (0: the solver's choice), Q, P, N, V, P mod Q
CONFIGURATIONS = (
    (2, 2, 4, 128, 1, 0),  # whole groups, whole chunks
    (2, 2, 5, 257, 1, 1),  # one replayed slot, ragged rows of five chunks
    (3, 3, 7, 700, 1, 1),  # width 96: no power of two; two replayed slots
    (5, 2, 3, 333, 1, 1),  # width 160
    (4, 8, 9, 260, 1, 1),  # 1024 threads; seven replayed slots
    (16, 2, 2, 1537, 1, 0),  # 1024 threads, two programs of 512 workers
    (3, 4, 6, 771, 4, 2),  # four elements a worker, ragged last pack
    (0, 3, 8, 320, 0, 2),  # the width that the solver finds for this Q
    (2, 5, 3, 100, 2, 3),  # more slots than programs; workers without elements
)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("case", CONFIGURATIONS, ids=lambda c: "S{}Q{}P{}N{}V{}".format(*c))
def test_packed_programs(name, case):
    subgroups, packed, rows, columns, elements, remainder = case
    assert rows % packed == remainder
    artifact = compiled(
        name,
        rows,
        columns,
        threads_per_group=32 * subgroups * packed,
        reduction_programs_per_group=packed,
        reduction_lane_elements=elements,
    )
    plan = artifact.plan
    if subgroups:
        assert shape_of(plan) == (subgroups, packed, max(elements, 1))
    chosen, reductions = plan.reduction_subgroups_per_program, len(plan.collectives)
    assert plan.programs_per_group == packed
    assert plan.threads == 32 * chosen * packed
    assert plan.workers == 32 * chosen and plan.blocks == -(-rows // packed)

    # Storage and synchronization in the plan, in the typed program and in the text.
    cooperating = chosen > 1
    scratch = reductions * packed * chosen * 4 if cooperating else 0
    assert plan.shared_bytes == scratch == scratch_bytes_in(artifact.source)
    barriers = reductions if cooperating else 0
    assert plan.barrier_sites == barriers == barriers_in(artifact.source)
    assert collectives_in(artifact.source) == reductions * (2 if cooperating else 1)
    if cooperating:
        assert syncs(artifact.scheduled[name]) == (barriers, 0)
        assert not plan.independent_subgroups

    arguments, counters = launch(artifact, name, rows, columns)
    assert_right(name, arguments)
    assert counters.barriers == barriers * plan.blocks
    outputs = [entry(name).parameters[position] for position in entry(name).outputs]
    for position, view in zip(entry(name).outputs, outputs, strict=True):
        traffic = counters.device[f"{view}_ptr"]
        assert traffic.store_elements == arguments[position].size  # replays store nothing
        assert traffic.load_elements == 0


def test_there_are_36_configurations():
    assert len(OPERATORS) * len(CONFIGURATIONS) == 36
    assert {32 * s * q for s, q, *_ in CONFIGURATIONS} >= {1024}
    assert {case[-1] for case in CONFIGURATIONS} >= {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["softmax", "layernorm_no_affine"])
def test_stripes_come_from_the_workers_of_a_program(name):
    """W, not T: packing gives a worker neither more private storage nor others' elements."""
    lone = compiled(name, 6, 1000, threads_per_group=96).plan
    packed = compiled(name, 6, 1000, threads_per_group=96 * 4, reduction_programs_per_group=4).plan
    assert packed.stripes == lone.stripes == (-(-1000 // 96),)
    assert packed.rounds == lone.rounds


def test_programs_of_one_group_keep_their_own_partials():
    """Row p holds 10**p: a partial of another row would show in the sum."""
    import numpy as np

    x = np.repeat(np.float32([1, 10, 100, 1000])[:, None], 128, axis=1)
    for threads, packed in ((128, 2), (128, 4)):
        artifact = compiled(
            "row_sum", 4, 128, threads_per_group=threads, reduction_programs_per_group=packed
        )
        out = np.full(4, np.nan, np.float32)
        artifact.simulate(x, out)
        assert out.tolist() == [128.0, 1280.0, 12800.0, 128000.0]


def test_replays_read_and_never_write():
    """P = 5, Q = 2: six slots read a row each, five write."""
    artifact = compiled("row_sum", 5, 256, threads_per_group=128, reduction_programs_per_group=2)
    _, counters = launch(artifact, "row_sum", 5, 256)
    assert counters.device["x_ptr"].load_elements == 6 * 256
    assert counters.device["out_ptr"].store_elements == 5


def test_a_replayed_gather_stays_in_bounds():
    """The guard of a data-dependent address holds for the row that is replayed."""
    artifact = compiled(
        "cross_entropy", 5, 300, threads_per_group=192, reduction_programs_per_group=3
    )
    arguments, _ = launch(artifact, "cross_entropy", 5, 300)
    assert_right("cross_entropy", arguments)


@pytest.mark.parametrize(("threads", "packed"), [(96, 2), (160, 4), (320, 4)])
def test_threads_that_are_not_32_s_q_are_refused(threads, packed):
    with pytest.raises(MappingError, match=f"threads_per_group={threads} is not 32\\*S\\*Q"):
        compiled("softmax", 8, 512, threads_per_group=threads, reduction_programs_per_group=packed)


@pytest.mark.parametrize("options", [{"threads_per_group": 100}, {"threads_per_group": -32}])
def test_threads_that_are_no_simd_groups_are_refused(options):
    with pytest.raises(OptionError, match=r"threads_per_group"):
        tx.CompileOptions(**options)


def test_without_threads_every_fitting_width_of_that_q_is_searched():
    plan = compiled("softmax", 12, 2048, reduction_programs_per_group=5).plan
    legal = [c.subgroups for c in plan.candidates if c.score is not None]
    assert legal == list(range(1, 7))  # 32 * 5 * 6 = 960 threads; 7 would take 1120
    assert all(c.programs_per_group == 5 for c in plan.candidates)
    assert plan.score == min(c.score for c in plan.candidates if c.score is not None)


def test_automatic_mode_never_packs_cooperating_programs():
    for rows, columns in ((17, 257), (64, 4096), (300, 1000)):
        plan = compiled("softmax", rows, columns).plan
        for candidate in plan.candidates:
            assert candidate.subgroups == 1 or candidate.programs_per_group == 1
        assert len(plan.candidates) == 39
