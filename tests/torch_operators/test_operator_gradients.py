"""Gradients of registered operators against FP64 autograd, and the matching of backward kernels.

The language has no float64, so ``torch.autograd.gradcheck`` runs on the FP64 formulas that the
kernels are judged by, and the FP32 kernels are compared with FP64 autograd within the library's
tolerance for gradients of these sizes.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError
from tvm_tilex.kernels import gradient_oracles, gradients, oracles

OPS = tx.torch.ops
VECTOR = ("n",)
LABELS = torch.tensor([0, 16, 3, 3, 8])

# name -> (torch's own function, number of differentiable arguments)
FUNCTIONS = {
    "softmax": (lambda x: x.softmax(-1), 1),
    "log_softmax": (lambda x: x.log_softmax(-1), 1),
    "layernorm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), 3),
    "layernorm_no_affine": (lambda x: F.layer_norm(x, x.shape[-1:]), 1),
    "rmsnorm": (lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), 2),
    "cross_entropy": (lambda x: F.cross_entropy(x, LABELS, reduction="none"), 1),
}


def arguments(name, rows=5, columns=17, dtype=torch.float64):
    generator = torch.Generator().manual_seed(columns)
    shapes = [(rows, columns), (columns,), (columns,)][: FUNCTIONS[name][1]]
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    ]


def ours(name, *tensors):
    extra = (LABELS[: tensors[0].shape[0]],) if name == "cross_entropy" else ()
    return getattr(OPS, name)(*tensors, *extra)


@pytest.mark.parametrize("columns", [1, 2, 300])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_gradients_against_float64_autograd(name, columns):
    if name == "cross_entropy" and columns < 17:
        columns += 17  # the labels
    exact = arguments(name, columns=columns)
    narrow = [t.detach().float().requires_grad_() for t in exact]
    exact = [t.detach().double().requires_grad_() for t in narrow]  # the same numbers
    reference, result = FUNCTIONS[name][0](*exact), ours(name, *narrow)
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(reference.shape, generator=generator)
    wanted = torch.autograd.grad(reference, exact, grad.double())
    found = torch.autograd.grad(result, narrow, grad)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        # At width 1 and 2 normalizations divide by deviations near sqrt(eps).
        bound = 5e-6 * max(1.0, b.abs().max().item(), grad.abs().max().item() / 1e-2)
        assert (a - b).abs().max().item() <= bound, (a - b).abs().max()


class Formula(torch.autograd.Function):
    """An FP64 formula of the library with its FP64 gradient, for gradcheck."""

    @staticmethod
    def forward(ctx, name, *tensors):
        ctx.name = name
        arrays = [t.detach().numpy() for t in tensors]
        extra = (LABELS.numpy(),) if name == "cross_entropy" else ()
        out = torch.from_numpy(getattr(oracles, name)(*arrays, *extra))
        ctx.save_for_backward(*tensors, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        *tensors, out = (t.numpy() for t in ctx.saved_tensors)
        g, backward = grad.numpy(), getattr(gradient_oracles, f"{ctx.name}_backward")
        if "softmax" in ctx.name:
            found = [backward(out, g)]
        elif ctx.name == "cross_entropy":
            found = [backward(tensors[0], LABELS.numpy(), g)]
        elif ctx.name == "layernorm_no_affine":
            found = [backward(tensors[0], g)]
        else:
            first, *statistics = backward(tensors[0], tensors[1], g)
            parameters = getattr(gradient_oracles, f"{ctx.name}_parameters_backward")
            partial = parameters(tensors[0], g, *statistics)
            partial = partial if isinstance(partial, tuple) else (partial,)
            found = [first, *(p.sum(0) for p in partial)]
        return None, *(torch.from_numpy(np.ascontiguousarray(f)) for f in found)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_of_the_float64_formulas(name):
    assert torch.autograd.gradcheck(lambda *a: Formula.apply(name, *a), arguments(name))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_have_the_types_of_their_inputs(name, dtype):
    narrow = arguments(name, dtype=dtype)
    wide = [t.detach().float().requires_grad_() for t in narrow]
    result, reference = ours(name, *narrow), ours(name, *wide)
    grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    found = torch.autograd.grad(result, narrow, grad)
    wanted = torch.autograd.grad(reference, wide, grad.float())
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == dtype
        # The gradient of a softmax is of its output as stored, in torch as here.
        error = (a.float() - b).norm() / b.norm()
        assert error <= 4 * torch.finfo(dtype).eps, error


def test_mixed_storage():
    x = torch.randn(4, 17, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(17, requires_grad=True)
    gx, gw = torch.autograd.grad(OPS.rmsnorm(x, w).sum(), (x, w))
    assert (gx.dtype, gw.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("lead", [(), (3,), (2, 70), (0,), (2, 0)], ids=str)
def test_leading_dimensions_and_partial_blocks_of_rows(lead):
    x = torch.randn(*lead, 17, requires_grad=True)
    w, b = (torch.randn(17, requires_grad=True) for _ in range(2))
    grad = torch.randn(*lead, 17)
    wanted = torch.autograd.grad(F.layer_norm(x, (17,), w, b), (x, w, b), grad)
    found = torch.autograd.grad(OPS.layernorm(x, w, b), (x, w, b), grad)
    for a, e in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, e, rtol=2e-5, atol=5e-5)


def test_a_gradient_that_is_not_contiguous():
    x = torch.randn(6, 17, requires_grad=True)
    (found,) = torch.autograd.grad(OPS.softmax(x)[:, ::2].sum(), x)
    (wanted,) = torch.autograd.grad(x.softmax(-1)[:, ::2].sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-7)


def test_only_what_is_needed_runs(monkeypatch):
    ran = []
    step = type(OPS.layernorm.gradient)._step
    monkeypatch.setattr(
        type(OPS.layernorm.gradient),
        "_step",
        staticmethod(lambda s, values, constants: (ran.append(s.name), step(s, values, constants))),
    )
    x, w, b = arguments("layernorm", dtype=torch.float32)
    OPS.layernorm(x, w.detach(), b.detach()).sum().backward()
    assert ran == ["layernorm_backward"]
    ran.clear()
    OPS.layernorm(x.detach(), w, b.detach()).sum().backward()
    assert ran == ["layernorm_backward", "layernorm_parameters_backward"]


def test_constants_reach_the_backward_kernel():
    x = torch.randn(4, 17, requires_grad=True)
    (found,) = torch.autograd.grad(OPS.layernorm_no_affine(x, 3.0).square().sum(), x)
    (wanted,) = torch.autograd.grad(F.layer_norm(x, (17,), eps=3.0).square().sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_without_a_backward_kernel_the_operator_is_named():
    x = torch.randn(4, 17, requires_grad=True)
    with pytest.raises(ArgumentError, match="tilex::row_max: no backward kernel was registered"):
        OPS.row_max(x).sum().backward()
    y = OPS.softmax(x)
    (grad,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(ArgumentError, match="tilex::softmax_backward: no backward kernel"):
        grad.sum().backward()


def test_backward_kernels_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match="layernorm_backward reads 'weight', which is none of"):
        tx.torch.register(
            kernels.layernorm_no_affine, name="bad1", backward=gradients.layernorm_backward
        )
    with pytest.raises(ArgumentError, match="no backward kernel writes grad_<input>"):
        tx.torch.register(kernels.row_sum, name="bad2", backward=kernels.row_max)


@tx.tile_kernel
def square(x: tx.TensorView[tx.float32, VECTOR], y: tx.TensorView[tx.float32, VECTOR, tx.Out]):
    n = tx.axis("n", x.extent(0))
    for nest in tx.parallel(tx.shape(n)):
        value = x[tx.coord(nest.index()), tx.shape(1)]
        y(tx.coord(nest.index()), tx.shape(1)).store(value * value)


@tx.tile_kernel
def square_backward(
    x: tx.TensorView[tx.float32, VECTOR],
    grad_y: tx.TensorView[tx.float32, VECTOR],
    grad_x: tx.TensorView[tx.float32, VECTOR, tx.Out],
):
    n = tx.axis("n", x.extent(0))
    for nest in tx.parallel(tx.shape(n)):
        at = tx.coord(nest.index())
        value = 2.0 * x[at, tx.shape(1)] * grad_y[at, tx.shape(1)]
        grad_x(at, tx.shape(1)).store(value)


def test_a_users_own_pair():
    op = tx.torch.register(square, backward=square_backward)
    x = torch.tensor([1.0, -3.0], requires_grad=True)
    op(x).sum().backward()
    assert x.grad.tolist() == [2, -6]
    torch.library.opcheck(torch.ops.tilex.square.default, (x,))
