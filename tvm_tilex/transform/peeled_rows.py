"""Packs that begin at a row's first aligned element, and how vectors reach what they touch.

Element e of program p stands ``pitch * p + offset + e`` elements behind a tensor's base. With V
elements a pack and m = floor(N / V) - 1 packs in a row of N::

    head = V * ceil((pitch * p + offset) / V) - (pitch * p + offset)     # 0 <= head < V
    worker w owns, in chunk c, the pack of elements head + (W * c + w) * V + v
    worker j < N - m * V owns element j if j < head, else j + m * V

A tensor whose rows agree with pitch and offset modulo V is reached by whole vectors: the sum
``pitch * p + offset + head`` is a multiple of V. One that begins at its base for every program, as
weights do, is *shifted*: its vectors begin head elements before what a pack wants, so that two
neighbouring ones hold it. The second one of pack k ends at element V * k + 2V at most, which is
inside the row for k < m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.row_alignment import RowPlace, place_of_row
from tvm_tilex.tirx.compat import element_bytes, tirx
from tvm_tilex.transform.common import ceil_divided

__all__ = ["PeeledRows"]


@dataclass(frozen=True)
class PeeledRows:
    """The rows of the program counted by ``program``; ``place`` is where they begin modulo 8.

    ``blocks`` says that the target can put a shifted vector together from two (CUDA).
    """

    program: Any
    place: RowPlace
    width: int
    blocks: bool

    @property
    def head(self) -> Any:
        """Elements before the first aligned one.

        Written so that the address of an aligned element simplifies to a multiple of V.
        """
        dtype = str(self.program.ty.dtype)
        pitch, offset = (tirx.IntImm(dtype, part) for part in self.place)
        start = self.program * pitch + offset
        return ceil_divided(start, self.width) * tirx.IntImm(dtype, self.width) - start

    def aligned(self, pack: Any, buffer: Any, indices: Any) -> bool:
        """Whether a pack's elements of an access begin at a multiple of V elements."""
        place = self._place(pack, buffer, indices)
        return place is not None and place.modulo(self.width) == self.place.modulo(self.width)

    def shifted(self, pack: Any, buffer: Any, indices: Any) -> bool:
        """Whether they begin ``head`` elements behind such a multiple of one-dimensional memory."""
        known = self.blocks and element_bytes(buffer) in (2, 4) and len(buffer.ty.shape) == 1
        if not known or not isinstance(buffer.ty.shape[0], tirx.IntImm):
            return False
        place = self._place(pack, buffer, indices)
        return place is not None and place.modulo(self.width) == RowPlace(0, 0)

    def shift(self, lanes: int) -> Any:
        """How far behind a block of ``lanes`` elements a shifted vector begins."""
        if lanes == self.width:
            return self.head
        return tirx.floormod(self.head, tirx.IntImm(str(self.program.ty.dtype), lanes))

    def _place(self, pack: Any, buffer: Any, indices: Any) -> RowPlace | None:
        return place_of_row(buffer, indices, pack.element, self.program)
