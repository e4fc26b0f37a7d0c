"""``register``: a tile kernel as a ``torch.library`` operator.

The operator is opaque to torch: it runs the compiled kernel on the tensors' own memory and
allocates its outputs. Leading dimensions are flattened where the kernel names its dimensions. A
tensor that is not contiguous is copied to one that is, since views are row-major without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tvm_tilex.errors import ArgumentError, OptionError
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.lang.kernel import TileKernel
from tvm_tilex.torch.gradient import Gradient
from tvm_tilex.torch.signature import Extents, Signature, torch_dtype

__all__ = ["TileOperator", "register"]

_NAMESPACE = "tilex"
_LIBRARY = torch.library.Library(_NAMESPACE, "FRAGMENT")
_REGISTERED: dict[str, TileOperator] = {}
_REMEMBERED = 512  # shapes and types of inputs, for each operator


class TileOperator:
    """A registered kernel. Called with tensors it returns new ones.

    Attributes
    ----------
    kernel
        The tile kernel.
    qualified_name
        ``"tilex::<name>"``; also ``torch.ops.tilex.<name>`` and ``torch.ops.tilex.<name>_out``.
    """

    def __init__(self, signature: Signature, options: Any, gradient: Gradient | None) -> None:
        self.kernel = signature.kernel
        self.signature = signature
        self.gradient = gradient
        self.name = signature.name.removeprefix(f"{_NAMESPACE}::")
        self.qualified_name = signature.name
        self._known: dict[Any, Any] = {}
        self._keywords = dict(signature.bound)
        if options is not None:
            self._keywords["options"] = options
        self._define()

    def __repr__(self) -> str:
        return f"<torch operator {self.qualified_name} of {self.kernel!r}>"

    def __call__(self, *tensors: torch.Tensor, **static: Any) -> Any:
        """Run on tensors; one output, or a tuple of several."""
        return self._functional(*tensors, **static)

    def out(self, *tensors: torch.Tensor, **keywords: Any) -> Any:
        """Run into given outputs, passed by the names of the kernel's ``out`` views.

        No gradient flows. Returns the outputs, one or a tuple.
        """
        self._into(*tensors, **keywords)
        return _result([keywords[name] for name in self.signature.outputs])

    def _define(self) -> None:
        name, into = self.name, f"{self.name}_out"
        signature = self.signature
        _LIBRARY.define(signature.schema(name))
        _LIBRARY.impl(name, self._run, "CompositeExplicitAutograd")
        torch.library.register_fake(self.qualified_name, self._fake, lib=_LIBRARY)
        self._functional = getattr(getattr(torch.ops, _NAMESPACE), name).default
        if signature.mutated:
            _LIBRARY.impl(name, self._without_gradient(self._functional), "Autograd")
        else:
            backward, setup = self._autograd()
            torch.library.register_autograd(
                self.qualified_name, backward, setup_context=setup, lib=_LIBRARY
            )
        _LIBRARY.define(signature.schema(into, out=True))
        _LIBRARY.impl(into, self._run_into, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{self.qualified_name}_out", self._fake_into, lib=_LIBRARY)
        self._into = getattr(getattr(torch.ops, _NAMESPACE), into).default
        _LIBRARY.impl(into, self._without_gradient(self._into), "Autograd")

    def _without_gradient(self, operator: Any) -> Callable[..., Any]:
        """The operator above autograd, which would lose the gradient of what is written."""

        def below(*arguments: Any, **named: Any) -> Any:
            tensors = (*arguments, *named.values())
            differentiable = any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
            if differentiable and torch.is_grad_enabled():
                raise ArgumentError(
                    f"{operator.name()}: it writes into a tensor, so no gradient flows; "
                    "call it under torch.no_grad() or on detached tensors"
                )
            with torch._C._AutoDispatchBelowAutograd():
                return operator(*arguments, **named)

        return below

    def _autograd(self) -> tuple[Callable[..., Any], Callable[..., None]]:
        if self.gradient is not None:
            return self.gradient.backward, self.gradient.setup

        def refuse(ctx: Any, *grads: Any) -> Any:
            raise ArgumentError(f"{self.qualified_name}: no backward kernel was registered")

        def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            return None

        return refuse, setup

    # Implementations, below autograd

    def _split(self, arguments: tuple[Any, ...]) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
        count = len(self.signature.inputs)
        static = dict(self.signature.static)
        static.update(zip(static, arguments[count:], strict=False))
        return arguments[:count], static

    def _run(self, *arguments: Any, **named: Any) -> Any:
        tensors, static = self._split(arguments)
        if named:
            static.update(named)
        arrangement, shapes, dtypes = self._prepared(tensors, static)
        device = tensors[0].device
        outputs = [
            torch.empty(shape, dtype=dtype, device=device)
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ]
        self._launch(tensors, outputs, arrangement, static)
        return _result(outputs)

    def _prepared(self, tensors: Sequence[torch.Tensor], static: Mapping[str, Any]) -> Any:
        """Arrangement, shapes and types of outputs, remembered for the inputs' shapes and types."""
        key = (
            tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors),
            tuple(static.values()),
        )
        found = self._known.get(key)
        if found is None:
            signature = self.signature
            arrangement = signature.arrange(tensors, static)
            shapes = [signature.output_shape(n, arrangement) for n in signature.outputs]
            dtypes = [signature.output_dtype(n, tensors) for n in signature.outputs]
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = (arrangement, shapes, dtypes)
        return found

    def _run_into(self, *arguments: Any, **named: Any) -> None:
        outputs = [named.pop(name) for name in self.signature.outputs]
        tensors, static = self._split(arguments)
        if named:
            static.update(named)
        arrangement, shapes, _ = self._prepared(tensors, static)
        self._check_outputs(tensors, outputs, shapes)
        self._launch(tensors, outputs, arrangement, static)

    def _fake(self, *arguments: Any, **named: Any) -> Any:
        tensors, static = self._split(arguments)
        static.update(named)
        outputs = self._allocate(tensors, self.signature.arrange(tensors, static))
        return _result(outputs)

    def _fake_into(self, *arguments: Any, **named: Any) -> None:
        outputs = [named.pop(name) for name in self.signature.outputs]
        tensors, static = self._split(arguments)
        static.update(named)
        signature = self.signature
        arrangement = signature.arrange(tensors, static)
        shapes = [signature.output_shape(n, arrangement) for n in signature.outputs]
        self._check_outputs(tensors, outputs, shapes)

    def _allocate(self, tensors: Sequence[torch.Tensor], arrangement: Any) -> list[torch.Tensor]:
        signature = self.signature
        return [
            torch.empty(
                signature.output_shape(name, arrangement),
                dtype=signature.output_dtype(name, tensors),
                device=tensors[0].device,
            )
            for name in signature.outputs
        ]

    def _check_outputs(
        self,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        shapes: Sequence[tuple[Any, ...]],
    ) -> None:
        for name, output, wanted in zip(self.signature.outputs, outputs, shapes, strict=True):
            self.signature.require_dtype(name, output)
            self.signature.require_device(name, output, tensors[0])
            if tuple(output.shape) != wanted:
                raise ArgumentError(
                    f"{self.qualified_name}: {name!r} has shape {tuple(output.shape)}, "
                    f"the result {wanted}"
                )

    def _launch(
        self,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        arrangement: Any,
        static: Mapping[str, Any],
    ) -> None:
        given = dict(zip(self.signature.inputs, tensors, strict=True))
        given.update(zip(self.signature.outputs, outputs, strict=True))
        flat, copied = [], []
        for name in self.signature.views:
            tensor, shape = given[name], arrangement.shapes[name]
            if not tensor.is_contiguous():
                dense = tensor.contiguous()
                if name in self.signature.written:
                    copied.append((tensor, dense))
                tensor = dense
            flat.append(tensor if tensor.shape == shape else tensor.view(shape))
        self.kernel(*flat, **self._keywords, **static)
        for tensor, dense in copied:
            tensor.copy_(dense)


