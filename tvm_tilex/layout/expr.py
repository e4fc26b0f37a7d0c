"""The interned integer expression DAG: leaves, operations, symbolic comparison.

Expressions are effect-free and immutable. Equal expressions are the same object, so identity is
equality and analyses may memoize per node. Nothing is folded on construction: proofs must see
every subexpression that the user wrote, because any of them may overflow signed 64-bit range.
"""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast
from weakref import WeakValueDictionary

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.errors import TracingError
from tvm_tilex.support.srcloc import caller_location

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "Call",
    "Constant",
    "Coordinate",
    "Expr",
    "ExprLike",
    "Lookup",
    "Op",
    "Operation",
    "Parameter",
    "as_expr",
    "constant",
    "coordinate",
    "eq",
    "le",
    "lt",
    "ne",
    "negate_predicate",
    "parameter",
    "tracing",
]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_PACKAGE = str(Path(__file__).resolve().parent)


class Op(Enum):
    """Binary operations; the value is the operator of the text form."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "//"
    MOD = "%"
    XOR = "^"
    AND = "&"
    SHL = "<<"
    SHR = ">>"
    LT = "<"
    LE = "<="
    EQ = "=="
    NE = "!="

    __hash__ = object.__hash__  # members are singletons; the default hashes the name each time


COMPARISONS = frozenset({Op.LT, Op.LE, Op.EQ, Op.NE})
_NEGATION = {Op.EQ: Op.NE, Op.NE: Op.EQ}


class _Tracing:
    """Whether an index function is being run on symbols (then ``==`` on a symbol is refused)."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


tracing = _Tracing()
_interned: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()


def _refuse(rule: str) -> NoReturn:
    raise TracingError(rule, location=caller_location())


