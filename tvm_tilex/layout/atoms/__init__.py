"""Instruction atoms: operand maps, types, effects and capability of target instructions.

An atom is a contract that a target provides. Its operand maps are ordinary layout maps, proved by
:func:`tvm_tilex.layout.prove` like any other.
"""

from tvm_tilex.layout.atoms.atom import (
    Capability,
    Effects,
    InstructionAtom,
    OperandMap,
    Provenance,
)
from tvm_tilex.layout.atoms.metal import SIMDGROUP_8X8_F16, SIMDGROUP_8X8_F32
from tvm_tilex.layout.atoms.nvidia import MMA_M16N8K16_BF16_F32, MMA_M16N8K16_F16_F32

ATOMS: dict[str, InstructionAtom] = {
    atom.name: atom
    for atom in (
        MMA_M16N8K16_F16_F32,
        MMA_M16N8K16_BF16_F32,
        SIMDGROUP_8X8_F32,
        SIMDGROUP_8X8_F16,
    )
}

__all__ = [
    "ATOMS",
    "MMA_M16N8K16_BF16_F32",
    "MMA_M16N8K16_F16_F32",
    "SIMDGROUP_8X8_F16",
    "SIMDGROUP_8X8_F32",
    "Capability",
    "Effects",
    "InstructionAtom",
    "OperandMap",
    "Provenance",
]
