"""What a target says of one instruction, in the terms of the layout algebra.

    AtomOperand : ParticipantCoord x OperandSlot -> OperandLogicalCoord

The operand map is total on its fragment box. A fragment that covers its operand without repeats
is a bijection, and has an inverse: who holds an element, and in which slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np

from tvm_tilex.errors import LayoutError, ProofError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.inverse import try_inverse
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.verdict import LayoutProof

__all__ = ["Capability", "Effects", "InstructionAtom", "OperandMap", "Provenance"]


class Provenance(Enum):
    """How the positions of an atom are known."""

    PUBLISHED = "published"  # stated by the vendor's instruction-set document
    OBSERVED = "observed"  # relied on by a named public implementation, not promised by the vendor


@dataclass(frozen=True)
class OperandMap:
    """One operand of an instruction.

    Parameters
    ----------
    name
        The operand's letter in the instruction's definition.
    dtype
        Element type, as NumPy or ``ml_dtypes`` spell it.
    map
        (participant, slot) -> logical coordinates of the operand, a two-axis domain.
    elements_per_register
        Consecutive slots that share one register of the participant.
    """

    name: str
    dtype: str
    map: LayoutMap
    elements_per_register: int = 1

    def __post_init__(self) -> None:
        domain = self.map.domain
        if domain.rank != 2 or not domain.is_static or domain.guards:
            raise LayoutError(f"operand {self.name}: a fragment is a static participant x slot box")
        if self.elements_per_register < 1 or self.slots % self.elements_per_register:
            raise LayoutError(
                f"operand {self.name}: {self.slots} slots do not fill registers of"
                f" {self.elements_per_register} elements"
            )

    @property
    def participants(self) -> int:
        """How many participants hold the operand."""
        return self.map.domain.shape[0]

    @property
    def slots(self) -> int:
        """Elements that one participant holds."""
        return self.map.domain.shape[1]

    @property
    def registers(self) -> int:
        """Registers that one participant holds."""
        return self.slots // self.elements_per_register

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents of the operand."""
        return self.map.codomain.shape

    def owner(self, budget: int = DEFAULT_BUDGET) -> LayoutMap:
        """Return the inverse: logical coordinates -> (participant, slot).

        Raises
        ------
        ProofError
            Where the operand is not proved to be held exactly once.
        """
        answer = try_inverse(self.map, budget)
        if answer.value is None:
            raise ProofError(f"operand {self.name} has no unique owner: {answer.verdict.reason}")
        return answer.value

    def distribute(self, matrix: Any) -> Any:
        """Return the fragment array ``[participant, slot]`` of a matrix of the operand's shape."""
        values = np.asarray(matrix)
        if values.shape != self.shape:
            raise LayoutError(f"operand {self.name} has the shape {self.shape}, not {values.shape}")
        return values[self._places()]

    def collect(self, fragment: Any) -> Any:
        """Return the matrix that a fragment array ``[participant, slot]`` holds.

        An element that several slots hold takes the value of one of them; elements that no slot
        holds are zero.
        """
        values = np.asarray(fragment)
        if values.shape != (self.participants, self.slots):
            raise LayoutError(
                f"operand {self.name} has fragments {(self.participants, self.slots)},"
                f" not {values.shape}"
            )
        matrix = np.zeros(self.shape, values.dtype)
        matrix[self._places()] = values
        return matrix

    def _places(self) -> tuple[Any, ...]:
        lane, slot = np.indices((self.participants, self.slots))
        places = self.map.apply_array(lane, slot)
        return places if isinstance(places, tuple) else (places,)


@dataclass(frozen=True)
class Effects:
    """What executing the instruction does beside computing its results.

    ``convergent`` instructions need every participant to arrive together. ``memory`` says whether
    the instruction itself reads or writes memory; register operands are listed in ``reads`` and
    ``writes``.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    convergent: bool = True
    memory: bool = False


@dataclass(frozen=True)
class Capability:
    """What a device must be to execute the instruction.

    Parameters
    ----------
    target
        TVM target kind, ``cuda`` or ``metal``.
    minimum
        Compute capability ``major * 10 + minor`` on CUDA; Apple GPU family number on Metal.
    participants
        Width of the convergent group that executes it.
    language
        Least version of the target's language, as its own documents write it.
    """

    target: str
    minimum: int
    participants: int
    language: str

    def admits(self, target: str, version: int) -> bool:
        """Whether a device of this target kind and version executes the instruction."""
        return target == self.target and version >= self.minimum


@dataclass(frozen=True)
class InstructionAtom:
    """One target instruction as a contract over layouts, types, effects and capability.

    Parameters
    ----------
    name
        Unique name of the atom.
    shape
        Extents of its logical axes, ``(("m", 16), ("n", 8), ("k", 16))``.
    operands
        Operand maps by name; codomain axes are axes of ``shape``.
    effects, capability
        See :class:`Effects` and :class:`Capability`.
    source
        The document, section or file that states the positions.
    provenance
        Whether ``source`` is the vendor's promise or an observation.
    mnemonic
        The instruction as the target's language spells it.

    Raises
    ------
    LayoutError
        Where an operand's axes, extents or participants contradict the rest.
    """

    name: str
    shape: tuple[tuple[str, int], ...]
    operands: Mapping[str, OperandMap]
    effects: Effects
    capability: Capability
    source: str
    provenance: Provenance = Provenance.PUBLISHED
    mnemonic: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", MappingProxyType(dict(self.operands)))
        extents = dict(self.shape)
        for name, operand in self.operands.items():
            if name != operand.name:
                raise LayoutError(f"{self.name}: operand {operand.name} is filed under {name}")
            for axis in operand.map.codomain.axes:
                if axis.lower or extents.get(axis.name) != axis.extent:
                    raise LayoutError(f"{self.name}: operand {name} has the axis {axis.name}")
            if operand.participants != self.capability.participants:
                raise LayoutError(
                    f"{self.name}: operand {name} has {operand.participants} participants, the"
                    f" instruction {self.capability.participants}"
                )
        for name in (*self.effects.reads, *self.effects.writes):
            if name not in self.operands:
                raise LayoutError(f"{self.name}: an effect names {name}, which is no operand")

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.operands.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.effects, self.capability, self.source, self.provenance, self.mnemonic)
        return (type(self), (self.name, self.shape, dict(self.operands), *fields))

    def prove(self, budget: int = DEFAULT_BUDGET) -> dict[str, LayoutProof]:
        """Return the proof of every operand map, by name."""
        return {name: prove(operand.map, budget) for name, operand in self.operands.items()}

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.mnemonic} ({self.provenance.value}: {self.source})"]
        for name, operand in self.operands.items():
            lines.append(f"  {name} {operand.dtype} {operand.map}")
        return "\n".join(lines)
