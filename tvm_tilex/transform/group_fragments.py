"""Which row of shared memory each lane addresses so that ldmatrix fills the fragments of an mma.

``ldmatrix`` loads 8x8 matrices of 16-bit elements: lane 8 i + r gives the address of row r of
matrix i, and lane l receives of each matrix the elements (l // 4, 2 (l % 4) + {0, 1}), or with
``trans`` those of the transposed matrix. The functions take any integers with // and %: TIRx
expressions when a kernel is emitted, layout expressions when :func:`loaded_factor` states the
whole map, which is compared with the operands of the instruction's atom.
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.layout import IndexSet, LayoutMap, index_map

__all__ = ["first_factor_row", "loaded_factor", "second_factor_row"]


def first_factor_row(lane: Any, row_major: bool) -> tuple[Any, Any]:
    """(row, depth) that a lane addresses of the 16x16 first factor.

    Its matrices are (0, 0), (8, 0), (0, 8), (8, 8); a row of memory runs along the depth where
    the factor is row-major, else along its rows.
    """
    if row_major:
        return lane % 16, lane // 16 * 8
    return lane // 8 % 2 * 8, lane % 8 + lane // 16 * 8


def second_factor_row(lane: Any, row_major: bool) -> tuple[Any, Any]:
    """(depth, column) that a lane addresses of two neighbouring 16x8 second factors.

    Their matrices are (0, 0), (8, 0), (0, 8), (8, 8); a row of memory runs along the columns where
    the factor is row-major, else along the depth.
    """
    if row_major:
        return lane % 16, lane // 16 * 8
    return lane // 8 % 2 * 8, lane % 8 + lane // 16 * 8


def loaded_factor(which: str, row_major: bool) -> LayoutMap:
    """(lane, slot) -> coordinates of the element that the load leaves there.

    ``which`` is ``"A"`` or ``"B"``; the second factor's fragment is the first of the two.
    """
    slots = 8 if which == "A" else 4
    names = ("m", "k") if which == "A" else ("k", "n")
    extents = (16, 16) if which == "A" else (16, 8)
    address = first_factor_row if which == "A" else second_factor_row
    # The first factor's rows of memory run along its own second axis, as do the second's.
    transposed = row_major if which == "B" else not row_major

    def element(lane: Any, slot: Any) -> tuple[Any, Any]:
        matrix, odd = slot // 2, slot % 2
        group, pair = lane // 4, lane % 4 * 2 + odd
        row, along = (pair, group) if transposed else (group, pair)
        first, second = address(matrix * 8 + row, row_major)
        along_second = row_major
        return (first, second + along) if along_second else (first + along, second)

    domain = IndexSet.box(lane=32, slot=slots)
    return index_map(domain, IndexSet.box(dict(zip(names, extents, strict=True))), element)
