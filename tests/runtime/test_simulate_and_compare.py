"""``artifact(..., simulate=True)``: the device's outputs beside the simulator's."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import SimulatorError, TargetError
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.runtime.compare import disagreement
from tvm_tilex.runtime.launcher import Launcher


def arguments():
    x = np.random.default_rng(3).standard_normal((3, 100), dtype=np.float32)
    return x, np.full_like(x, np.nan)


def compiled():
    return tx.compile(kernels.softmax, (3, 100), (3, 100), target="metal")


def test_without_an_apple_gpu_a_call_gives_the_counters():
    artifact = compiled()
    if not artifact.simulated:
        pytest.skip("an Apple GPU is here: a plain call launches on it")
    x, out = arguments()
    (counters,) = artifact(x, out)
    assert sum(memory.store_elements for memory in counters.device.values()) == x.size
    again = np.full_like(out, np.nan)
    assert len(artifact(x, again, simulate=True)) == 1
    np.testing.assert_array_equal(out, again)


def pretend_device(monkeypatch, artifact, launch):
    """Make ``launch(*arrays)`` the device of an artifact whose memory is the processor's."""

    def function(*tensors):
        launch(*(np.from_dlpack(tensor) for tensor in tensors))

    monkeypatch.setitem(artifact.__dict__, "simulated", False)
    views = artifact.tile_ir.views
    launcher = Launcher(artifact.name, "metal", views, function, {}, lambda: launcher)
    monkeypatch.setitem(artifact.__dict__, "launcher", launcher)
    monkeypatch.setattr(Artifact, "_expected_device", "llvm")


def softmax_into(x, out):
    shifted = np.exp(x - x.max(1, keepdims=True))
    out[:] = shifted / shifted.sum(1, keepdims=True)


def test_a_device_that_agrees_passes_and_keeps_its_output(monkeypatch):
    artifact = compiled()
    pretend_device(monkeypatch, artifact, softmax_into)
    x, out = arguments()
    assert len(artifact(x, out, simulate=True)) == 1
    np.testing.assert_allclose(out.sum(1), 1, rtol=1e-5)


def test_a_device_that_disagrees_is_named(monkeypatch):
    def wrong(x, out):
        softmax_into(x, out)
        out[2, 7] += 1e-2

    artifact = compiled()
    pretend_device(monkeypatch, artifact, wrong)
    with pytest.raises(SimulatorError, match=r"output 'output': the device gives .* at \[2, 7\]"):
        artifact(*arguments(), simulate=True)


def test_only_metal_can_be_simulated():
    artifact = tx.compile(kernels.softmax, (3, 100), (3, 100))
    with pytest.raises(TargetError, match="only a Metal kernel"):
        artifact(*arguments(), simulate=True)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_must_stand_where_the_simulator_has_them(value):
    device, simulator = np.ones(4, np.float32), np.ones(4, np.float32)
    device[1] = simulator[1] = value
    assert disagreement(device, simulator) is None
    simulator[1] = 1
    assert "[1]" in disagreement(device, simulator)
    assert disagreement(np.arange(3), np.array([0, 1, 3])) is not None
