"""A Relax module imported from a torch transformer block, with our pass in front of dlight."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

import tvm_tilex as tx
from tvm_tilex.build.target import resolve_target

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark" / "relax_block.py"
METAL = resolve_target("metal")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("relax_block", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def block(script):
    torch.manual_seed(0)
    model, x = script.Block(32, 2).eval(), torch.randn(2, 5, 32)
    with torch.no_grad():
        return script.imported(model, x), x.numpy(), model(x).numpy()


@pytest.fixture(scope="module")
def on_metal(script, block):
    """The block's module with our schedules in front of dlight's."""
    return script.scheduled(block[0], METAL, ours=True)[0]


SCHEDULED = {
    "layer_norm",
    "fused_softmax_broadcast_to2",
    "fused_mean_add3_tir_rsqrt_multiply1_multiply2",
}


def test_the_row_operators_are_scheduled_and_the_rest_is_untouched(block):
    module, _, _ = block
    schedule = tx.transform.ScheduleReductions("unordered_tree", target=METAL)
    after = schedule(module)
    assert {o.function for o in schedule.report if o.reason is None} == SCHEDULED
    for outcome in schedule.report:
        if outcome.reason is not None:
            assert after[outcome.function].same_as(module[outcome.function])
            assert "no reduction" in outcome.reason or "whole row" in outcome.reason
    assert after["main"].same_as(module["main"])
    unpermitted = tx.transform.ScheduleReductions(target=METAL)(module)
    tvm.ir.assert_structural_equal(unpermitted, module)


def test_same_outputs_on_llvm(block):
    module, x, expected = block
    target = resolve_target("llvm")
    with target:
        schedule = tx.transform.ScheduleReductions("unordered_tree")
        scheduled = schedule(module)
    assert {o.function for o in schedule.report if o.reason is None} == SCHEDULED
    executable = tvm.compile(scheduled, target=target, tir_pipeline="tilex")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    (found,) = machine["main"](tvm.runtime.tensor(x))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=2e-6)


def test_a_dynamic_batch_on_llvm(script):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.LayerNorm(24), torch.nn.RMSNorm(24), torch.nn.Softmax(-1))
    module = script.imported(
        model.eval(), torch.randn(2, 5, 24), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    target = resolve_target("llvm")
    with target:
        schedule = tx.transform.ScheduleReductions("unordered_tree")
        executable = tvm.compile(schedule(module), target=target, tir_pipeline="tilex")
    assert sum(outcome.reason is None for outcome in schedule.report) == 3
    machine = relax.VirtualMachine(executable, tvm.cpu())
    for batch in (1, 2, 9):
        x = torch.randn(batch, 5, 24)
        (found,) = machine["main"](tvm.runtime.tensor(x.numpy()))
        np.testing.assert_allclose(found.numpy(), model(x).detach(), rtol=1e-5, atol=2e-6)


def test_same_outputs_in_the_simulator(script, block, on_metal):
    """Every kernel of the block, ours and dlight's, from one build of each function."""
    _, x, expected = block
    (found,) = script.Simulated(on_metal, METAL)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


def test_one_build_holds_both(on_metal):
    """The whole module through Relax's own pipeline and ours: dlight's barriers stay, too."""
    built = tvm.compile(on_metal, target=METAL, tir_pipeline="tilex")
    (library,) = built.mod.imports
    (device,) = library.imports
    texts = str(device.inspect_source()).split("// Function: ")[1:]
    names = {text.split()[0] for text in texts}
    assert {f"{name}_kernel" for name in SCHEDULED} <= names
    ours = [t for t in texts if t.split()[0].removesuffix("_kernel") in SCHEDULED]
    assert all("simd_" in text and "threadgroup_barrier" not in text for text in ours)


def test_fewer_barriers_and_loads_than_dlights_schedules(script):
    torch.manual_seed(0)
    rows, _ = script.compare(script.Block(256, 1).eval(), torch.randn(1, 64, 256), METAL)
    assert len(rows) == 2 * len(SCHEDULED)
    for ours, dlight in zip(rows[::2], rows[1::2], strict=True):
        assert (ours.version, dlight.version) == ("tvm_tilex", "dlight")
        assert ours.function == dlight.function
        assert ours.worst_error < 1e-4 and dlight.worst_error < 1e-4
        assert ours.barriers < dlight.barriers and ours.collectives < dlight.collectives
        assert ours.loads <= dlight.loads and ours.stores == dlight.stores
    assert sum(r.loads for r in rows[::2]) < sum(r.loads for r in rows[1::2])
