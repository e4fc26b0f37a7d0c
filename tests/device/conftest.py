"""Device tests: skipped with a reason where the device is missing, and counted at the end.

``TILEX_REQUIRE_DEVICE=cuda`` makes a missing device an error, so that a run on a GPU machine cannot
pass by skipping everything.
"""

import functools
import importlib
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent
SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmark"
OUTCOMES = pytest.StashKey[dict]()


@functools.cache
def missing_cuda():
    """Why CUDA tests cannot run here, or None."""
    if importlib.util.find_spec("torch") is None:
        return "needs torch"
    import torch

    from tvm_tilex.build import cuda_toolchain
    from tvm_tilex.build.target import system_has

    if not torch.cuda.is_available():
        return f"needs a CUDA GPU (torch {torch.__version__} sees none)"
    if not system_has("cuda"):
        return "needs TVM's CUDA runtime, which sees no GPU"
    if cuda_toolchain.find_nvcc() is None and not cuda_toolchain._has_nvrtc():
        return "needs a CUDA compiler: nvcc or cuda-bindings"
    return None


def pytest_configure(config):
    config.stash[OUTCOMES] = {"passed": 0, "failed": 0, "skipped": 0}


def pytest_collection_modifyitems(config, items):
    for item in items:
        marker = item.get_closest_marker("device")
        if FOLDER not in item.path.parents or marker is None or marker.args != ("cuda",):
            continue
        reason = missing_cuda()
        if reason is None:
            continue
        if os.environ.get("TILEX_REQUIRE_DEVICE") == "cuda":
            raise pytest.UsageError(f"TILEX_REQUIRE_DEVICE=cuda, but this run {reason}")
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    counts = item.config.stash[OUTCOMES]
    if item.get_closest_marker("device") is None or FOLDER not in item.path.parents:
        return
    if report.when == "call" or report.outcome != "passed":
        counts[report.outcome] += 1


def pytest_terminal_summary(terminalreporter, config):
    counts = config.stash[OUTCOMES]
    if not any(counts.values()):
        return
    ran = counts["passed"] + counts["failed"]
    where = missing_cuda() or _device_name()
    terminalreporter.write_line(
        f"device tests: {ran} ran ({counts['passed']} passed, {counts['failed']} failed), "
        f"{counts['skipped']} skipped; {where}"
    )


def _device_name():
    import torch

    return f"{torch.cuda.get_device_name()} x {torch.cuda.device_count()}"


class Gpu:
    """Moves arguments to the GPU and back, and compares outputs with FP64."""

    target = device = "cuda"

    def tensor(self, array):
        """A copy of a NumPy array on the GPU, bfloat16 included."""
        import torch

        if array.dtype.name == "bfloat16":
            bits = torch.from_numpy(array.view(np.int16).copy())
            return bits.view(torch.bfloat16).to(self.device)
        return torch.from_numpy(array.copy()).to(self.device)

    def array(self, tensor):
        """A NumPy copy of a tensor, bfloat16 included."""
        import ml_dtypes
        import torch

        if tensor.dtype is torch.bfloat16:
            return tensor.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.cpu().numpy()

    def arguments(self, entry, rows, columns, dtype="float32", seed=0):
        """The library's random arguments; outputs are poisoned with NaN."""
        return [self.tensor(a) for a in entry.arguments(rows, columns, dtype, seed=seed)]

    def check(self, entry, tensors):
        """Assert that every output is right over all of its elements."""
        for comparison in entry.check([self.array(t) for t in tensors]):
            assert comparison.within, comparison


@pytest.fixture
def gpu():
    """The GPU under test."""
    return Gpu()


@pytest.fixture
def measuring(monkeypatch):
    """The measuring helpers of the GPU benchmarks."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("cuda_measuring")
