"""What a kernel's body reads beside its arguments, as a value that cache keys can hold.

Two calls may share a compiled kernel only if capturing it again would give the same program. The
fingerprint follows every name the body can read: closure cells, globals, helper functions with
their defaults and whatever *they* read, containers, and the attributes of modules and objects
that the code mentions. Anything else counts by identity, and is kept alive so that its identity
isn't given to another object.
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from tvm_tilex.ir.types import Axis, DType

__all__ = ["environment"]

_PACKAGE = __name__.split(".")[0]
_SCALARS = (bool, int, str, bytes, complex, type(None), enum.Enum, DType, Axis)


class _Identity:
    """An object that equals only itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def environment(function: Callable[..., Any]) -> Hashable:
    """Return a hashable fingerprint of the values that ``function`` can read."""
    return _function(function, frozenset())


def _function(function: Any, seen: frozenset[int]) -> Hashable:
    if id(function) in seen:
        return "recursive"
    module = function.__module__ or ""
    if module.split(".")[0] == _PACKAGE and ".kernels." not in module:
        return _Identity(function)  # the language itself
    seen |= {id(function)}
    code = function.__code__
    names = frozenset(_names(code))
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    read = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    for name in sorted(names & function.__globals__.keys()):
        read.setdefault(name, function.__globals__[name])
    values = tuple((name, _value(value, names, seen)) for name, value in read.items())
    defaults = (function.__defaults__, function.__kwdefaults__)
    return code, values, _value(defaults, names, seen)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:  # lambdas and comprehensions
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _value(value: Any, names: frozenset[str], seen: frozenset[int]) -> Hashable:
    kind = type(value)
    if isinstance(value, float):
        return kind, value.hex()  # tells -0.0 from 0.0, and NaN equals itself
    if isinstance(value, _SCALARS):
        return kind, value  # the type tells 1 from True
    if inspect.isfunction(value):
        return _function(value, seen)
    if id(value) in seen:
        return "recursive"
    seen |= {id(value)}
    recur = functools.partial(_value, names=names, seen=seen)
    if isinstance(value, (list, tuple)):
        return kind, tuple(map(recur, value))
    if isinstance(value, dict):
        return kind, tuple((recur(key), recur(item)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return kind, frozenset(map(recur, value))
    if isinstance(value, functools.partial):
        return kind, recur(value.func), recur(value.args), recur(value.keywords)
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return kind, str(value.dtype), value.shape, value.tobytes()
    attributes = vars(value) if hasattr(value, "__dict__") else {}
    mentioned = sorted(names & attributes.keys())
    return _Identity(value), tuple((name, recur(attributes[name])) for name in mentioned)
