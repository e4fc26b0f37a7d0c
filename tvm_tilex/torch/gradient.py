"""The gradient of an operator, computed by backward kernels whose views are matched by name.

Of the forward operator with inputs ``x, weight`` and output ``out``, a backward kernel may read

- ``x``, ``weight``, ``out`` themselves (only those that are read are saved),
- ``grad_out``, the incoming gradient,
- whatever an earlier backward kernel wrote,

and write ``grad_x``; or ``partial_weight``, whose sum over its first dimension is the gradient
(torch sums it: programs are independent, so a kernel leaves sums over rows in parts); or any other
name, for a later kernel. Compile-time constants are passed on by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from tvm_tilex.errors import ArgumentError
from tvm_tilex.torch.signature import Signature

if TYPE_CHECKING:
    from tvm_tilex.torch.operator import TileOperator

__all__ = ["Gradient"]


class Gradient:
    """Backward kernels of one operator, in the order in which they run.

    Raises
    ------
    ArgumentError
        If a kernel reads what nothing provides, or nothing computes a gradient.
    """

    def __init__(self, forward: Signature, steps: tuple[TileOperator, ...]) -> None:
        self.forward = forward
        self.steps = steps
        if forward.mutated:
            raise ArgumentError(
                f"{forward.name}: an operator that changes an input has no gradient"
            )
        incoming = {f"grad_{name}" for name in forward.outputs}
        available = {*forward.inputs, *forward.outputs, *incoming}
        for step in steps:
            for view in step.signature.inputs:
                if view not in available:
                    raise ArgumentError(
                        f"{forward.name}: the backward kernel {step.name} reads {view!r}, which is "
                        f"none of {', '.join(sorted(available))}"
                    )
            available |= set(step.signature.outputs)
        self._made_by = {
            name: (position, f"{kind}_{name}")
            for name in forward.inputs
            for kind in ("partial", "grad")
            for position, step in enumerate(steps)
            if f"{kind}_{name}" in step.signature.outputs
        }
        if not self._made_by:
            raise ArgumentError(
                f"{forward.name}: no backward kernel writes grad_<input>; they write "
                + ", ".join(name for step in steps for name in step.signature.outputs)
            )
        read = {view for step in steps for view in step.signature.inputs}
        self._saved = tuple(n for n in (*forward.inputs, *forward.outputs) if n in read)

    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what the backward kernels read."""
        forward, count = self.forward, len(self.forward.inputs)
        outputs = output if isinstance(output, tuple) else (output,)
        tensors = dict(zip(forward.inputs, inputs, strict=False))
        tensors.update(zip(forward.outputs, outputs, strict=True))
        ctx.save_for_backward(*(tensors[name] for name in self._saved))
        ctx.dtypes = tuple(t.dtype for t in inputs[:count])
        ctx.static = dict(forward.static)
        ctx.static.update(zip(forward.static, inputs[count:], strict=False))

    def backward(self, ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Gradients of the operator's arguments; None for what needs none or is a constant."""
        forward = self.forward
        values: dict[str, Any] = dict(zip(self._saved, ctx.saved_tensors, strict=True))
        incoming = (f"grad_{name}" for name in forward.outputs)
        values.update(zip(incoming, gradients, strict=True))
        constants = {**forward.bound, **ctx.static}
        wanted = {
            name: self._made_by[name]
            for position, name in enumerate(forward.inputs)
            if ctx.needs_input_grad[position] and name in self._made_by
        }
        for position in sorted(self._needed({position for position, _ in wanted.values()})):
            self._step(self.steps[position], values, constants)
        found: list[Any] = []
        for position, name in enumerate(forward.inputs):
            if name not in wanted:
                if ctx.needs_input_grad[position] and ctx.dtypes[position].is_floating_point:
                    raise ArgumentError(f"{forward.name}: no backward kernel for {name!r}")
                found.append(None)
                continue
            _, view = wanted[name]
            result = values[view].sum(0) if view.startswith("partial_") else values[view]
            found.append(result.to(ctx.dtypes[position]))
        return (*found, *(None for _ in forward.static))

    def _needed(self, wanted: set[int]) -> set[int]:
        """The steps that must run for ``wanted``: these and what they read from earlier ones."""
        needed = set(wanted)
        for position in range(len(self.steps) - 1, -1, -1):
            if position not in needed:
                continue
            read = set(self.steps[position].signature.inputs)
            for earlier in range(position):
                if read & set(self.steps[earlier].signature.outputs):
                    needed.add(earlier)
        return needed

    @staticmethod
    def _step(step: TileOperator, values: dict[str, Any], constants: Mapping[str, Any]) -> None:
        static = {name: constants[name] for name in step.signature.static if name in constants}
        result = step(*(values[name] for name in step.signature.inputs), **static)
        results = result if isinstance(result, tuple) else (result,)
        values.update(zip(step.signature.outputs, results, strict=True))
