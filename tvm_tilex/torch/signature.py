"""What a tile kernel's signature says of an operator: its schema, output shapes and types.

Shapes may be symbolic (``torch.SymInt``) while a graph is traced. A view whose dimensions are
named has its extents from the inputs that share the names. An output of unnamed dimensions has the
extents that the kernel stores, read off a captured program, which needs numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tvm_tilex.errors import ArgumentError, TilexError
from tvm_tilex.ir.program import View, ViewAccess
from tvm_tilex.ir.types import DType
from tvm_tilex.lang.capture import Capture, StoredRegion, capturing
from tvm_tilex.lang.kernel import TileKernel
from tvm_tilex.lang.tensor import CapturedView, ViewSpec

__all__ = ["Arrangement", "Signature", "dtype_of_tensor", "torch_dtype"]

_SCHEMA_TYPES = {bool: "bool", int: "int", float: "float", str: "str"}
# Larger than any array: a store there is bounded by what the kernel stores, not by the view.
_UNKNOWN = 2**40

Extents = Mapping[str, Callable[[Mapping[str, Any]], Any]]


def torch_dtype(dtype: DType) -> torch.dtype:
    """Torch's type of that storage."""
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def dtype_of_tensor(tensor: torch.Tensor) -> str:
    """The language's name of a tensor's element type (which the language may lack)."""
    return str(tensor.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Arrangement:
    """The tensors of one call seen as the kernel's views.

    ``lead`` are the leading dimensions that the kernel's first dimension stands for, ``shapes`` the
    shape of every view in call order.
    """

    lead: tuple[Any, ...]
    shapes: dict[str, tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Signature:
    """A kernel as an operator called ``name``.

    ``extents`` computes dimensions that only outputs have from the named ones; ``bound`` are
    compile-time constants that the operator does not take; ``dtypes`` are those of outputs.
    """

    kernel: TileKernel
    name: str
    extents: Extents
    bound: Mapping[str, Any]
    dtypes: Mapping[str, torch.dtype]

    @functools.cached_property
    def inputs(self) -> tuple[str, ...]:
        """Views that the caller passes, in order; ``inout`` ones are changed in place."""
        return tuple(n for n, v in self.views.items() if v.access is not ViewAccess.write)

    @functools.cached_property
    def outputs(self) -> tuple[str, ...]:
        """Views that the operator allocates, in order."""
        return tuple(n for n, v in self.views.items() if v.access is ViewAccess.write)

    @functools.cached_property
    def mutated(self) -> tuple[str, ...]:
        """Inputs that the kernel changes."""
        return tuple(n for n in self.inputs if self.views[n].access is not ViewAccess.read)

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """Views that the kernel stores."""
        return frozenset((*self.mutated, *self.outputs))

    @property
    def views(self) -> Mapping[str, ViewSpec]:
        """Every view of the kernel by name, in call order."""
        return self.kernel.parameters

    @functools.cached_property
    def static(self) -> dict[str, Any]:
        """Compile-time constants that the operator takes, with their defaults.

        A constant of a type without a counterpart in a schema keeps its default.
        """
        defaults = self.kernel.static_defaults
        return {
            name: value
            for name, value in defaults.items()
            if name not in self.bound and type(value) in _SCHEMA_TYPES
        }

    @functools.cached_property
    def rows(self) -> str | None:
        """The dimension that a tensor's leading dimensions are flattened to."""
        first = self.views[self.inputs[0]].dimensions
        return first[0] if first and len(first) > 1 else None

    def schema(self, name: str, *, out: bool = False) -> str:
        """The schema of the functional operator, or of the one that is given its outputs."""
        parts = []
        for position, view in enumerate(self.inputs):
            alias = f"({chr(ord('a') + position)}!)" if view in self.mutated else ""
            parts.append(f"Tensor{alias} {view}")
        for constant, value in self.static.items():
            text = f'"{value}"' if isinstance(value, str) else repr(value)
            parts.append(f"{_SCHEMA_TYPES[type(value)]} {constant}={text}")
        if not out:
            returned = ", ".join("Tensor" for _ in self.outputs)
            arrow = returned if len(self.outputs) == 1 else f"({returned})"
            return f"{name}({', '.join(parts)}) -> {arrow}"
        parts.append("*")
        for position, view in enumerate(self.outputs, start=len(self.inputs)):
            parts.append(f"Tensor({chr(ord('a') + position)}!) {view}")
        return f"{name}({', '.join(parts)}) -> ()"

    # Shapes and types

    def arrange(self, tensors: Sequence[torch.Tensor], static: Mapping[str, Any]) -> Arrangement:
        """Check the inputs against the signature and infer the shapes of the outputs.

        Raises
        ------
        ArgumentError
            Naming the operator, the parameter and what does not fit.
        """
        given = dict(zip(self.inputs, tensors, strict=True))
        lead: tuple[Any, ...] | None = None
        for name, tensor in given.items():
            self.require_dtype(name, tensor)
            self.require_device(name, tensor, tensors[0])
            own = self._lead(name, tuple(tensor.shape))
            if own is None:
                continue
            if lead is None:
                lead, first = own, name
            elif len(own) != len(lead) or any(a != b for a, b in zip(own, lead, strict=True)):
                raise self._error(
                    f"{name!r} has the leading dimensions {tuple(own)}, {first!r} {tuple(lead)}"
                )
        lead = lead or ()
        shapes: dict[str, tuple[Any, ...]] = {}
        extents: dict[str, Any] = {}
        for name, tensor in given.items():
            shapes[name] = self._flattened(name, tuple(tensor.shape), lead)
            self._learn(name, shapes[name], extents)
        for name, compute in self.extents.items():
            extents.setdefault(name, compute(extents))
        unnamed = [name for name in self.outputs if not self._named(name, extents)]
        stored = self._stored(shapes, static) if unnamed else {}
        for name in self.outputs:
            dimensions = self.views[name].dimensions or ()
            shapes[name] = (
                stored[name] if name in unnamed else tuple(extents[d] for d in dimensions)
            )
        return Arrangement(lead, shapes)

    def require_dtype(self, name: str, tensor: torch.Tensor) -> None:
        """Refuse an element type that the view does not take."""
        allowed = tuple(dtype.name for dtype in self.views[name].dtypes)
        if dtype_of_tensor(tensor) not in allowed:
            raise self._error(
                f"{name!r} is {dtype_of_tensor(tensor)}; it takes {' or '.join(allowed)}"
            )

    def require_device(self, name: str, tensor: torch.Tensor, first: torch.Tensor) -> None:
        """Refuse a tensor that is on another device than the first one."""
        if tensor.device != first.device:
            raise self._error(
                f"{name!r} is on {tensor.device}, {self.inputs[0]!r} on {first.device}"
            )

    def output_shape(self, name: str, arrangement: Arrangement) -> tuple[Any, ...]:
        """Shape of the tensor for an output: leading dimensions as the inputs have them."""
        shape = arrangement.shapes[name]
        if self._has_rows(name):
            return (*arrangement.lead, *shape[1:])
        return shape

    def output_dtype(self, name: str, tensors: Sequence[torch.Tensor]) -> torch.dtype:
        """The stated type, the only one that the view takes, or that of the first fitting input."""
        if name in self.dtypes:
            return self.dtypes[name]
        allowed = tuple(map(torch_dtype, self.views[name].dtypes))
        if len(allowed) > 1:
            for tensor in tensors:
                if tensor.dtype in allowed:
                    return tensor.dtype
        return allowed[0]

    def _has_rows(self, name: str) -> bool:
        dimensions = self.views[name].dimensions
        return self.rows is not None and bool(dimensions) and dimensions[0] == self.rows

    def _lead(self, name: str, shape: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The dimensions of a tensor that the first one of its view stands for."""
        rank = self.views[name].rank
        if not self._has_rows(name):
            if len(shape) != rank:
                hint = "" if self.views[name].dimensions else " (name its dimensions to flatten)"
                raise self._error(f"{name!r} has shape {shape}; it takes {rank} dimensions{hint}")
            return None
        trailing = rank - 1
        if len(shape) < rank - 1:
            raise self._error(f"{name!r} has shape {shape}; it takes {rank} dimensions or more")
        return shape[: len(shape) - trailing]

    def _flattened(
        self, name: str, shape: tuple[Any, ...], lead: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        if not self._has_rows(name):
            return shape
        return (math.prod(lead), *shape[len(lead) :])

    def _learn(self, name: str, shape: tuple[Any, ...], extents: dict[str, Any]) -> None:
        for dimension, extent in zip(self.views[name].dimensions or (), shape, strict=False):
            if extents.setdefault(dimension, extent) != extent:
                raise self._error(
                    f"{name!r} has {dimension} = {extent}, another input {extents[dimension]}"
                )

    def _named(self, name: str, extents: Mapping[str, Any]) -> bool:
        dimensions = self.views[name].dimensions
        return bool(dimensions) and all(dimension in extents for dimension in dimensions or ())

    def _stored(
        self, shapes: Mapping[str, tuple[Any, ...]], static: Mapping[str, Any]
    ) -> dict[str, tuple[int, ...]]:
        concrete = tuple(tuple(int(extent) for extent in shapes[name]) for name in self.inputs)
        values = tuple(sorted({**self.bound, **static}.items()))
        return _stored_extents(self, concrete, values)

    def _error(self, message: str) -> ArgumentError:
        return ArgumentError(f"{self.name}: {message}")


@functools.lru_cache(maxsize=256)
def _stored_extents(
    signature: Signature, shapes: tuple[tuple[int, ...], ...], static: tuple[tuple[str, Any], ...]
) -> dict[str, tuple[int, ...]]:
    """Extents of the outputs: what a captured program stores, since an output is written whole."""
    known = dict(zip(signature.inputs, shapes, strict=True))
    views = tuple(
        View(
            name,
            spec.dtypes[0],
            known.get(name, (_UNKNOWN,) * spec.rank),
            spec.access,
            spec.bounds,
        )
        for name, spec in signature.views.items()
    )
    kernel = signature.kernel
    capture = Capture(kernel.name, views)
    try:
        with capturing(capture):
            kernel.function(*map(CapturedView, views), **kernel.static_values(dict(static)))
    except TilexError as error:
        raise ArgumentError(
            f"{signature.name}: shapes of outputs are not known, name their dimensions ({error})"
        ) from None
    found = {}
    for name in signature.outputs:
        extents = _extents(capture.stored.get(name, []), signature.views[name].rank)
        if any(extent >= _UNKNOWN for extent in extents):
            raise ArgumentError(
                f"{signature.name}: the kernel reads the extents of {name!r}; name its dimensions"
            )
        found[name] = extents
    return found


def _extents(regions: Sequence[StoredRegion], rank: int) -> tuple[int, ...]:
    """One more than the last index that is stored, by dimension.

    Where no program runs, a dimension that depends on a program's coordinate is empty, and the
    others are what one program would store.
    """
    found = [0] * rank
    for region in regions:
        one, two = (_last(region, at_least) for at_least in (1, 2))
        for dimension in range(rank):
            stored = 0 if one[dimension] != two[dimension] else int(one[dimension]) + 1
            found[dimension] = max(found[dimension], stored)
    return tuple(found)


def _last(region: StoredRegion, at_least: int) -> list[float]:
    """Last stored indices if every empty nest had ``at_least`` programs."""
    extents = {where: extent or at_least for where, extent in region.extents.items()}
    return [high for _, high in replace(region, extents=extents).spans({})]
