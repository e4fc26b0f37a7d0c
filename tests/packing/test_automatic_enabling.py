"""Who declares the candidate family: the target's 32 lanes, an option, or nobody."""

import numpy as np
import pytest
from packing_runs import assert_right, compiled, entry

import tvm_tilex as tx
from tvm_tilex import transform
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import ArgumentError, MappingError
from tvm_tilex.runtime.arguments import Argument, buffer_and_offset, describe, overlapping
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, Target, structural_equal, tvm

register_pipeline()


def softmax(target, rows=3, columns=257, **options):
    found = entry("softmax")
    return tx.compile(
        found.kernel, *found.specs(rows, columns), target=target,
        options=tx.CompileOptions(**options) if options else None,
    )  # fmt: skip


# Capability


def test_without_an_option_the_targets_lanes_decide():
    artifact = softmax("metal")
    assert artifact.plan is not None and artifact.plan.lanes == 32
    assert artifact.proof.reason == "the target asserts 32-lane SIMD groups"
    stated = {"kind": "metal", "thread_warp_size": 32, "max_num_threads": 256}
    narrow = softmax(stated, columns=4096)
    assert narrow.plan is not None and narrow.plan.threads <= 256


def test_a_bare_target_declines_and_says_what_it_lacks():
    artifact = softmax(Target("metal"))
    assert artifact.plan is None and "simd_" not in artifact.source
    assert artifact.fallback == "the target says thread_warp_size 16, not 32"
    arguments = entry("softmax").arguments(3, 257)
    artifact.simulate(*arguments)
    assert_right("softmax", arguments)


@pytest.mark.parametrize(
    "request_",
    [
        {"threads_per_group": 64},
        {"reduction_programs_per_group": 2},
        {"reduction_lane_elements": 4},
    ],
    ids=lambda r: next(iter(r)),
)
def test_an_explicit_request_on_a_bare_target_says_what_to_set(request_):
    with pytest.raises(MappingError, match=r"thread_warp_size 16.*state thread_warp_size=32"):
        softmax(Target("metal"), **request_)


def test_enabling_does_not_assert_the_capability():
    artifact = softmax(Target("metal"), metal_subgroup_reductions=True)
    assert artifact.plan is None
    assert artifact.fallback.startswith("target and binding: the target says thread_warp_size 16")


@pytest.mark.parametrize("limit", [896, 256, 64])
def test_automatic_mode_stays_within_the_thread_limit(limit):
    target = {"kind": "metal", "thread_warp_size": 32, "max_num_threads": limit,
              "max_threads_per_block": limit}  # fmt: skip
    artifact = softmax(target, rows=3, columns=2048)
    assert artifact.plan.threads <= limit
    assert max(c.subgroups for c in artifact.plan.candidates) == limit // 32
    (launch,) = artifact.device.launches
    assert launch.group[0] <= limit
    with pytest.raises(MappingError, match=f"{limit + 32} threads exceed the target's {limit}"):
        softmax(target, columns=2048, threads_per_group=limit + 32)


def test_the_option_off_is_the_reference_path():
    off = softmax("metal", metal_subgroup_reductions=False)
    assert off.plan is None and off.proof is None and off.fallback is None
    assert "simd_" not in off.source


# Passes by hand


def bare(name="softmax") -> IRModule:
    """A reference module without options, as a client of the passes would bring it."""
    found = entry(name)
    mod = tx.lower(found.kernel, *found.specs(3, 257))
    return IRModule({name: mod[name].without_attr(attrs.OPTIONS)})


def passes(*arguments):
    return tvm.transform.Sequential(
        [
            transform.ProveReductions(*arguments),
            transform.PlanGroups(*arguments),
            transform.MapSubgroups(*arguments),
        ]
    )


@pytest.mark.parametrize("target", ["metal", "apple-m1"])
def test_passes_without_options_do_nothing(target):
    mod = bare()
    with resolve_target(target):
        after = passes()(mod)
    assert structural_equal(after["softmax"], mod["softmax"])
    after = passes(resolve_target(target))(mod)
    assert structural_equal(after["softmax"], mod["softmax"])


def test_passes_with_options_realize_what_they_declare():
    options = tx.CompileOptions(metal_subgroup_reductions=True)
    after = passes(resolve_target("metal"), options)(bare())["softmax"]
    assert str(after.attrs[attrs.STAGE]) == "scheduled"


