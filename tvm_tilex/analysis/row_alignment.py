"""Where the rows of a program's tensors begin, relative to addresses that vectors may begin at.

Element e of program p stands ``pitch * p + offset + e`` elements behind the base of a row-major
tensor whose rows a program moves one after the other. Where V divides neither, rows begin at any
element of a vector of V; the first aligned element of a row is element::

    (-(pitch * p + offset)) mod V

of all tensors that agree in both numbers modulo V, so that one distribution of a row's elements
serves them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tvm_tilex.analysis.purity import loads
from tvm_tilex.analysis.structure import Domain
from tvm_tilex.analysis.subject import Subject
from tvm_tilex.plan.resources import VECTOR_ELEMENTS, peels
from tvm_tilex.tirx.compat import Analyzer, detect_linear_equation, tirx

__all__ = ["RowPlace", "place_of_row", "row_alignment"]


class RowPlace(NamedTuple):
    """Element e of program p stands ``pitch * p + offset + e`` elements behind a tensor's base."""

    pitch: int
    offset: int

    def modulo(self, width: int) -> RowPlace:
        """Both numbers as far as vectors of ``width`` elements see them."""
        return RowPlace(self.pitch % width, self.offset % width)


def place_of_row(buffer: Any, indices: Any, element: Any, program: Any) -> RowPlace | None:
    """The place of the row that ``indices``, in terms of ``element`` and ``program``, go through.

    None where the distance from ``element`` is not pitch * program + offset.
    """
    flat = _flat(buffer, indices)
    if flat is None or str(flat.ty.dtype) != str(element.ty.dtype):
        return None
    found = detect_linear_equation(Analyzer().simplify(flat - element), [program])
    if len(found) != 2 or not all(isinstance(part, tirx.IntImm) for part in found):
        return None
    return RowPlace(*(int(part.value) for part in found))


def row_alignment(subject: Subject) -> tuple[int, RowPlace] | None:
    """The vector width to which all rows agree, and where they begin modulo 8; None if none helps.

    All widths of the program must be one, so that one element of a row is one element of another.
    """
    width = subject.vector_elements
    if len(subject.widths) != 1 or width == 1:
        return None
    (count,) = subject.widths
    if count % width == 0 or not peels(count, width):
        return None
    places = {place.modulo(VECTOR_ELEMENTS) for place in _places(subject)}
    return (width, places.pop()) if len(places) == 1 else None


def _places(subject: Subject) -> Iterator[RowPlace]:
    """Where the rows begin that a program loads and stores; what all programs share has no row."""
    program = subject.row.root.loop_var
    for element, parts, node in subject.contexts():
        if element is None or (isinstance(node, Domain) and node.count == 1):
            continue  # no row: every worker's, or one element a program
        moved = [(load.source, load.indices) for part in parts for load in loads(part)]
        if isinstance(node, Domain):
            moved.append((node.store.buffer, node.store.indices))
        for buffer, indices in moved:
            if buffer.scope() != "global":
                continue
            place = place_of_row(buffer, indices, element, program)
            if place is not None and place.pitch:
                yield place


def _flat(buffer: Any, indices: Any) -> Any | None:
    """The row-major position of an element; None where an inner extent is not known."""
    inner = buffer.ty.shape[1:]
    if not all(isinstance(extent, tirx.IntImm) for extent in inner):
        return None
    flat, *rest = indices
    for extent, index in zip(inner, rest, strict=True):
        flat = flat * extent + index
    return flat
