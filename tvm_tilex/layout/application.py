"""Checked application of maps to points and to NumPy arrays, with the same refusals in both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import Check, LayoutMap, Piece, Value
from tvm_tilex.layout.errors import CodomainError, DomainError
from tvm_tilex.layout.evaluate import ArrayEvaluation, Evaluation, IntArray
from tvm_tilex.layout.expr import Expr
from tvm_tilex.layout.index_set import IndexSet

__all__ = ["apply_arrays", "apply_scalar", "raw_value"]


def _positional(domain: IndexSet, point: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    if named and point:
        raise DomainError("give coordinates in axis order or by name, not both")
    if named:
        for name in named:
            if name not in domain.names:
                raise DomainError(f"'{name}' is not an axis of the domain {domain.names}")
        missing = [name for name in domain.names if name not in named]
        if missing:
            raise DomainError(f"axis '{missing[0]}' has no coordinate")
        return dict(named)
    if len(point) != domain.rank:
        raise DomainError(
            f"{len(point)} coordinates for a domain with {domain.rank} axes {domain.names}"
        )
    return dict(zip(domain.names, point, strict=True))


def _as_integer(name: str, value: Any) -> int:
    if isinstance(value, (float, np.ndarray)) or not hasattr(type(value), "__index__"):
        raise DomainError(f"axis '{name}': coordinate {value!r} is not an integer")
    return int(value.__index__())


def _outside(kind: str, name: str, value: int, low: int, extent: int) -> str:
    return f"{kind} axis '{name}': {value} is outside [{low}, {low + extent})"


def apply_scalar(
    map: LayoutMap, point: tuple[int, ...], named: dict[str, int], params: Mapping[str, int]
) -> Value:
    """Return the checked value at one point."""
    known = {
        name: _as_integer(name, value)
        for name, value in _positional(map.domain, point, named).items()
    }
    map.domain.check_parameters(params)
    for axis in map.domain.axes:
        extent = axis.extent_at(params)
        if not axis.lower <= known[axis.name] < axis.lower + extent:
            text = _outside("domain", axis.name, known[axis.name], axis.lower, extent)
            raise DomainError(text)
    run = Evaluation({**params, **known})
    for guard in map.domain.guards:
        if not run.visit(guard):
            raise DomainError(f"domain guard '{guard}' does not hold at {known}")
    values = raw_value(map, run, params)
    _check_codomain(map.codomain, values, params)
    return values[0] if len(values) == 1 else values


def raw_value(map: LayoutMap, run: Evaluation, params: Mapping[str, int]) -> tuple[int, ...]:
    """Return the outputs at a domain point, intermediate obligations checked, codomain not."""
    for piece in map.pieces:
        if all(run.visit(guard) for guard in piece.guards):
            for check in piece.checks:
                _check_value(check, run.visit(check.value), params)
            return tuple(run.visit(output) for output in piece.outputs)
    raise DomainError("no piece covers this point of the domain")


def _check_value(check: Check, value: int, params: Mapping[str, int]) -> None:
    if check.axis is None:
        if not value:
            raise CodomainError(f"intermediate guard '{check.value}' does not hold")
        return
    extent = check.axis.extent_at(params)
    if not check.axis.lower <= value < check.axis.lower + extent:
        text = _outside("intermediate", check.axis.name, value, check.axis.lower, extent)
        raise CodomainError(text)


def _check_codomain(codomain: IndexSet, values: tuple[int, ...], params: Mapping[str, int]) -> None:
    for axis, value in zip(codomain.axes, values, strict=True):
        extent = axis.extent_at(params)
        if not axis.lower <= value < axis.lower + extent:
            raise CodomainError(_outside("codomain", axis.name, value, axis.lower, extent))
    if not codomain.guards:
        return
    run = Evaluation({**params, **dict(zip(codomain.names, values, strict=True))})
    for guard in codomain.guards:
        if not run.visit(guard):
            raise CodomainError(f"codomain guard '{guard}' does not hold at {values}")


def _require(inside: Any, values: IntArray, what: str, error: type[LayoutError]) -> None:
    if np.all(inside):
        return
    bad = ~np.broadcast_to(inside, values.shape)
    raise error(what.format(int(values[bad].flat[0])))


def _check_axes(
    kind: str,
    space: IndexSet,
    arrays: list[IntArray],
    params: Mapping[str, int],
    error: type[LayoutError],
) -> None:
    for axis, values in zip(space.axes, arrays, strict=True):
        low, extent = axis.lower, axis.extent_at(params)
        inside = (values >= low) & (values <= low + extent - 1)
        text = f"{kind} axis '{axis.name}': {{}} is outside [{low}, {low + extent})"
        _require(inside, values, text, error)


def apply_arrays(
    map: LayoutMap, point: tuple[Any, ...], named: dict[str, Any], params: Mapping[str, int]
) -> IntArray | tuple[IntArray, ...]:
    """Return the checked values over broadcast integer arrays."""
    given = _positional(map.domain, point, named)
    map.domain.check_parameters(params)
    arrays = []
    for name in map.domain.names:
        array = np.asarray(given[name])
        if array.dtype.kind not in "iu" and array.size:
            raise DomainError(f"axis '{name}': coordinates of dtype {array.dtype} are not integers")
        if array.dtype == np.uint64 and np.any(array > np.uint64(2**63 - 1)):
            raise DomainError(f"axis '{name}': a coordinate exceeds signed 64-bit range")
        arrays.append(array.astype(np.int64))
    shape = np.broadcast_shapes(*(a.shape for a in arrays)) if arrays else ()
    arrays = [np.broadcast_to(a, shape) for a in arrays]
    _check_axes("domain", map.domain, arrays, params, DomainError)
    flat = {n: a.reshape(-1) for n, a in zip(map.domain.names, arrays, strict=True)}
    size = int(np.prod(shape, dtype=np.int64))
    constants = {n: np.asarray(v, dtype=np.int64) for n, v in params.items()}
    for guard in map.domain.guards:
        _require_guard("domain", guard, flat, constants, size, DomainError)
    results = _piecewise(map.pieces, flat, constants, size, params, map.codomain.rank)
    _check_axes("codomain", map.codomain, results, params, CodomainError)
    targets = dict(zip(map.codomain.names, results, strict=True))
    for guard in map.codomain.guards:
        _require_guard("codomain", guard, targets, constants, size, CodomainError)
    shaped = tuple(r.reshape(shape) for r in results)
    return shaped[0] if len(shaped) == 1 else shaped


def _require_guard(
    kind: str,
    guard: Expr,
    values: dict[str, IntArray],
    constants: dict[str, IntArray],
    size: int,
    error: type[LayoutError],
) -> None:
    held = np.broadcast_to(ArrayEvaluation({**constants, **values}).visit(guard), (size,))
    if not np.all(held != 0):
        index = int(np.flatnonzero(held == 0)[0])
        at = {name: int(array[index]) for name, array in values.items()}
        raise error(f"{kind} guard '{guard}' does not hold at {at}")


def _piecewise(
    pieces: tuple[Piece, ...],
    flat: dict[str, IntArray],
    constants: dict[str, IntArray],
    size: int,
    params: Mapping[str, int],
    rank: int,
) -> list[IntArray]:
    results = [np.zeros(size, dtype=np.int64) for _ in range(rank)]
    pending = np.arange(size)
    for piece in pieces:
        chosen = pending
        for guard in piece.guards:
            run = ArrayEvaluation({**constants, **{n: a[chosen] for n, a in flat.items()}})
            held = np.broadcast_to(run.visit(guard), chosen.shape) != 0
            chosen = chosen[held]
        if chosen.size == 0:
            continue
        run = ArrayEvaluation({**constants, **{n: a[chosen] for n, a in flat.items()}})
        for check in piece.checks:
            values = np.broadcast_to(run.visit(check.value), chosen.shape)
            _check_array(check, values, params)
        for result, output in zip(results, piece.outputs, strict=True):
            result[chosen] = run.visit(output)
        pending = np.setdiff1d(pending, chosen, assume_unique=True)
    if pending.size:
        raise DomainError("no piece covers this point of the domain")
    return results


def _check_array(check: Check, values: IntArray, params: Mapping[str, int]) -> None:
    if check.axis is None:
        if not np.all(values != 0):
            raise CodomainError(f"intermediate guard '{check.value}' does not hold")
        return
    low, extent = check.axis.lower, check.axis.extent_at(params)
    inside = (values >= low) & (values <= low + extent - 1)
    text = f"intermediate axis '{check.axis.name}': {{}} is outside [{low}, {low + extent})"
    _require(inside, values, text, CodomainError)
