"""A program on several threadgroups of a CUDA cluster: candidates, refusals and emitted text."""

import re

import pytest
import tvm

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import MappingError, OptionError
from tvm_tilex.plan import (
    AnalyticCost,
    PlanRefusal,
    ProgramFacts,
    Request,
    Stripe,
    TargetFacts,
    plan_groups,
)
from tvm_tilex.plan.resources import MapShape, shared_bytes

HOPPER = TargetFacts(1024, 49152, lane_elements=(1, 2, 4), cluster_blocks=8, reuses_stripes=True)
WIDE = ProgramFacts(
    512, (131072,) * 2, ("maximum", "add"), (131072,) * 2, (131072,), vector_width=4
)


def compiled(name="softmax", shape=(512, 131072), target="cuda", **options):
    entry = kernels.catalog()[name]
    chosen = tx.CompileOptions(**options)
    return tx.compile(entry.kernel, *entry.specs(*shape), target=target, options=chosen)


def test_the_automatic_family_adds_clusters_without_packing():
    plan = plan_groups(WIDE, HOPPER, Request(), AnalyticCost())
    clusters = {c.shape for c in plan.candidates if c.blocks_per_program > 1}
    assert {c.blocks for c in clusters} == {2, 4, 8}
    assert {c.programs_per_group for c in clusters} == {1}
    assert {c.subgroups for c in clusters} == {4, 8, 16, 32}


def test_a_target_without_clusters_has_none():
    apple = TargetFacts(1024, 32768)
    narrow = ProgramFacts(512, (4096,), ("add",), (1,), ())
    plan = plan_groups(narrow, apple, Request(), AnalyticCost())
    assert {c.blocks_per_program for c in plan.candidates} == {1}
    with pytest.raises(PlanRefusal, match="8 threadgroups a program exceed the target's 1"):
        plan_groups(narrow, apple, Request(blocks_per_program=8), AnalyticCost())


def test_every_worker_of_the_cluster_counts():
    plan = plan_groups(WIDE, HOPPER, Request(threads=512, blocks_per_program=8), AnalyticCost())
    assert plan.shape[0] == 16 and plan.shape.blocks == 8
    assert plan.workers == 8 * 512 and plan.threads == 512 and plan.blocks == 8 * 512
    assert plan.stripe_scalars == 131072 // (8 * 512)
    partials, mailboxes = 2 * 8 * 16 * 4, 2 * 8
    assert plan.shared_bytes == partials + mailboxes == shared_bytes(WIDE, 16, 1, 8)
    assert shared_bytes(WIDE, 16, 1) == 2 * 16 * 4
    assert plan.barrier_sites == 2 and not plan.independent_subgroups


def test_one_simd_group_a_threadgroup_still_exchanges():
    narrow = ProgramFacts(512, (1024,), ("add",), (1,), ())
    plan = plan_groups(narrow, HOPPER, Request(threads=32, blocks_per_program=2), AnalyticCost())
    assert plan.shape[:2] == (1, 1) and plan.barrier_sites == 1 and plan.shared_bytes == 2 * 4 + 8


def test_packed_programs_cannot_be_split():
    with pytest.raises(PlanRefusal, match="leaves no room for Q=2"):
        request = Request(threads=64, programs_per_group=2, blocks_per_program=2)
        plan_groups(WIDE, HOPPER, request, AnalyticCost())


def test_a_repeated_reduction_cannot_be_split():
    repeated = ProgramFacts(8, (64,), ("add",), (64,), (), unit_enclosing=False)
    with pytest.raises(PlanRefusal, match="partials could race"):
        plan_groups(repeated, HOPPER, Request(threads=32, blocks_per_program=2), AnalyticCost())


def test_only_live_stripes_count_where_the_device_compiler_reuses_them():
    live = ((Stripe(4096),), (Stripe(4096), Stripe(64)))
    facts = ProgramFacts(8, (4096,), ("add",), (4096,), (4096, 4096, 64), live_stripes=live)
    request = Request(threads=32, max_striped_scalars=1000)
    reused = plan_groups(facts, HOPPER, request, AnalyticCost())
    kept = plan_groups(facts, TargetFacts(1024, 49152), request, AnalyticCost())
    assert (reused.stripe_scalars, kept.stripe_scalars) == (128 + 2, 256 + 2)


