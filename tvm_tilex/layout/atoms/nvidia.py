"""NVIDIA warp-level matrix instructions.

Positions as the PTX ISA states them for ``mma.m16n8k16`` with floating-point type, with
``group = lane // 4`` and ``thread = lane % 4``:

    A  row = group + 8 * (slot // 2 % 2)    column = 2 * thread + slot % 2 + 8 * (slot // 4)
    B  row = 2 * thread + slot % 2 + 8 * (slot // 2)    column = group
    C  row = group + 8 * (slot // 2)        column = 2 * thread + slot % 2

Here they are mixed-radix maps with named strides: lane digits (4, 8), slot digits (2, 2[, 2]).
"""

from __future__ import annotations

from typing import Any

from tvm_tilex.layout.atoms.atom import Capability, Effects, InstructionAtom, OperandMap
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.radix import MixedRadix

__all__ = ["MMA_M16N8K16_BF16_F32", "MMA_M16N8K16_F16_F32"]

_SOURCE = (
    "PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions, Matrix Fragments for"
    " mma.m16n8k16 with floating point type"
)
_M, _N, _K = 16, 8, 16


def _along(**steps: int) -> tuple[tuple[str, int], ...]:
    return tuple(steps.items())


def _fragment(slots: tuple[int, ...], lanes: Any, steps: Any, **axes: int) -> MixedRadix:
    size = 1
    for extent in slots:
        size *= extent
    return MixedRadix(
        ((4, 8), slots), (lanes, steps), 0, IndexSet.box(lane=32, slot=size), IndexSet.box(axes)
    )


def _operands(dtype: str) -> dict[str, OperandMap]:
    a = _fragment(
        (2, 2, 2),
        (_along(k=2), _along(m=1)),
        (_along(k=1), _along(m=8), _along(k=8)),
        m=_M,
        k=_K,
    )
    b = _fragment((2, 2), (_along(k=2), _along(n=1)), (_along(k=1), _along(k=8)), k=_K, n=_N)
    c = _fragment((2, 2), (_along(n=2), _along(m=1)), (_along(n=1), _along(m=8)), m=_M, n=_N)
    return {
        "A": OperandMap("A", dtype, a, elements_per_register=2),
        "B": OperandMap("B", dtype, b, elements_per_register=2),
        "C": OperandMap("C", "float32", c),
        "D": OperandMap("D", "float32", c),
    }


def _mma(dtype: str, short: str) -> InstructionAtom:
    return InstructionAtom(
        name=f"mma_m16n8k16_{short}_f32",
        shape=(("m", _M), ("n", _N), ("k", _K)),
        operands=_operands(dtype),
        effects=Effects(reads=("A", "B", "C"), writes=("D",)),
        capability=Capability("cuda", 80, 32, "PTX ISA 7.0"),
        source=_SOURCE,
        mnemonic=f"mma.sync.aligned.m16n8k16.row.col.f32.{short}.{short}.f32",
    )


MMA_M16N8K16_F16_F32 = _mma("float16", "f16")
MMA_M16N8K16_BF16_F32 = _mma("bfloat16", "bf16")
