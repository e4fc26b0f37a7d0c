"""Apple SIMD-group matrices, 8x8.

The Metal Shading Language document does not say which lane holds which element. The positions
here are those that MLX relies on for ``thread_elements()``, with ``quad = lane // 4``:

    row = (quad & 4) + lane // 2 % 4    column = 2 * (quad & 2) + 2 * (lane % 2) + slot

They hold for each operand. ``scripts/measure_simdgroup_matrix.py`` measures them on a Mac.
"""

from __future__ import annotations

from tvm_tilex.layout.atoms.atom import (
    Capability,
    Effects,
    InstructionAtom,
    OperandMap,
    Provenance,
)
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.radix import MixedRadix

__all__ = ["SIMDGROUP_8X8_F16", "SIMDGROUP_8X8_F32"]

_SOURCE = (
    "MLX, mlx/backend/metal/kernels/steel/gemm/mma.h, BaseMMAFrag<T, 8, 8>::get_coord"
    " (not stated by Apple; to be measured on macOS)"
)


def _operand(name: str, dtype: str, row: str, column: str) -> OperandMap:
    # Lane bits from the lowest: column 2, rows 1 and 2, column 4, row 4.
    lanes = (((column, 2),), ((row, 1),), ((column, 4),), ((row, 4),))
    positions = MixedRadix(
        ((2, 4, 2, 2), 2),
        (lanes, ((column, 1),)),
        0,
        IndexSet.box(lane=32, slot=2),
        IndexSet.box({row: 8, column: 8}),
    )
    return OperandMap(name, dtype, positions)


def _matrix(dtype: str, short: str, metal_type: str) -> InstructionAtom:
    axes = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n"), "D": ("m", "n")}
    return InstructionAtom(
        name=f"simdgroup_8x8_{short}",
        shape=(("m", 8), ("n", 8), ("k", 8)),
        operands={name: _operand(name, dtype, *pair) for name, pair in axes.items()},
        effects=Effects(reads=("A", "B", "C"), writes=("D",)),
        capability=Capability("metal", 7, 32, "Metal 2.3"),
        source=_SOURCE,
        provenance=Provenance.OBSERVED,
        mnemonic=f"simdgroup_multiply_accumulate of simdgroup_matrix<{metal_type}, 8, 8>",
    )


SIMDGROUP_8X8_F32 = _matrix("float32", "f32", "float")
SIMDGROUP_8X8_F16 = _matrix("float16", "f16", "half")
