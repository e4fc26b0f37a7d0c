"""The short way of torch tensors to a launch: taken where they fit, else as strict as the long."""

import contextlib

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.errors import ArgumentError, TargetError
from tvm_tilex.runtime import artifact as artifact_module
from tvm_tilex.runtime.launcher import Launcher

torch = pytest.importorskip("torch")
ENTRY = tx.kernels.catalog()["softmax"]
SHAPE = (5, 64)


@pytest.fixture
def artifact():
    """A compiled kernel whose short way is known: torch is loaded and it ran once."""
    compiled = tx.compile(ENTRY.kernel, SHAPE, SHAPE)
    compiled(torch.randn(SHAPE), torch.empty(SHAPE))
    assert compiled.direct is not None
    return compiled


@pytest.fixture
def long_ways(monkeypatch):
    """Names of the arguments that the long way described."""
    described = []
    stock = artifact_module.describe

    def noted(name, array):
        described.append(name)
        return stock(name, array)

    monkeypatch.setattr(artifact_module, "describe", noted)
    monkeypatch.setattr("tvm_tilex.driver.describe", noted)
    return described


def right(x, out):
    torch.testing.assert_close(out, torch.softmax(x.detach().double(), 1).float())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(SHAPE),
        lambda: torch.randn(SHAPE, requires_grad=True),
        lambda: torch.nn.Parameter(torch.randn(SHAPE)),
        lambda: torch.randn(9, 64)[2:7],
    ],
    ids=["plain", "grad", "parameter", "slice"],
)
def test_fitting_tensors_are_not_described(artifact, long_ways, make):
    x, out = make(), torch.full(SHAPE, torch.nan)
    artifact(x, out)
    right(x, out)
    ENTRY.kernel(x, out)
    long_ways.clear()
    out.fill_(torch.nan)
    ENTRY.kernel(x, out)
    right(x, out)
    assert not long_ways


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_an_unaligned_base_takes_the_scalar_variant(artifact, long_ways, offset):
    memory = torch.randn(5 * 64 + offset)
    x, out = memory[offset:].view(SHAPE), torch.full(SHAPE, torch.nan)
    artifact(x, out)
    right(x, out)
    assert not long_ways


def test_numpy_and_a_tensor_subclass_go_the_long_way(artifact, long_ways):
    class Named(torch.Tensor):
        pass

    x, out = torch.randn(SHAPE), torch.empty(SHAPE)
    artifact(x.as_subclass(Named), out)
    right(x, out)
    artifact(x.numpy(), out.numpy())
    right(x, out)
    assert len(long_ways) == 4


def negated(shape):
    """A real tensor with torch's lazy negation: its memory holds the opposite sign."""
    return torch.randn(shape, dtype=torch.complex64).conj().imag


X = torch.randn(6, 64)
REFUSED = {
    "shape": ((X, X[:5].clone()), "'input' has shape"),
    "type": ((X[:5].half(), X[:5].clone()), "'input' is float16"),
    "number": ((X[:5],), "takes 2 arrays"),
    "strides": ((torch.randn(64, 5).T, X[:5].clone()), "strides"),
    "broadcast": ((torch.randn(1, 64).expand(5, 64), X[:5].clone()), "strides"),
    "overlap": ((X[:5], X[1:]), "overlap in part"),
    "device": ((X[:5], torch.empty(SHAPE, device="meta")), "meta"),
    "sparse": ((X[:5].to_sparse(), X[:5].clone()), "dense"),
    "negation": ((negated(SHAPE), X[:5].clone()), "materialized"),
    "list": ((X[:5].tolist(), X[:5].clone()), "list is not an array"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name(artifact, case):
    arrays, text = REFUSED[case]
    before = [a.clone() for a in arrays if isinstance(a, torch.Tensor) and a.device.type == "cpu"]
    with pytest.raises(ArgumentError, match=text) as caught:
        artifact(*arrays)
    assert caught.value.location.file == __file__
    after = [a for a in arrays if isinstance(a, torch.Tensor) and a.device.type == "cpu"]
    for a, b in zip(after, before, strict=True):
        torch.testing.assert_close(a.to_dense(), b.to_dense())


def test_the_same_array_runs_in_place(artifact):
    x = torch.randn(SHAPE)
    wanted = torch.softmax(x, 1)
    artifact(x, x)
    torch.testing.assert_close(x, wanted)


def test_a_promise_of_noalias_is_still_checked():
    promised = tx.compile(ENTRY.kernel, SHAPE, SHAPE, options=tx.CompileOptions(noalias=True))
    promised(torch.randn(SHAPE), torch.empty(SHAPE))
    x = torch.randn(SHAPE)
    with pytest.raises(ArgumentError, match="noalias=True was promised"):
        promised(x, x)


def test_no_programs_have_no_short_way():
    empty = tx.compile(ENTRY.kernel, (0, 64), (0, 64))
    empty(torch.empty(0, 64), torch.empty(0, 64))
    assert empty.direct is None


def test_torch_and_numpy_calls_of_one_kernel_alternate():
    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    for _ in range(3):
        outs = np.empty_like(x), torch.empty(SHAPE)
        ENTRY.kernel(x, outs[0])
        ENTRY.kernel(torch.from_numpy(x), outs[1])
        np.testing.assert_array_equal(outs[0], outs[1].numpy())


def test_types_and_constants_select_the_artifact():
    kernel = tx.kernels.catalog()["rmsnorm"].kernel
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        for eps in (1e-6, 10.0, 1e-6):
            x = torch.randn(3, 32).to(dtype)
            out = torch.empty_like(x)
            kernel(x, torch.ones(32).to(dtype), out, eps=eps)
            wide = x.double()
            wanted = wide / torch.sqrt((wide**2).mean(1, keepdim=True) + eps)
            torch.testing.assert_close(out, wanted.to(dtype))


def as_cuda(monkeypatch, current, capturing=False):
    """Make torch report an initialized CUDA runtime whose current device is ``current``."""
    state = {"device": current}

    @contextlib.contextmanager
    def device(index):
        before, state["device"] = state["device"], index
        yield
        state["device"] = before

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: state["device"])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(torch.cuda, "device", device)
    return state


def launcher(function):
    return Launcher("softmax", "cuda", (), function, {}, lambda: None)


def test_a_launch_on_another_gpu_leaves_the_current_device(monkeypatch):
    state = as_cuda(monkeypatch, current=0)
    seen = []

    def function(*tensors):
        seen.append(state["device"])
        state["device"] = 1  # as TVM does, without restoring

    launcher(function).send(1, ("x",))
    assert seen == [1] and state["device"] == 0


def test_a_capture_before_the_first_launch_is_refused(monkeypatch):
    calls = []
    found = launcher(lambda *tensors: calls.append(tensors))
    as_cuda(monkeypatch, current=0, capturing=True)
    with pytest.raises(TargetError, match="softmax: captured into a CUDA graph before its first"):
        found.send(0, ("x",))
    assert not calls
    as_cuda(monkeypatch, current=0)
    found.send(0, ("x",))
    as_cuda(monkeypatch, current=0, capturing=True)
    found.send(0, ("x",))
    assert len(calls) == 2
    with pytest.raises(TargetError, match="cuda:1"):  # loaded on cuda:0 only
        found.send(1, ("x",))
