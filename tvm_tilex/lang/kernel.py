"""The ``@tile_kernel`` decorator: signature, capture and direct calls."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm_tilex.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from tvm_tilex.ir.index import MAX_EXTENT, Dimension, Extent, most
from tvm_tilex.ir.program import Group, Parallel, Pipeline, Program, Statement, Store, View
from tvm_tilex.ir.types import DType, dtype_of
from tvm_tilex.lang.capture import Capture, capturing
from tvm_tilex.lang.environment import Environment, environment
from tvm_tilex.lang.tensor import CapturedView, ViewSpec
from tvm_tilex.support.srcloc import SourceLocation, caller_location

__all__ = ["TensorSpec", "TileKernel", "dynamic", "spec", "tile_kernel"]

_STATIC_TYPES = (bool, int, float, str, tuple, type(None), DType)


@dataclass(frozen=True)
class TensorSpec:
    """Shape and element type of an argument; ``dtype`` None takes the annotation's first."""

    shape: tuple[Extent, ...]
    dtype: DType | None = None


def dynamic(name: str, *, max: int | None = None, min: int | None = None) -> Dimension:
    """A dimension of a spec that is known only when the kernel is launched.

    Equal names mean equal extents over all arguments.

    Parameters
    ----------
    name
        An identifier. In a shape the text alone stands for ``dynamic(name)``.
    max
        Largest extent; needed where tiles run along the dimension, since it bounds their storage.
        Without it the dimension counts programs: 0 to 2**31 - 1.
    min
        Smallest extent; by default 1 where ``max`` is given, else 0.

    Raises
    ------
    ShapeError
        If the name is no identifier or the range is empty.
    """
    where = caller_location()
    least = min if min is not None else int(max is not None)
    try:
        return Dimension(name, least, MAX_EXTENT if max is None else operator.index(max))
    except ShapeError as error:
        raise ShapeError(str(error), location=where) from None
    except (TypeError, AttributeError):
        raise ShapeError(
            f"dynamic: {name!r}, max={max!r}, min={min!r} are not a name and integers",
            location=where,
        ) from None


def spec(shape: Sequence[int | str | Dimension], dtype: str | DType | None = None) -> TensorSpec:
    """Describe an argument by shape and element type, without data.

    An extent is an integer, or a dynamic dimension (:func:`dynamic`, or its name as text).

    Raises
    ------
    ShapeError, DTypeError
        If an extent is negative or no integer, or the language has no such element type.
    """
    where = caller_location()
    try:
        extents = tuple(map(_spec_extent, shape))
    except TypeError:
        raise ShapeError(f"spec: {shape!r} is not a tuple of integers", location=where) from None
    except ShapeError as error:
        raise ShapeError(f"spec: {error}", location=where) from None
    if any(isinstance(extent, int) and extent < 0 for extent in extents):
        raise ShapeError(f"spec: {extents} has a negative extent", location=where)
    try:
        return TensorSpec(extents, None if dtype is None else dtype_of(dtype))
    except DTypeError as error:
        raise DTypeError(str(error), location=where) from None


def _spec_extent(extent: Any) -> Extent:
    if isinstance(extent, Dimension):
        return extent
    return Dimension(extent) if isinstance(extent, str) else operator.index(extent)


