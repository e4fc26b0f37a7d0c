"""Names of a kernel while it is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.sim.errors import MslTypeError, UnsupportedConstructError
from tvm_tilex.sim.syntax import Node, Record, TypeName
from tvm_tilex.sim.types import (
    ArrayType,
    MatrixType,
    ScalarType,
    StructType,
    Type,
    VectorType,
    VoidType,
    named_type,
)

__all__ = ["Symbol", "Symbols", "record_types", "resolve"]


@dataclass(frozen=True)
class Symbol:
    """A declared name: its type, frame slot, address space and constness."""

    name: str
    type: Type
    slot: int
    space: str = "thread"
    const: bool = False
    roots: frozenset[str] = frozenset()
    builtin: bool = False


@dataclass
class Symbols:
    """Nested scopes over one flat frame; a name may be declared again in an inner scope."""

    scopes: list[dict[str, Symbol]] = field(default_factory=lambda: [{}])
    slots: int = 0

    def declare(self, node: Node, name: str, kind: Type, **details: Any) -> Symbol:
        """Add a name to the innermost scope."""
        if name in self.scopes[-1]:
            raise MslTypeError(f"{name} is declared twice", node.line, node.column, "redeclaration")
        symbol = Symbol(name, kind, self.slots, **details)
        self.slots += 1
        self.scopes[-1][name] = symbol
        return symbol

    def find(self, name: str) -> Symbol | None:
        """Return the innermost declaration of the name."""
        return next((s[name] for s in reversed(self.scopes) if name in s), None)


def resolve(name: TypeName, records: dict[str, StructType]) -> Type:
    """Return the pointee or value type of a written type, without its indirection."""
    if name.base == "simdgroup_matrix":
        element, rows, columns = name.arguments
        found = named_type(f"simdgroup_{element}8x8")
        if (rows, columns) != (8, 8) or found is None:
            raise UnsupportedConstructError(
                f"simdgroup_matrix<{element}, {rows}, {columns}> is not supported; 8x8 is",
                name.line,
                name.column,
                "simdgroup_matrix",
            )
        return found
    found = named_type(name.base) or records.get(name.base)
    if found is None:
        raise UnsupportedConstructError(
            f"type {name.base} is not supported", name.line, name.column, f"type {name.base}"
        )
    return found


def record_types(records: tuple[Record, ...]) -> dict[str, StructType]:
    """Return the layout of every record, with C alignment rules."""
    table: dict[str, StructType] = {}
    for record in records:
        offset, size, alignment = 0, 0, 1
        fields = []
        for item in record.fields:
            element = resolve(item.type, table)
            if item.type.indirection or isinstance(element, VoidType | MatrixType):
                raise UnsupportedConstructError(
                    f"field {item.name} of type {item.type.base}{item.type.indirection} is not "
                    "supported in a struct",
                    item.line,
                    item.column,
                    "struct field",
                )
            assert isinstance(element, ScalarType | VectorType | StructType)
            align = element.alignment
            kind: Any = element
            if item.length is not None:
                kind = ArrayType(element, item.length)  # type: ignore[arg-type]
            start = 0 if record.is_union else -(-offset // align) * align
            fields.append((item.name, kind, start))
            offset, alignment = start + kind.size, max(alignment, align)
            size = max(size, offset)
        size = max(-(-size // alignment) * alignment, alignment)
        table[record.name] = StructType(
            record.name, tuple(fields), size, alignment, record.is_union
        )
    return table