def register(
    kernel: TileKernel,
    *,
    name: str | None = None,
    backward: TileKernel | TileOperator | Sequence[TileKernel | TileOperator] = (),
    extents: Extents | None = None,
    dtypes: Mapping[str, str | torch.dtype] | None = None,
    options: Any = None,
    **constants: Any,
) -> TileOperator:
    """Register a tile kernel as the operator ``tilex::<name>`` and ``tilex::<name>_out``.

    Parameters
    ----------
    kernel
        A ``@tx.tile_kernel``. Its ``in`` views are the operator's arguments, its ``out`` views what
        it returns, its ``inout`` views arguments that it changes. Compile-time constants that are
        numbers, booleans or texts follow as arguments with their defaults.
    name
        Defaults to the kernel's.
    backward
        Kernels (or operators of ``register``) that compute the gradients, in order; see
        :class:`~tvm_tilex.torch.gradient.Gradient` for how their views are matched by name.
    extents
        For a dimension name that only outputs have, a function from the known extents to its own.
    dtypes
        Element types of outputs whose view takes several; by default that of the first input that
        has an allowed one.
    options
        ``tx.CompileOptions`` of every compilation.
    constants
        Values of compile-time constants that the operator then does not take.

    Returns
    -------
    TileOperator
        Callable; registering a kernel by its name alone again returns the first one. The library is
        registered already (``tx.torch.ops``).

    Raises
    ------
    ArgumentError
        If the name is taken, or a backward kernel's view matches nothing.
    """
    if not isinstance(kernel, TileKernel):
        raise ArgumentError(f"register takes a tile kernel, not {type(kernel).__name__}")
    name = name or kernel.name
    known = _REGISTERED.get(name)
    if known is not None:
        if known.kernel is kernel and not (backward or extents or dtypes or options or constants):
            return known
        if known.kernel is kernel:
            raise ArgumentError(
                f"{_NAMESPACE}::{name} is registered already; give another name= to register "
                f"{kernel.name} otherwise"
            )
        raise ArgumentError(f"{_NAMESPACE}::{name} is already the operator of {known.kernel!r}")
    unknown = sorted(constants.keys() - kernel.static_defaults.keys())
    if unknown:
        raise OptionError(f"{kernel.name} has no compile-time constant {unknown[0]!r}")
    kernel.static_values(constants)
    signature = Signature(
        kernel,
        f"{_NAMESPACE}::{name}",
        extents or {},
        constants,
        {view: _torch_dtype(dtype) for view, dtype in (dtypes or {}).items()},
    )
    steps = (backward,) if isinstance(backward, (TileKernel, TileOperator)) else tuple(backward)
    operators = tuple(s if isinstance(s, TileOperator) else register(s) for s in steps)
    gradient = Gradient(signature, operators) if operators else None
    _REGISTERED[name] = TileOperator(signature, options, gradient)
    return _REGISTERED[name]


def _result(outputs: Sequence[torch.Tensor]) -> Any:
    """What a schema returns: nothing, a tensor or a tuple."""
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _torch_dtype(dtype: str | torch.dtype) -> torch.dtype:
    return dtype if isinstance(dtype, torch.dtype) else torch_dtype(dtype_of(dtype))