def test_passes_need_noalias_from_the_function():
    function = bare()["softmax"].without_attr("tirx.noalias")
    options = tx.CompileOptions(metal_subgroup_reductions=True)
    after = passes(resolve_target("metal"), options)(IRModule({"softmax": function}))["softmax"]
    assert str(after.attrs[attrs.STAGE]) == "reference"
    with pytest.raises(MappingError, match="'kernel ABI' declines"):
        passes(resolve_target("metal"), tx.CompileOptions(threads_per_group=64))(
            IRModule({"softmax": function})
        )


# Arguments that share memory


def row_of(count: int):
    return np.random.default_rng(1).standard_normal(count, dtype=np.float32)


def test_the_same_array_runs_the_reference_variant():
    artifact = softmax("metal", rows=4, columns=64)
    x = row_of(256).reshape(4, 64)
    pair = [describe("input", x), describe("output", x)]
    variant = artifact.variant(pair)
    assert artifact.plan is not None and variant.plan is None
    assert "simd_" not in variant.source
    wanted = entry("softmax").expected((x.copy(), x))[0]
    artifact(x, x)
    np.testing.assert_allclose(x, wanted, rtol=2e-5)


def test_distinct_arrays_of_one_memory_run_the_map():
    artifact = softmax("metal", rows=4, columns=64)
    memory = row_of(512)
    arrays = memory[:256].reshape(4, 64), memory[256:].reshape(4, 64)
    named = [describe(n, a) for n, a in zip(("input", "output"), arrays, strict=True)]
    assert artifact.variant(named) is artifact
    artifact(*arrays)
    assert_right("softmax", arrays)


@pytest.mark.parametrize("shift", [1, 64, 255])
def test_arrays_that_overlap_in_part_are_refused(shift):
    artifact = softmax("metal", rows=4, columns=64)
    memory = row_of(600)
    before = memory.copy()
    x, out = memory[:256].reshape(4, 64), memory[shift : shift + 256].reshape(4, 64)
    for run in (artifact, artifact.simulate):
        with pytest.raises(ArgumentError, match="overlap in part"):
            run(x, out)
    assert memory.tobytes() == before.tobytes()


def test_two_outputs_in_one_array_are_stored_in_the_sources_order():
    artifact = compiled("minmax", 4, 64)
    x, out = row_of(256).reshape(4, 64), np.zeros(4, np.float32)
    artifact(x, out, out)  # low, then high
    assert out.tolist() == x.max(axis=1).tolist()
    named = [describe(n, a) for n, a in zip(("x", "low", "high"), (x, out, out), strict=True)]
    assert artifact.variant(named).plan is None


def test_a_promise_of_noalias_is_checked():
    artifact = softmax("metal", rows=4, columns=64, noalias=True)
    x = row_of(256).reshape(4, 64)
    before = x.copy()
    with pytest.raises(ArgumentError, match="noalias=True was promised"):
        artifact(x, x)
    assert x.tobytes() == before.tobytes()


def test_an_exact_request_refuses_the_same_array():
    artifact = softmax("metal", rows=4, columns=64, threads_per_group=64)
    x = row_of(256).reshape(4, 64)
    with pytest.raises(ArgumentError, match="SIMD-group map that was requested"):
        artifact(x, x)


def test_noalias_denied_is_the_reference_path():
    artifact = softmax("metal", noalias=False)
    assert artifact.plan is None and artifact.fallback.startswith("kernel ABI")


def metal_argument(memory: int, address: int, count: int = 64) -> Argument:
    return Argument((count,), "float32", (1,), ("metal", 0), address, 4, True, None, memory)


def test_metal_buffers_overlap_by_handle_and_byte_range():
    """Handles are object addresses: two of them may lie closer than the buffers are long."""
    first = metal_argument(0x6000_0100, 0)
    assert not overlapping(first, metal_argument(0x6000_0140, 0))
    assert not overlapping(first, metal_argument(0x6000_0100, 256))  # right behind it
    assert overlapping(first, metal_argument(0x6000_0100, 252))
    assert overlapping(first, metal_argument(0x6000_0100, 0))


def test_handle_and_offset_are_read_from_dlpack():
    import tvm_ffi

    array = np.zeros(64, np.float32)
    tensor = tvm_ffi.from_dlpack(array)
    assert sum(buffer_and_offset(tensor)) == tensor.data_ptr() == array.ctypes.data
