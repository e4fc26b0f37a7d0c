"""``patch_model`` and ``use_kernels``: what is replaced, what is left and why, and results."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tvm_tilex as tx
from tvm_tilex.errors import ArgumentError
from tvm_tilex.torch import functional, modules
from tvm_tilex.torch.operator import TileOperator


@pytest.fixture
def launched(monkeypatch):
    """Names of the operators that launched a kernel, in order."""
    names = []
    launch = TileOperator._launch

    def spy(self, *arguments):
        names.append(self.name)
        return launch(self, *arguments)

    monkeypatch.setattr(TileOperator, "_launch", spy)
    return names


class Block(nn.Module):
    """A transformer block whose attention is a module's softmax."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.weights = nn.Softmax(dim=-1)
        self.feed = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attention = self.weights(q @ k.transpose(-1, -2) / math.sqrt(width // self.heads))
        x = x + self.out((attention @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.second(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(32, 17)
        self.loss = nn.CrossEntropyLoss(ignore_index=3)

    def forward(self, x, y):
        return self.loss(self.head(self.block(x)).flatten(0, 1), y.flatten())


def batch():
    torch.manual_seed(0)
    return torch.randn(2, 17, 32), torch.randint(0, 17, (2, 17))


def gradients_of(model, *arguments):
    model.zero_grad()
    loss = model(*arguments)
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in model.parameters()]


def test_a_model_is_patched_and_restored(launched):
    torch.manual_seed(1)
    model, (x, y) = Model(), batch()
    plain = copy.deepcopy(model)
    report = tx.torch.patch_model(model)
    assert {(r.name, r.module, r.kernel) for r in report.replaced} == {
        ("block.first", "LayerNorm", "layernorm"),
        ("block.second", "RMSNorm", "rmsnorm"),
        ("block.weights", "Softmax", "softmax"),
        ("loss", "CrossEntropyLoss", "cross_entropy"),
    }
    assert not report.skipped
    assert isinstance(model.block.first, nn.LayerNorm)
    assert model.state_dict().keys() == plain.state_dict().keys()
    wanted, expected = gradients_of(plain, x, y)
    assert not launched
    loss, found = gradients_of(model, x, y)
    assert set(launched) >= {"layernorm", "rmsnorm", "softmax", "cross_entropy", "softmax_backward"}
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    report.restore()
    report.restore()
    launched.clear()
    assert type(model.block.first) is nn.LayerNorm and type(model.loss) is nn.CrossEntropyLoss
    torch.testing.assert_close(model(x, y), wanted, rtol=0, atol=0)
    assert not launched


def test_a_patched_model_in_one_graph():
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, (x, y) = Model(), batch()
    wanted, expected = gradients_of(model, x, y)
    with tx.torch.patch_model(model):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        loss, found = gradients_of(compiled, x, y)
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert type(model.block.first) is nn.LayerNorm


def test_a_patched_model_trains():
    torch.manual_seed(1)
    model, (x, y) = Model(), batch()
    plain = copy.deepcopy(model)
    tx.torch.patch_model(model)
    first = plain(x, y).item()
    losses = []
    for m in (plain, model):
        for _ in range(4):
            loss, found = gradients_of(m, x, y)
            with torch.no_grad():
                for parameter, gradient in zip(m.parameters(), found, strict=True):
                    parameter -= 0.1 * gradient
        losses.append(loss.item())
    assert losses[0] < 0.9 * first and losses[1] == pytest.approx(losses[0], rel=1e-3)


class OwnNorm(nn.LayerNorm):
    def forward(self, x):
        return x


class LlamaRMSNorm(nn.Module):
    def forward(self, x):
        return x


def test_the_reasons_for_what_is_left():
    replaced = nn.LayerNorm(4)
    replaced.forward = lambda x: x
    model = nn.ModuleDict(
        {
            "own": OwnNorm(4),
            "llama": LlamaRMSNorm(),
            "wide": nn.LayerNorm(4, dtype=torch.float64),
            "replaced": replaced,
            "implicit": nn.Softmax(),
            "smooth": nn.CrossEntropyLoss(label_smoothing=0.1),
            "weighted": nn.CrossEntropyLoss(weight=torch.ones(3)),
            "groups": nn.GroupNorm(2, 4),
            "attention": nn.MultiheadAttention(4, 2),
            "linear": nn.Linear(4, 4),
            "fine": nn.RMSNorm(4),
        }
    )
    report = tx.torch.patch_model(model)
    reasons = {s.name: s.reason for s in report.skipped}
    assert reasons == {
        "own": "a subclass of nn.LayerNorm, whose forward may differ",
        "llama": "a class of its own, whose forward may differ from torch's",
        "wide": "parameters of torch.float64",
        "replaced": "its forward is replaced on the instance",
        "implicit": "dim=None is chosen by the number of dimensions",
        "smooth": "label_smoothing=0.1",
        "weighted": "class weights",
        "groups": "no kernel normalizes groups of channels",
        "attention": "its softmax is inside torch's attention",
    }
    assert [r.name for r in report.replaced] == ["fine"]
    assert "fine: RMSNorm -> rmsnorm" in str(report) and "smooth: CrossEntropyLoss left" in str(
        report
    )
    again = tx.torch.patch_model(model)
    assert not again.replaced and Skipped("fine", "RMSNorm", "already patched") in again.skipped
    with pytest.raises(ArgumentError, match=r"takes an nn\.Module, not list"):
        tx.torch.patch_model([])


Skipped = tx.torch.Skipped


class TheirRMSNorm(nn.Module):
    """As language models write it: FP32 inside, the weight after rounding."""

    def __init__(self, width, eps=1e-3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.variance_epsilon = eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(x.dtype)


def test_a_class_that_the_caller_vouches_for(launched):
    model, x = nn.Sequential(TheirRMSNorm(17), LlamaRMSNorm()), torch.randn(3, 17)
    wanted = model(x)
    report = tx.torch.patch_model(model, rms_norms=[TheirRMSNorm])
    assert str(report).startswith("0: TheirRMSNorm -> rmsnorm\n1: LlamaRMSNorm left")
    assert isinstance(model[0], TheirRMSNorm) and type(model[0]) is not TheirRMSNorm
    torch.testing.assert_close(model(x), wanted, rtol=2e-5, atol=2e-6)
    assert launched == ["rmsnorm"]
    model[0](x.double())  # float64 runs its own forward
    assert launched == ["rmsnorm"]
    other = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(other(x), wanted, rtol=2e-5, atol=2e-6)
    assert launched == ["rmsnorm", "rmsnorm"] and type(other[0]) is type(model[0])
    again = tx.torch.patch_model(model, rms_norms=[TheirRMSNorm])
    assert again.skipped[0] == Skipped("0", "TheirRMSNorm", "already patched")
    report.restore()
    assert type(model[0]) is TheirRMSNorm


def test_a_vouched_class_is_held_to_what_the_kernel_reads():
    wide, replaced, bare = TheirRMSNorm(17).double(), TheirRMSNorm(17), TheirRMSNorm(17)
    replaced.forward = lambda x: x
    del bare.variance_epsilon
    model = nn.Sequential(LlamaRMSNorm(), bare, wide, replaced)
    report = tx.torch.patch_model(model, rms_norms=(TheirRMSNorm, LlamaRMSNorm))
    assert not report.replaced and [s.reason for s in report.skipped] == [
        "it has no tensor 'weight'",
        "it has neither 'variance_epsilon' nor 'eps'",
        "parameters of torch.float64",
        "its forward is replaced on the instance",
    ]
    for wrong in (TheirRMSNorm, ["TheirRMSNorm"]):
        with pytest.raises(ArgumentError, match="rms_norms takes a sequence of module classes"):
            tx.torch.patch_model(model, rms_norms=wrong)


def test_shared_and_nested_modules_are_patched_once_and_restored_by_who_patched_them():
    norm = nn.LayerNorm(6)
    model = nn.Sequential(norm, nn.Sequential(norm, nn.Softmax(-1)))
    outer = tx.torch.patch_model(model)
    assert [r.name for r in outer.replaced] == ["0", "1.1"]
    inner = tx.torch.patch_model(model[1])
    assert not inner.replaced and {s.reason for s in inner.skipped} == {"already patched"}
    inner.restore()
    assert type(norm) is modules.LayerNorm
    outer.restore()
    assert type(norm) is nn.LayerNorm and type(model[1][1]) is nn.Softmax


def test_one_module_is_a_model_too():
    norm = nn.LayerNorm(4)
    report = tx.torch.patch_model(norm)
    assert type(norm) is modules.LayerNorm
    assert str(report) == "(model): LayerNorm -> layernorm"
    assert str(tx.torch.patch_model(nn.Linear(2, 2))) == "no module that a kernel covers"


def test_hooks_and_pickling_survive():
    norm, seen = nn.LayerNorm(17), []
    norm.register_forward_hook(lambda *_: seen.append(1))
    with tx.torch.patch_model(norm):
        norm(torch.randn(2, 17))
        other = nn.LayerNorm(17)
        tx.torch.patch_model(other)
        assert type(pickle.loads(pickle.dumps(other))) is modules.LayerNorm
    assert seen == [1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LayerNorm(17),
        lambda: nn.LayerNorm(17, bias=False),
        lambda: nn.LayerNorm(17, elementwise_affine=False, eps=0.1),
        lambda: nn.LayerNorm((5, 17)),
        lambda: nn.RMSNorm(17),
        lambda: nn.RMSNorm((5, 17), eps=1e-3),
        lambda: nn.RMSNorm(17, elementwise_affine=False),
        lambda: nn.Softmax(2),
        lambda: nn.LogSoftmax(-1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_variants_of_a_module(make, dtype, launched):
    torch.manual_seed(0)
    module = make().to(dtype)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(3, 5, 17).to(dtype).requires_grad_()

    def value_and_gradient(model, x):
        value = model(x)
        (gradient,) = torch.autograd.grad(
            value.to(torch.promote_types(value.dtype, torch.float32)).square().sum(), x
        )
        return value, gradient

    exact = value_and_gradient(copy.deepcopy(module).double(), x.detach().double().requires_grad_())
    wanted = value_and_gradient(module, x)
    tx.torch.patch_model(module)
    found = value_and_gradient(module, x)
    assert launched
    for ours, torchs, true in zip(found, wanted, exact, strict=True):
        assert ours.dtype == dtype
        if dtype == torch.float32:
            torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)
            continue
        # 16-bit gradients are differences of rounded values: torch's own are as far from FP64.
        own, error = ((t.double() - true).norm() for t in (torchs, ours))
        assert error <= max(1.5 * own, torch.finfo(dtype).eps * true.norm()), (error, own)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.LayerNorm(17), torch.randn(5, 17).double()),
        (nn.Softmax(0), torch.randn(5, 17)),
        (nn.Softmax(-1), torch.randn(5, 0)),
        (nn.LogSoftmax(1), torch.randn(5, 6, 7)),
    ],
)
def test_what_no_kernel_takes_runs_torch(module, x, launched):
    module = module.to(x.dtype) if x.dtype == torch.float64 else module
    wanted = module(x)
    modified = copy.deepcopy(module).float() if x.dtype == torch.float64 else module
    tx.torch.patch_model(modified)
    found = modified.double()(x) if x.dtype == torch.float64 else modified(x)
    torch.testing.assert_close(found, wanted)
    assert not launched


def test_autocast_is_left_to_torch(launched):
    norm = nn.LayerNorm(17)
    tx.torch.patch_model(norm)
    with torch.autocast("cpu", torch.bfloat16):
        norm(torch.randn(2, 17))
    assert not launched


# Cross-entropy


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_cross_entropy_options(reduction, ignore_index, launched):
    x = torch.randn(7, 17, requires_grad=True)
    y = torch.tensor([0, 1, 2, 3, 4, 2, 2])
    module = nn.CrossEntropyLoss(reduction=reduction, ignore_index=ignore_index)
    wanted = module(x, y)
    tx.torch.patch_model(module)
    found = module(x, y)
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6)
    (a,) = torch.autograd.grad(found.sum(), x)
    (b,) = torch.autograd.grad(wanted.sum(), x)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert (a[y == ignore_index] == 0).all()
    assert launched


def test_every_label_ignored_is_nan_as_in_torch():
    module = nn.CrossEntropyLoss()
    tx.torch.patch_model(module)
    assert module(torch.randn(2, 17), torch.tensor([-100, -100])).isnan()


def test_a_label_that_is_no_class_gives_nan():
    module = nn.CrossEntropyLoss(reduction="none")
    tx.torch.patch_model(module)
    assert module(torch.randn(3, 17), torch.tensor([0, 17, -1])).isnan().tolist() == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("logits", "target"),
    [
        (torch.randn(2, 5, 3), torch.zeros(2, 3, dtype=torch.int64)),
        (torch.randn(5), torch.tensor(2)),
        (torch.randn(2, 5), torch.rand(2, 5)),
    ],
    ids=["images", "one row", "probabilities"],
)
def test_other_targets_run_torch(logits, target, launched):
    module = nn.CrossEntropyLoss()
    wanted = module(logits, target)
    tx.torch.patch_model(module)
    torch.testing.assert_close(module(logits, target), wanted)
    assert not launched


# Functional calls


class Calls(nn.Module):
    def forward(self, x, y):
        a = F.softmax(x, dim=-1) + torch.softmax(x, -1) + x.softmax(1)
        b = F.log_softmax(x, -1) + x.log_softmax(-1) + F.softmax(x, 0)
        c = F.layer_norm(x, (17,)) + F.rms_norm(x, (17,))
        return a + b + c + F.cross_entropy(x, y)


def test_use_kernels_covers_functions_and_methods(launched):
    x, y = torch.randn(4, 17, requires_grad=True), torch.tensor([0, 1, 2, 3])
    model = Calls()
    wanted = model(x, y)
    with tx.torch.use_kernels() as calls:
        found = model(x, y)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert calls.used == {
        "softmax": 3, "log_softmax": 2, "layer_norm": 1, "rms_norm": 1, "cross_entropy": 1,
    }  # fmt: skip
    assert calls.left == {("softmax", "dim=0 is not the last dimension"): 1}
    assert len(launched) == 8
    model(x, y)
    assert len(launched) == 8
    (a,) = torch.autograd.grad(found.square().sum(), x)
    (b,) = torch.autograd.grad(wanted.square().sum(), x)
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_use_kernels_with_a_type():
    x = torch.randn(3, 17, dtype=torch.bfloat16)
    with tx.torch.use_kernels() as calls:
        assert F.softmax(x, -1, dtype=torch.float32).dtype == torch.float32
        assert x.softmax(-1, torch.float64).dtype == torch.float64
    assert calls.used == {"softmax": 1}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: F.cross_entropy(x, y, reduction="avg"), "avg is not a valid value"),
        (lambda x, y: F.layer_norm(x, (4, 5), torch.ones(5, 4)), "Expected weight to be of same"),
        (lambda x, y: F.layer_norm(x, (5,), None, torch.ones(1, 5)), "Expected bias to be of same"),
        (lambda x, y: F.rms_norm(x, (4, 5), torch.ones(20)), "Expected weight to be of same"),
        (lambda x, y: F.layer_norm(x[0, 0], (5,)), "normalized_shape"),
        (lambda x, y: F.rms_norm(x, (6,)), "normalized_shape"),
    ],
)
def test_a_call_that_torch_refuses_is_refused_by_torch(call, message, launched):
    x, y = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    with tx.torch.use_kernels() as calls, pytest.raises((RuntimeError, ValueError), match=message):
        call(x, y)
    assert not launched and not calls.used and len(calls.left) == 1


def test_use_kernels_around_a_compiled_model():
    torch._dynamo.reset()
    x, y = torch.randn(4, 17), torch.tensor([0, 1, 2, 3])
    with tx.torch.use_kernels():
        compiled = torch.compile(Calls(), fullgraph=True, backend="aot_eager")
        found = compiled(x, y)
    torch.testing.assert_close(found, Calls()(x, y), rtol=1e-4, atol=1e-5)


def test_unsupported_has_a_reason():
    found = functional.softmax(torch.randn(3, 5).double(), -1)
    assert found == functional.Unsupported("element type torch.float64")
