"""Abstract syntax of the supported subset; every node carries its 1-based line and column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "Assign",
    "Binary",
    "Block",
    "Break",
    "Call",
    "Cast",
    "Construct",
    "Continue",
    "Declare",
    "DoWhile",
    "ExpressionStatement",
    "Field",
    "For",
    "If",
    "Index",
    "Kernel",
    "Literal",
    "Logical",
    "MakeFilled",
    "Member",
    "Name",
    "Node",
    "Parameter",
    "Record",
    "Return",
    "Step",
    "Ternary",
    "TranslationUnit",
    "TypeName",
    "Unary",
    "While",
]


@dataclass(frozen=True)
class Node:
    """Base of all nodes."""

    line: int
    column: int


@dataclass(frozen=True)
class TypeName(Node):
    """A type as written: base name, address space ("" when absent), qualifiers, ``*`` or ``&``."""

    base: str
    space: str = ""
    const: bool = False
    indirection: str = ""
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Literal(Node):
    """A literal; ``value`` is a Python number and ``type_name`` the type of its spelling."""

    value: Any
    type_name: str


@dataclass(frozen=True)
class Name(Node):
    """An identifier, with its namespace when written (``mem_flags::mem_threadgroup``)."""

    name: str


@dataclass(frozen=True)
class Unary(Node):
    """``-x``, ``+x``, ``!x``, ``~x``, ``*x`` or ``&x``."""

    operator: str
    operand: Node


@dataclass(frozen=True)
class Step(Node):
    """``++x``, ``--x``, ``x++`` or ``x--``."""

    operator: str
    prefix: bool
    operand: Node


@dataclass(frozen=True)
class Binary(Node):
    """A binary arithmetic, bitwise or relational operation."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Logical(Node):
    """``&&`` or ``||``, the right side lazily."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Ternary(Node):
    """``c ? a : b``, both branches lazily."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True)
class Assign(Node):
    """``target = value`` or a compound assignment (``operator`` is "" for plain)."""

    operator: str
    target: Node
    value: Node


@dataclass(frozen=True)
class Cast(Node):
    """``(T)x`` or ``static_cast<T>(x)``; ``bits`` for ``as_type<T>(x)``."""

    type: TypeName
    operand: Node
    bits: bool = False


@dataclass(frozen=True)
class Construct(Node):
    """``float4(a, b, c, d)``."""

    type: TypeName
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class MakeFilled(Node):
    """``make_filled_simdgroup_matrix<T, 8, 8>(x)``."""

    type: TypeName
    rows: int
    columns: int
    value: Node


@dataclass(frozen=True)
class Call(Node):
    """A call of a builtin by name."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Index(Node):
    """``base[index]``."""

    base: Node
    index: Node


@dataclass(frozen=True)
class Member(Node):
    """``base.name`` or ``base->name``."""

    base: Node
    name: str
    arrow: bool = False


@dataclass(frozen=True)
class Block(Node):
    """A compound statement."""

    body: tuple[Node, ...]


@dataclass(frozen=True)
class Declare(Node):
    """A local variable: its type, array length (None for none) and initializer."""

    type: TypeName
    name: str
    length: Node | None
    initializer: Node | None


@dataclass(frozen=True)
class ExpressionStatement(Node):
    """An expression evaluated for its effect."""

    expression: Node


@dataclass(frozen=True)
class If(Node):
    """``if (c) a else b``."""

    condition: Node
    then: Node
    otherwise: Node | None


@dataclass(frozen=True)
class For(Node):
    """``for (init; condition; step) body``."""

    initializer: Node | None
    condition: Node | None
    step: Node | None
    body: Node


@dataclass(frozen=True)
class While(Node):
    """``while (c) body``."""

    condition: Node
    body: Node


@dataclass(frozen=True)
class DoWhile(Node):
    """``do body while (c);``."""

    body: Node
    condition: Node


@dataclass(frozen=True)
class Break(Node):
    """``break;``."""


@dataclass(frozen=True)
class Continue(Node):
    """``continue;``."""


@dataclass(frozen=True)
class Return(Node):
    """``return;``."""


@dataclass(frozen=True)
class Field(Node):
    """A field of a struct or union."""

    type: TypeName
    name: str
    length: int | None


@dataclass(frozen=True)
class Record(Node):
    """A struct or a union."""

    name: str
    is_union: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Parameter(Node):
    """A kernel parameter with its attributes as (name, argument or None)."""

    type: TypeName
    name: str
    attributes: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Kernel(Node):
    """A ``kernel void`` function."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Block


@dataclass(frozen=True)
class TranslationUnit(Node):
    """A whole text."""

    records: tuple[Record, ...]
    kernels: tuple[Kernel, ...]