class Expr:
    """A node of the DAG. Built by operators, :func:`eq`, :func:`lt` and the leaf constructors."""

    __slots__ = ("__weakref__",)

    def __add__(self, other: ExprLike) -> Expr:
        return operation(Op.ADD, self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return operation(Op.ADD, other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return operation(Op.SUB, self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return operation(Op.SUB, other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return operation(Op.MUL, self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return operation(Op.MUL, other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return operation(Op.DIV, self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return operation(Op.DIV, other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return operation(Op.MOD, self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return operation(Op.MOD, other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return operation(Op.XOR, self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return operation(Op.XOR, other, self)

    def __and__(self, other: ExprLike) -> Expr:
        return operation(Op.AND, self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return operation(Op.AND, other, self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return operation(Op.SHL, self, other)

    def __rlshift__(self, other: ExprLike) -> Expr:
        return operation(Op.SHL, other, self)

    def __rshift__(self, other: ExprLike) -> Expr:
        return operation(Op.SHR, self, other)

    def __rrshift__(self, other: ExprLike) -> Expr:
        return operation(Op.SHR, other, self)

    def __neg__(self) -> Expr:
        return operation(Op.SUB, 0, self)

    def __lt__(self, other: ExprLike) -> Expr:
        return operation(Op.LT, self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return operation(Op.LE, self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return operation(Op.LT, other, self)

    def __ge__(self, other: ExprLike) -> Expr:
        return operation(Op.LE, other, self)

    def __eq__(self, other: object) -> bool:
        if tracing.depth and other is not self:
            _refuse(f"'==' on the symbol '{self}' would be decided now; use eq() or ne()")
        if isinstance(other, int) and not isinstance(other, bool):
            file = sys._getframe(1).f_code.co_filename
            if file != "<string>" and not file.startswith(_PACKAGE):
                _refuse(f"'==' compares the symbol '{self}' with a number; use eq() or ne()")
        return self is other

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        _refuse(f"the symbol '{self}' has no truth value; an index function cannot branch on it")

    def __index__(self) -> int:
        _refuse(f"a load or an index by the symbol '{self}': an index function cannot read data")

    def __int__(self) -> int:
        _refuse(f"the symbol '{self}' has no value while the index function runs")

    def __iter__(self) -> NoReturn:
        _refuse(f"the symbol '{self}' is a single integer and cannot be unpacked")

    def __truediv__(self, other: object) -> NoReturn:
        _refuse(f"'/' on the symbol '{self}': index arithmetic has floor division '//' only")

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        from tvm_tilex.layout.text import brief

        return brief(self, 4000)


ExprLike = Expr | int


class Evaluator(Protocol):
    """A named pure scalar function; equal evaluators hash alike."""

    def evaluate(self, value: int) -> int:
        """Return the function's value at ``value``."""

    def __hash__(self) -> int: ...


class Constant(Expr):
    """A signed 64-bit integer."""

    __slots__ = ("value",)
    value: int

    def __reduce__(self) -> tuple[Any, ...]:
        return (constant, (self.value,))


class Coordinate(Expr):
    """The coordinate of a named axis."""

    __slots__ = ("name",)
    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return (coordinate, (self.name,))


class Parameter(Expr):
    """A named integer, fixed during one use of the map, declared to lie in [lower, upper]."""

    __slots__ = ("lower", "name", "upper")
    name: str
    lower: int
    upper: int

    def __reduce__(self) -> tuple[Any, ...]:
        return (parameter, (self.name, self.lower, self.upper))


class Operation(Expr):
    """A binary operation."""

    __slots__ = ("left", "op", "right")
    op: Op
    left: Expr
    right: Expr

    def __reduce__(self) -> tuple[Any, ...]:
        return (operation, (self.op, self.left, self.right))


class Lookup(Expr):
    """``values[flatten(indices)]`` in row-major order: the DAG form of a finite table column."""

    __slots__ = ("indices", "shape", "values")
    values: tuple[int, ...]
    shape: tuple[int, ...]
    indices: tuple[Expr, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return (lookup, (self.values, self.shape, self.indices))


class Call(Expr):
    """A registered transform without a DAG, applied to an expression: evaluated, never lowered."""

    __slots__ = ("evaluator", "operand")
    evaluator: Evaluator
    operand: Expr

    def __reduce__(self) -> tuple[Any, ...]:
        return (call, (self.evaluator, self.operand))


def _intern(cls: type[Expr], key: tuple[Any, ...], **fields: Any) -> Expr:
    found = _interned.get(key)
    if found is not None:
        return found
    node = object.__new__(cls)
    for name, value in fields.items():
        setattr(node, name, value)
    _interned[key] = node
    return node


def constant(value: int) -> Constant:
    """Return the interned constant; raise LayoutError outside signed 64-bit range."""
    found = _interned.get((Constant, value))
    if found is not None:
        return cast(Constant, found)
    value = int(value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise LayoutError(f"constant {value} is outside signed 64-bit range")
    return cast(Constant, _intern(Constant, (Constant, value), value=value))


def _check_name(name: str) -> str:
    if not name.isidentifier():
        raise LayoutError(f"'{name}' is not an identifier and cannot name an axis or parameter")
    return name


def coordinate(name: str) -> Coordinate:
    """Return the coordinate of the axis called ``name``."""
    found = _interned.get((Coordinate, name))
    if found is None:
        found = _intern(Coordinate, (Coordinate, name), name=_check_name(name))
    return cast(Coordinate, found)


def parameter(name: str, lower: int, upper: int) -> Parameter:
    """Return the parameter ``name`` with its declared inclusive range."""
    if not INT64_MIN <= lower <= upper <= INT64_MAX:
        raise LayoutError(f"parameter '{name}' has the impossible range [{lower}, {upper}]")
    key = (Parameter, _check_name(name), lower, upper)
    return cast(Parameter, _intern(Parameter, key, name=name, lower=lower, upper=upper))


def as_expr(value: ExprLike) -> Expr:
    """Return ``value`` as an expression; refuse anything but an expression or an integer."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return constant(int(value))
    rank: Any = getattr(value, "ndim", 0)
    if not hasattr(type(value), "__index__") or rank:
        kind = type(value).__name__
        _refuse(f"'{kind}' is not an integer index expression (a load or an effect is not either)")
    return constant(value.__index__())


def operation(op: Op, left: ExprLike, right: ExprLike) -> Expr:
    """Return the interned operation on two expressions or integers."""
    a = left if isinstance(left, Expr) else as_expr(left)
    b = right if isinstance(right, Expr) else as_expr(right)
    # Ids are stable while the node lives: it holds its operands, and dies out of the table first.
    key = (op, id(a), id(b))
    found = _interned.get(key)
    if found is not None:
        return found
    node = object.__new__(Operation)
    node.op, node.left, node.right = op, a, b
    _interned[key] = node
    return node


def lookup(values: tuple[int, ...], shape: tuple[int, ...], indices: tuple[Expr, ...]) -> Expr:
    """Return the table read ``values[indices]``; ``values`` is row-major over ``shape``."""
    key = (Lookup, values, shape, tuple(id(i) for i in indices))
    return _intern(Lookup, key, values=values, shape=shape, indices=indices)


def call(evaluator: Evaluator, operand: Expr) -> Expr:
    """Return the application of a named scalar function to ``operand``."""
    return _intern(Call, (Call, evaluator, id(operand)), evaluator=evaluator, operand=operand)


def eq(left: ExprLike, right: ExprLike) -> Expr:
    """Symbolic equality, 1 or 0."""
    return operation(Op.EQ, left, right)


def ne(left: ExprLike, right: ExprLike) -> Expr:
    """Symbolic inequality, 1 or 0."""
    return operation(Op.NE, left, right)


def lt(left: ExprLike, right: ExprLike) -> Expr:
    """Symbolic ``left < right``, 1 or 0."""
    return operation(Op.LT, left, right)


def le(left: ExprLike, right: ExprLike) -> Expr:
    """Symbolic ``left <= right``, 1 or 0."""
    return operation(Op.LE, left, right)


def negate_predicate(guard: Expr) -> Expr:
    """Return the predicate that holds exactly where ``guard`` is zero."""
    if isinstance(guard, Operation):
        if guard.op is Op.LT:
            return le(guard.right, guard.left)
        if guard.op is Op.LE:
            return lt(guard.right, guard.left)
        if guard.op in _NEGATION:
            return operation(_NEGATION[guard.op], guard.left, guard.right)
    return eq(guard, 0)
