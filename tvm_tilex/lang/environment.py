"""What a kernel's body reads beside its arguments, as a value that cache keys can hold.

Two calls may share a compiled kernel only if capturing it again would give the same program. The
fingerprint follows every name the body can read: closure cells, globals, helper functions with
their defaults and whatever *they* read, containers, and the attributes of modules and objects
that the code mentions. Anything else counts by identity, and is kept alive so that its identity
isn't given to another object.

The walk costs tens of microseconds and every call needs its answer, so it notes which names it
looked up where: while each of those lookups gives the same object, the fingerprint stands. Where
it met something whose contents change in place (a list, an array), it is taken again each time.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tvm_tilex.ir.types import Axis, DType

__all__ = ["Environment", "environment"]

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


_MISSING = object()


class Environment:
    """A fingerprint: equal where capture would read equal values. Its hash is taken once."""

    __slots__ = ("_hash", "_lookups", "_value")

    def __init__(self, function: Callable[..., Any]) -> None:
        walk = _Walk()
        self._value = walk.function(function, frozenset())
        self._hash = hash(self._value)
        self._lookups = walk.lookups() if walk.repeatable else None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Environment) and self._value == other._value

    def __hash__(self) -> int:
        return self._hash

    def stands(self) -> bool:
        """Whether every lookup of the walk would still find the same object."""
        if self._lookups is None:
            return False
        try:
            for get, found in self._lookups:
                if not all(map(operator.is_, get(), found)):
                    return False
        except (KeyError, ValueError):  # a name was deleted, or a closure cell emptied
            return False
        return True


def environment(function: Callable[..., Any]) -> Environment:
    """Return a hashable fingerprint of the values that ``function`` can read."""
    return Environment(function)


Lookup = tuple[Callable[[], Sequence[Any]], Sequence[Any]]


class _Walk:
    """One walk over what a function can read, and the lookups that it made."""

    def __init__(self) -> None:
        self.repeatable = True  # nothing met so far changes in place
        self._objects: list[Lookup] = []
        self._namespaces: dict[int, tuple[Mapping[str, Any], set[str]]] = {}

    def lookups(self) -> tuple[Lookup, ...]:
        """What to look up again, each with the objects that it must find."""
        found = list(self._objects)
        for namespace, names in self._namespaces.values():
            present, absent = sorted(names & namespace.keys()), sorted(names - namespace.keys())
            get = functools.partial(_several, namespace, present)
            if present:
                found.append((get, get()))
            if absent:
                missing = functools.partial(namespace.keys().isdisjoint, absent)
                found.append((lambda missing=missing: (missing(),), (True,)))
        return tuple(found)

    def _look_up(self, namespace: Mapping[str, Any], names: Iterable[str]) -> None:
        self._namespaces.setdefault(id(namespace), (namespace, set()))[1].update(names)

    def _look_at(self, get: Callable[[], Sequence[Any]]) -> None:
        self._objects.append((get, get()))

    def function(self, function: Any, seen: frozenset[int]) -> Hashable:
        if id(function) in seen:
            return "recursive"
        module = function.__module__ or ""
        if module.split(".")[0] == _PACKAGE and ".kernels." not in module:
            return _Identity(function)  # the language itself
        seen |= {id(function)}
        self._look_at(functools.partial(_PARTS, function))
        code = function.__code__
        names = frozenset(_names(code))
        cells = tuple(zip(code.co_freevars, function.__closure__ or (), strict=True))
        read = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
        self.repeatable &= len(read) == len(cells)
        if len(read) == len(cells) > 0:
            self._look_at(lambda: [cell.cell_contents for _, cell in cells])
        self._look_up(function.__globals__, names)
        for name in sorted(names & function.__globals__.keys()):
            read.setdefault(name, function.__globals__[name])
        values = tuple((name, self.value(value, names, seen)) for name, value in read.items())
        keywords = function.__kwdefaults__ or {}
        self._look_up(keywords, keywords)
        defaults = (
            self.value(function.__defaults__, names, seen),
            tuple((name, self.value(value, names, seen)) for name, value in keywords.items()),
        )
        return code, values, defaults

    def value(self, value: Any, names: frozenset[str], seen: frozenset[int]) -> Hashable:
        kind = type(value)
        if isinstance(value, float):
            return kind, value.hex()  # tells -0.0 from 0.0, and NaN equals itself
        if isinstance(value, _SCALARS):
            return kind, value  # the type tells 1 from True
        if inspect.isfunction(value):
            return self.function(value, seen)
        if id(value) in seen:
            return "recursive"
        seen |= {id(value)}
        recur = functools.partial(self.value, names=names, seen=seen)
        if isinstance(value, tuple):
            return kind, tuple(map(recur, value))
        if isinstance(value, functools.partial):
            return kind, recur(value.func), recur(value.args), recur(value.keywords)
        if isinstance(value, (list, dict, set, frozenset)) or hasattr(value, "tobytes"):
            self.repeatable &= isinstance(value, frozenset)
            return self._contents(value, recur)
        return self._object(value, names, recur)

    def _contents(self, value: Any, recur: Callable[[Any], Hashable]) -> Hashable:
        kind = type(value)
        if isinstance(value, list):
            return kind, tuple(map(recur, value))
        if isinstance(value, dict):
            return kind, tuple((recur(key), recur(item)) for key, item in value.items())
        if isinstance(value, (set, frozenset)):
            return kind, frozenset(map(recur, value))
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
        return kind, str(dtype), shape, value.tobytes()

    def _object(
        self, value: Any, names: frozenset[str], recur: Callable[[Any], Hashable]
    ) -> Hashable:
        attributes = vars(value) if hasattr(value, "__dict__") else {}
        self.repeatable &= type(attributes) is dict  # a class gives a new view each time
        self._look_up(attributes, names)
        if attributes and not isinstance(value, types.ModuleType):
            self._look_at(lambda: (value.__dict__,))
        mentioned = sorted(names & attributes.keys())
        return _Identity(value), tuple((name, recur(attributes[name])) for name in mentioned)


_PARTS = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")


def _several(namespace: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    return [namespace[name] for name in names]


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