def test_softmax_needs_one_stripe_at_a_time_on_cuda():
    kept = {"shared_tile_materialization": "preserve", "reduction_stripe_storage": "register"}
    plan = compiled(shape=(64, 4096), threads_per_group=128, **kept).plan
    assert plan.stripes == (32, 32) and plan.stripe_scalars == 32


@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy", "row_sum"])
def test_the_text_exchanges_partials_over_the_cluster(name):
    artifact = compiled(name, threads_per_group=512, reduction_blocks_per_program=8)
    (launch,) = artifact.device.launches
    assert launch.cluster == (8, 1, 1) and launch.grid == (8 * 512, 1, 1)
    assert launch.shared_bytes == artifact.plan.shared_bytes
    kernel = artifact.source[artifact.source.rindex("__global__") :]
    reductions, exchanges = len(artifact.plan.collectives), artifact.plan.barrier_sites
    assert kernel.count("tilex_cluster_send(") == reductions
    # The barrier makes sure that all mailboxes are prepared; then one mailbox an exchange.
    assert kernel.count("tilex_cluster_arrive();") == kernel.count("tilex_cluster_wait();") == 1
    assert kernel.count("tilex_cluster_receive(") == exchanges
    mailboxes = re.findall(
        r"tilex_cluster_prepare\(\(&\(mailbox(\d)_ptr\[0\]\)\), (\d+)\);", kernel
    )
    sent = [str(8 * 16 * 4 * (reductions // exchanges))] * exchanges
    assert [size for _, size in mailboxes] == sent and len(dict(mailboxes)) == exchanges
    last = max(kernel.rindex("tilex_cluster_prepare("), 0)
    order = ("tilex_cluster_arrive", "tilex_cluster_wait", "_send", "_receive")
    assert [last, *map(kernel.index, order)] == sorted([last, *map(kernel.index, order)])
    assert "__syncthreads" not in kernel
    assert kernel.index("tilex_cluster_arrive") < kernel.index("blockIdx")
    # 128 partials: each lane folds four of them before the second collective, and reads maxima
    # again to rescale the sums that were exchanged with them.
    reads = len(re.findall(r"partials0_ptr\[\(\(\(int\)threadIdx\.x\) & 31\)\]", kernel))
    assert reads == 1 + reductions - exchanges
    assert all(f"& 31) + {32 * i})" in kernel for i in (1, 2, 3))


def test_the_scheduled_function_of_a_cluster_is_read_back():
    scheduled = compiled(threads_per_group=512, reduction_blocks_per_program=8).scheduled
    text = scheduled.script()
    assert all(f"tilex.cluster_{name}(" in text for name in ("prepare", "send", "receive", "wait"))
    tvm.ir.assert_structural_equal(tvm.script.from_source(text), scheduled)


def test_a_cluster_of_few_partials_masks_the_rest():
    artifact = compiled(shape=(64, 4096), threads_per_group=64, reduction_blocks_per_program=2)
    assert "& 31) < 4" in artifact.source


@pytest.mark.parametrize(
    "target",
    ["metal", {"kind": "cuda", "arch": "sm_80", "max_num_threads": 1024, "thread_warp_size": 32}],
)
def test_a_target_without_clusters_refuses_the_request(target):
    with pytest.raises(MappingError, match="threadgroups a program exceed the target's 1"):
        compiled(target=target, shape=(8, 4096), reduction_blocks_per_program=2)


def test_the_option_is_checked():
    with pytest.raises(OptionError, match="reduction_blocks_per_program=3"):
        tx.CompileOptions(reduction_blocks_per_program=3)


def test_a_shape_says_whether_it_needs_no_exchange():
    assert MapShape(1, 4, 1).independent
    assert not MapShape(1, 1, 1, 2).independent and not MapShape(2, 1, 1).independent
