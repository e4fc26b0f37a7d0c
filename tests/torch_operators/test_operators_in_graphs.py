"""Registered operators under torch.compile: one graph, no recompilation for another batch."""

import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

import tvm_tilex as tx
from tvm_tilex import driver

OPS = tx.torch.ops


def loss(x, w, b, y):
    hidden = OPS.layernorm(x, w, b)
    hidden = OPS.rmsnorm(hidden * OPS.softmax(x), w)
    return OPS.cross_entropy(hidden, y).mean() + OPS.log_softmax(x)[..., 0].sum()


def reference(x, w, b, y):
    hidden = F.layer_norm(x, x.shape[-1:], w, b)
    hidden = F.rms_norm(hidden * x.softmax(-1), x.shape[-1:], w, 1e-6)
    flat = F.cross_entropy(hidden.flatten(0, -2), y.flatten())
    return flat + x.log_softmax(-1)[..., 0].sum()


def tensors(*lead, columns=17):
    x = torch.randn(*lead, columns, requires_grad=True)
    w, b = (torch.randn(columns, requires_grad=True) for _ in range(2))
    return x, w, b, torch.randint(0, columns, lead)


def same(compiled, *arguments):
    found, wanted = compiled(*arguments), reference(*arguments)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for a, b in zip(
        torch.autograd.grad(found, arguments[:3]),
        torch.autograd.grad(wanted, arguments[:3]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_one_graph_with_its_gradient():
    torch._dynamo.reset()
    same(torch.compile(loss, fullgraph=True, backend="aot_eager"), *tensors(2, 5))


def test_the_gradient_in_a_backend_that_generates_code(backend):
    x, w, _, _ = tensors(2, 5)
    compiled = torch.compile(lambda x, w: OPS.rmsnorm(x, w), fullgraph=True, backend=backend)
    wanted = torch.autograd.grad(F.rms_norm(x, (17,), w, 1e-6).sum(), (x, w))
    for a, b in zip(torch.autograd.grad(compiled(x, w).sum(), (x, w)), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_another_batch_does_not_compile_again():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")

    def normed(x, w):
        return OPS.rmsnorm(x, w) * OPS.softmax(x)

    compiled = torch.compile(normed, fullgraph=True, backend=counter, dynamic=True)
    for batch in (14, 20, 66):  # rows past one block of 64: a dimension of 1 is a constant
        x, w, _, _ = tensors(batch, 5)
        found = compiled(x, w)
        torch.testing.assert_close(found, normed(x, w))
        torch.autograd.grad(found.sum(), (x, w))
    assert counter.frame_count == 1


def test_operators_that_change_their_arguments(own, backend):
    def f(x):
        y = x * 2
        own.scale_in_place(y, 3.0)
        return y + own.plain_softmax(x)

    x = torch.randn(4, 17)
    torch.testing.assert_close(
        torch.compile(f, fullgraph=True, backend=backend)(x), 6 * x + x.softmax(-1)
    )


def test_out_variant_in_a_graph(backend):
    def f(x):
        out = torch.empty_like(x)
        OPS.softmax.out(x, output=out)
        return out + 1

    x = torch.randn(4, 17)
    compiled = torch.compile(f, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x), x.softmax(-1) + 1)


def test_export_keeps_the_operator():
    class Module(torch.nn.Module):
        def forward(self, x):
            return OPS.softmax(x)

    x = torch.randn(4, 17)
    program = torch.export.export(Module(), (x,), dynamic_shapes=({0: torch.export.Dim("p")},))
    assert "tilex.softmax.default" in program.graph_module.code
    y = torch.randn(9, 17)
    torch.testing.assert_close(program.module()(y), y.softmax(-1))


def test_another_batch_compiles_no_kernel_again(monkeypatch):
    compiled, stock = [], driver.tvm.compile

    def counted(module, *given, **named):
        compiled.extend(str(v.name_hint) for v in module.get_global_vars())
        return stock(module, *given, **named)

    monkeypatch.setattr(driver.tvm, "compile", counted)
    for batch in (2, 3, 40):
        x, _, _, _ = tensors(batch, 5, columns=19)
        OPS.softmax(x).sum().backward()
    assert compiled == ["softmax", "softmax_backward"]
