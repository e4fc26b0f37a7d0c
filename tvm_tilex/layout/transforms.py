"""Registered bijections: evaluator, index DAG and proof hooks, with a check against lies.

A hook is never taken at its word. :func:`check_transform` compares evaluator, DAG, inverse and
every hook point by point; proofs use a hook only where that check was exhaustive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.errors import TransformError
from tvm_tilex.layout.evaluate import evaluate
from tvm_tilex.layout.expr import Expr, call, coordinate

__all__ = [
    "EXHAUSTIVE_CHECK",
    "BoundTransform",
    "RegisteredTransform",
    "bind_transform",
    "check_transform",
    "register_transform",
    "transform_names",
]

EXHAUSTIVE_CHECK = 4096
_PROBE = "x"


@dataclass(frozen=True)
class RegisteredTransform:
    """A family of integer functions on ``[0, extent)``, selected by integer arguments.

    Parameters
    ----------
    name
        Identifier used in the text form.
    evaluate
        ``evaluate(x, *args) -> int``, the exact definition.
    expression
        ``expression(x, *args) -> Expr``, the index DAG; None if there is none (then it cannot be
        lowered, and generic proofs do not apply).
    inverse
        ``inverse(y, *args) -> int`` on the image, or None.
    image_extent
        Hook: ``[0, extent)`` is mapped into ``[0, image_extent(extent, *args))``.
    is_bijective
        Hook: whether ``[0, extent)`` is mapped bijectively onto ``[0, image_extent)``.
    validate
        Raises LayoutError for arguments outside the family.
    """

    name: str
    evaluate: Callable[..., int]
    expression: Callable[..., Expr] | None = None
    inverse: Callable[..., int] | None = None
    image_extent: Callable[..., int] | None = None
    is_bijective: Callable[..., bool] | None = None
    validate: Callable[..., None] | None = None


@dataclass(frozen=True)
class BoundTransform:
    """A registered transform with its arguments; prints as ``name(args)``."""

    transform: RegisteredTransform
    arguments: tuple[int, ...]

    def evaluate(self, value: int) -> int:
        """Return the exact value."""
        return int(self.transform.evaluate(value, *self.arguments))

    def expression(self, value: Expr) -> Expr:
        """Return the index DAG of the transform, or an opaque call where it has none."""
        if self.transform.expression is None:
            return call(self, value)
        return self.transform.expression(value, *self.arguments)

    def image_extent(self, extent: int) -> int:
        """Return the declared bound of the image of ``[0, extent)``; by default ``extent``."""
        hook = self.transform.image_extent
        return extent if hook is None else int(hook(extent, *self.arguments))

    def claims_bijective(self, extent: int) -> bool:
        """Whether the hook claims a bijection of ``[0, extent)`` onto its declared image."""
        hook = self.transform.is_bijective
        return hook is not None and bool(hook(extent, *self.arguments))

    def __reduce__(self) -> tuple[Any, ...]:
        return (bind_transform, (self.transform.name, self.arguments))

    def __str__(self) -> str:
        return f"{self.transform.name}({', '.join(map(str, self.arguments))})"


_registry: dict[str, RegisteredTransform] = {}


def register_transform(transform: RegisteredTransform) -> None:
    """Add ``transform``; a second, different one of that name raises TransformError."""
    if not transform.name.isidentifier():
        raise TransformError(f"'{transform.name}' is not an identifier")
    present = _registry.setdefault(transform.name, transform)
    if present != transform:
        raise TransformError(f"transform '{transform.name}' is already registered")


def transform_names() -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(sorted(_registry))


def bind_transform(name: str, arguments: tuple[int, ...]) -> BoundTransform:
    """Return the named transform with arguments; raise TransformError where there is none."""
    if name not in _registry:
        raise TransformError(f"no transform '{name}'; registered: {', '.join(transform_names())}")
    transform = _registry[name]
    if transform.validate is not None:
        try:
            transform.validate(*arguments)
        except TypeError:
            raise TransformError(f"{name} does not take {len(arguments)} arguments") from None
    return BoundTransform(transform, arguments)


def _sample(extent: int) -> list[int]:
    if extent <= EXHAUSTIVE_CHECK:
        return list(range(extent))
    edges = {0, 1, extent - 2, extent - 1}
    edges.update(1 << k for k in range(extent.bit_length()) if 1 << k < extent)
    spread = {(k * 0x9E3779B97F4A7C15) % extent for k in range(1024)}
    return sorted(edges | spread | set(range(512)))


@lru_cache(maxsize=512)
def check_transform(bound: BoundTransform, extent: int) -> bool:
    """Check evaluator, DAG, inverse and hooks on ``[0, extent)``.

    Returns whether the check was exhaustive (extents up to 4096); larger extents are sampled.

    Raises
    ------
    TransformError
        Naming the part that contradicts the evaluator and the point.
    """
    image = bound.image_extent(extent)
    bijective = bound.claims_bijective(extent)
    dag = bound.expression(coordinate(_PROBE)) if bound.transform.expression else None
    seen: dict[int, int] = {}
    points = _sample(extent)
    for x in points:
        y = bound.evaluate(x)
        _check_point(bound, x, y, dag)
        if not 0 <= y < image:
            raise TransformError(f"{bound}: image_extent claims {image}, but {x} maps to {y}")
        if bijective and seen.setdefault(y, x) != x:
            raise TransformError(f"{bound}: is_bijective lies, {seen[y]} and {x} map to {y}")
    exhaustive = len(points) == extent
    if bijective and exhaustive and len(seen) != image:
        raise TransformError(f"{bound}: is_bijective lies, {len(seen)} of {image} values reached")
    return exhaustive


def _check_point(bound: BoundTransform, x: int, y: int, dag: Expr | None) -> None:
    if dag is not None:
        try:
            value = evaluate(dag, {_PROBE: x})
        except LayoutError as error:
            raise TransformError(f"{bound}: the DAG fails at {x}: {error}") from None
        if value != y:
            raise TransformError(f"{bound}: at {x} the DAG gives {value}, the evaluator {y}")
    inverse = bound.transform.inverse
    if inverse is not None and inverse(y, *bound.arguments) != x:
        back = inverse(y, *bound.arguments)
        raise TransformError(f"{bound}: inverse({y}) is {back}, not {x}")


def _swizzle_masks(bits: int, base: int, shift: int) -> int:
    return ((1 << bits) - 1) << (base + max(shift, 0))


def _swizzle_validate(bits: int, base: int, shift: int) -> None:
    if bits < 0 or base < 0 or abs(shift) < bits:
        raise TransformError(
            f"xor_swizzle({bits}, {base}, {shift}): needs bits, base >= 0 and |shift| >= bits"
        )
    if bits + base + abs(shift) > 62:
        raise TransformError(f"xor_swizzle({bits}, {base}, {shift}): more than 62 bits")


def _swizzle_evaluate(x: int, bits: int, base: int, shift: int) -> int:
    selected = x & _swizzle_masks(bits, base, shift)
    return x ^ (selected >> shift if shift >= 0 else selected << -shift)


def _swizzle_expression(x: Expr, bits: int, base: int, shift: int) -> Expr:
    if bits == 0:
        return x
    selected = x & _swizzle_masks(bits, base, shift)
    return x ^ (selected >> shift if shift >= 0 else selected << -shift)


def _swizzle_image(extent: int, bits: int, base: int, shift: int) -> int:
    if bits == 0:
        return extent
    period = 1 << (bits + base + abs(shift))
    return -(-extent // period) * period


register_transform(
    RegisteredTransform(
        name="xor_swizzle",
        evaluate=_swizzle_evaluate,
        expression=_swizzle_expression,
        inverse=_swizzle_evaluate,
        image_extent=_swizzle_image,
        is_bijective=lambda extent, *args: _swizzle_image(extent, *args) == extent,
        validate=_swizzle_validate,
    )
)