class TileKernel:
    """A tile kernel: a Python function over tensor views, captured once per argument types.

    Positional parameters are views. Keyword-only parameters with a default are compile-time
    constants, part of every cache key.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.artifacts: dict[Any, Any] = {}  # compiled for the argument types seen so far
        self.rows: dict[Any, Any] = {}  # which extents of such calls count programs
        self.launches: dict[Any, Callable[[Sequence[Any]], bool]] = {}  # short ways of artifacts
        self._environment: Environment | None = None
        self.location = SourceLocation(
            function.__code__.co_filename, function.__code__.co_firstlineno
        )

    def __repr__(self) -> str:
        return f"<tile kernel {self.name} at {self.location}>"

    @functools.cached_property
    def parameters(self) -> Mapping[str, ViewSpec]:
        """The views in call order, by name."""
        return self._signature[0]

    @functools.cached_property
    def static_defaults(self) -> Mapping[str, Any]:
        """The compile-time constants and their defaults."""
        return self._signature[1]

    @functools.cached_property
    def _signature(self) -> tuple[dict[str, ViewSpec], dict[str, Any]]:
        views: dict[str, ViewSpec] = {}
        static: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                if parameter.default is parameter.empty:
                    raise CaptureError(
                        f"{self.name}: the keyword-only parameter {name!r} needs a default",
                        location=self.location,
                    )
                static[name] = parameter.default
                continue
            annotation = self._annotation(name, parameter.annotation)
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or not isinstance(
                annotation, ViewSpec
            ):
                raise CaptureError(
                    f"{self.name}: annotate the parameter {name!r} with "
                    "tx.TensorView[dtype, rank, ...] (or make it keyword-only with a default)",
                    location=self.location,
                )
            views[name] = annotation
        return views, static

    def _annotation(self, name: str, annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        # `from __future__ import annotations` left the text.
        closure = inspect.getclosurevars(self.function)
        scope = {**self.function.__globals__, **closure.nonlocals}
        try:
            return eval(annotation, scope)
        except CaptureError as error:  # its location is inside the evaluated text
            _, _, message = str(error).partition(": ")
            raise type(error)(f"{self.name}: {name!r}: {message}", location=self.location) from None
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise CaptureError(
                f"{self.name}: the annotation of {name!r} cannot be evaluated ({error})",
                location=self.location,
            ) from None

    def capture(
        self, specs: Sequence[TensorSpec], static: Mapping[str, Any] | None = None
    ) -> Program:
        """Run the Python body once with symbolic values and return the program.

        Parameters
        ----------
        specs
            One per view, in call order.
        static
            Values of compile-time constants that differ from their defaults.

        Raises
        ------
        CaptureError, ShapeError, DTypeError, ArgumentError
            If the body breaks a rule of the language or the specs do not fit the signature.
        """
        views = self._views(specs)
        capture = Capture(self.name, views)
        with capturing(capture):
            self.function(*map(CapturedView, views), **self.static_values(static))
        if capture.abandoned is not None or capture.open_nests:
            raise CaptureError(
                f"{self.name}: the body of parallel(...) was left by break or return",
                location=capture.abandoned or capture.open_nests[0].location,
            )
        if not any(map(_stores, capture.body)):
            raise CaptureError(f"{self.name}: the kernel stores nothing", location=self.location)
        capture.require_outputs_written()
        return Program(self.name, views, tuple(capture.body))

    def static_values(self, static: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return defaults overlaid with ``static``, checked by name and type."""
        values = dict(self.static_defaults)
        for name, value in (static or {}).items():
            if name not in values:
                known = ", ".join(values) or "none"
                raise ArgumentError(
                    f"{self.name}: no compile-time constant {name!r} (it has {known})",
                    location=caller_location(),
                )
            if not isinstance(value, _STATIC_TYPES):
                raise ArgumentError(
                    f"{self.name}: the constant {name!r} is a {type(value).__name__}, "
                    "not a number, text or tuple",
                    location=caller_location(),
                )
            values[name] = value
        return values

    def _views(self, specs: Sequence[TensorSpec]) -> tuple[View, ...]:
        if len(specs) != len(self.parameters):
            raise ArgumentError(
                f"{self.name} takes {len(self.parameters)} tensors "
                f"({', '.join(self.parameters)}), not {len(specs)}",
                location=caller_location(),
            )
        pairs = zip(self.parameters.items(), self._one_range_a_name(specs), strict=True)
        views = tuple(self._view(name, annotation, given) for (name, annotation), given in pairs)
        self._require_equal_extents(views)
        return views

    def _one_range_a_name(self, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
        """Give a dimension that is named only, without a range, the range stated elsewhere."""
        stated: dict[str, Dimension] = {}
        for given in specs:
            for extent in given.shape:
                if not isinstance(extent, Dimension) or extent == Dimension(extent.name):
                    continue
                known = stated.setdefault(extent.name, extent)
                if known != extent:
                    raise ShapeError(
                        f"{self.name}: the dynamic extent {extent.name} is {known.range} and "
                        f"{extent.range}",
                        location=caller_location(),
                    )

        def ranged(extent: Extent) -> Extent:
            return stated.get(extent.name, extent) if isinstance(extent, Dimension) else extent

        return [replace(given, shape=tuple(map(ranged, given.shape))) for given in specs]

    def _require_equal_extents(self, views: tuple[View, ...]) -> None:
        known: dict[str, tuple[View, Extent]] = {}
        for view in views:
            for dimension, name in enumerate(self.parameters[view.name].dimensions or ()):
                first, extent = known.setdefault(name, (view, view.shape[dimension]))
                if view.shape[dimension] != extent:
                    raise ShapeError(
                        f"{self.name}: {view.name!r} has the shape {_text(view.shape)}, its "
                        f"dimension {dimension} ({name}) is {extent} in {first.name!r} "
                        f"{_text(first.shape)}",
                        location=caller_location(),
                    )

    def _view(self, name: str, annotation: ViewSpec, given: TensorSpec) -> View:
        if len(given.shape) != annotation.rank:
            raise ShapeError(
                f"{self.name}: {name!r} has rank {len(given.shape)} {given.shape}, "
                f"its annotation says {annotation.rank}",
                location=caller_location(),
            )
        if any(most(extent) < 0 for extent in given.shape):
            raise ShapeError(
                f"{self.name}: {name!r} has a negative extent {given.shape}",
                location=caller_location(),
            )
        dtype = given.dtype or annotation.dtypes[0]
        if dtype not in annotation.dtypes:
            allowed = " or ".join(map(str, annotation.dtypes))
            raise DTypeError(
                f"{self.name}: {name!r} is {dtype}, its annotation says {allowed}",
                location=caller_location(),
            )
        return View(name, dtype, given.shape, annotation.access, annotation.bounds)

    def environment(self) -> Hashable:
        """Fingerprint of the values that the body reads beside its arguments, for cache keys."""
        known = self._environment
        if known is None or not known.stands():
            self._environment = known = environment(self.function)
        return known

    def __call__(self, *arguments: Any, **options: Any) -> None:
        """Compile for these arguments (cached) and run; outputs are written in place."""
        from tvm_tilex.driver import call

        call(self, arguments, options)


def _stores(statement: Statement) -> bool:
    if isinstance(statement, Parallel | Group | Pipeline):
        return any(map(_stores, statement.body))
    return isinstance(statement, Store)


def tile_kernel(function: Callable[..., None]) -> TileKernel:
    """Make a tile kernel of a function over ``tx.TensorView`` parameters."""
    if not inspect.isfunction(function):
        raise CaptureError(f"@tile_kernel takes a function, not {type(function).__name__}")
    return TileKernel(function)


def _text(shape: Sequence[Extent]) -> str:
    """A shape as Python writes it, with dynamic extents by name."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
