"""``index_map``: run a pure index function once on symbolic coordinates and normalize it."""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, NoReturn

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.composite import Piecewise
from tvm_tilex.layout.errors import TracingError
from tvm_tilex.layout.expr import Expr, ExprLike, as_expr, negate_predicate, tracing
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.nodes import IndexExpr
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.support.srcloc import SourceLocation

__all__ = ["Choice", "choose", "index_map"]

_EFFECTS = {
    "STORE_GLOBAL": "a store to the global",
    "STORE_NAME": "a store to the name",
    "STORE_DEREF": "a store to the enclosing variable",
    "STORE_ATTR": "a store to the attribute",
    "STORE_SUBSCR": "a store to an element",
    "DELETE_SUBSCR": "a deletion of an element",
    "DELETE_ATTR": "a deletion of the attribute",
    "DELETE_GLOBAL": "a deletion of the global",
    "IMPORT_NAME": "an import of",
    "YIELD_VALUE": "a yield",
}
_EFFECT_CALLS = frozenset({"print", "open", "input", "exec", "eval", "setattr", "delattr"})


@dataclass(frozen=True)
class Choice:
    """``then`` where ``condition`` holds, else ``otherwise``: returned, never computed with."""

    condition: Expr
    then: Any
    otherwise: Any

    def _refuse(self, *_: object) -> NoReturn:
        raise TracingError("choose() gives a branch to return; arithmetic goes inside its branches")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __floordiv__ = __mod__ = __xor__ = __and__ = __lshift__ = __rshift__ = _refuse
    __bool__ = __index__ = __int__ = _refuse


def choose(condition: ExprLike, then: Any, otherwise: Any) -> Choice:
    """Return a branch of an index function: ``then`` where ``condition`` holds.

    ``then`` and ``otherwise`` are what the function could have returned itself: expressions,
    tuples of expressions, or further choices. Only the chosen branch is ever evaluated.
    """
    return Choice(as_expr(condition), then, otherwise)


def _refuse_effects(function: Callable[..., Any]) -> None:
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        _scan(code)


def _scan(code: CodeType) -> None:
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        position = getattr(getattr(instruction, "positions", None), "lineno", None)
        line = position or line
        location = SourceLocation(code.co_filename, line)
        name = instruction.opname
        if name == "YIELD_VALUE" and code.co_name == "<genexpr>":
            continue
        if name in _EFFECTS:
            subject = f" '{instruction.argval}'" if isinstance(instruction.argval, str) else ""
            raise TracingError(
                f"an index function has no effects: {_EFFECTS[name]}{subject}", location=location
            )
        if name in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval in _EFFECT_CALLS:
            raise TracingError(
                f"an index function has no effects: a call of '{instruction.argval}'",
                location=location,
            )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _scan(constant)


def index_map(
    domain: IndexSet, codomain: IndexSet, function: Callable[..., Any], *, normal: bool = True
) -> LayoutMap:
    """Return the map that ``function`` describes, in the strongest node that is proved equal.

    Parameters
    ----------
    domain, codomain
        Index sets; ``function`` gets one symbolic coordinate per domain axis, in order.
    function
        A pure function; it is run exactly once. It returns one expression per codomain axis (a
        single one may be bare), or :func:`choose` of such.
    normal
        False keeps the raw expressions.

    Raises
    ------
    TracingError
        With the user's line, where the function branches on a symbol, loads or has an effect.
    LayoutError
        Where the number of values does not fit, or branches are not proved disjoint.
    """
    _refuse_effects(function)
    with tracing:
        try:
            result = function(*domain.coordinates)
        except (IndexError, TypeError) as error:
            # NumPy and sequences report a symbolic index in their own words.
            raise TracingError(
                f"an index function cannot load, or use a symbol as data: {error}",
                location=_where(error),
            ) from None
    return _assemble(domain, codomain, result, normal)


def _where(error: BaseException) -> SourceLocation | None:
    trace = error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return SourceLocation(trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _assemble(domain: IndexSet, codomain: IndexSet, result: Any, normal: bool) -> LayoutMap:
    branches: list[tuple[tuple[Expr, ...], Any]] = []
    _flatten_choices(result, (), branches)
    if len(branches) == 1:
        raw = IndexExpr(domain, codomain, _values(branches[0][1], codomain))
        return normalize(raw) if normal else raw
    maps: list[LayoutMap] = []
    for guards, value in branches:
        raw = IndexExpr(domain.where(*guards), codomain, _values(value, codomain))
        maps.append(normalize(raw) if normal else raw)
    return Piecewise(tuple(guards for guards, _ in branches), tuple(maps), domain)


def _flatten_choices(
    value: Any, guards: tuple[Expr, ...], out: list[tuple[tuple[Expr, ...], Any]]
) -> None:
    if isinstance(value, (tuple, list)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Choice):
        out.append((guards, value))
        return
    _flatten_choices(value.then, (*guards, value.condition), out)
    _flatten_choices(value.otherwise, (*guards, negate_predicate(value.condition)), out)


def _values(value: Any, codomain: IndexSet) -> tuple[Expr, ...]:
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(item, Choice) for item in items):
        raise TracingError("choose() must choose the whole tuple of values, not one of them")
    if len(items) != codomain.rank:
        raise LayoutError(
            f"the index function returns {len(items)} values for the codomain axes {codomain.names}"
        )
    return tuple(as_expr(item) for item in items)
