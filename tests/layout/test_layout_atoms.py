"""Operand positions of the instruction atoms against the published tables, as literals."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tvm_tilex.errors import LayoutError, ProofError
from tvm_tilex.layout import (
    Compose,
    IndexSet,
    MixedRadix,
    equal_maps,
    flatten,
    parse_map,
    prove,
    verify_inverse,
)
from tvm_tilex.layout.atoms import (
    ATOMS,
    MMA_M16N8K16_BF16_F32,
    MMA_M16N8K16_F16_F32,
    SIMDGROUP_8X8_F16,
    SIMDGROUP_8X8_F32,
    Capability,
    Effects,
    InstructionAtom,
    OperandMap,
)

# "lane.slot" of every element, row by row, as the figures of the PTX ISA show them: A is 16x16
# (m, k), B is 16x8 (k, n), C and D are 16x8 (m, n).
MMA_A = """
 0.0  0.1  1.0  1.1  2.0  2.1  3.0  3.1  0.4  0.5  1.4  1.5  2.4  2.5  3.4  3.5
 4.0  4.1  5.0  5.1  6.0  6.1  7.0  7.1  4.4  4.5  5.4  5.5  6.4  6.5  7.4  7.5
 8.0  8.1  9.0  9.1 10.0 10.1 11.0 11.1  8.4  8.5  9.4  9.5 10.4 10.5 11.4 11.5
12.0 12.1 13.0 13.1 14.0 14.1 15.0 15.1 12.4 12.5 13.4 13.5 14.4 14.5 15.4 15.5
16.0 16.1 17.0 17.1 18.0 18.1 19.0 19.1 16.4 16.5 17.4 17.5 18.4 18.5 19.4 19.5
20.0 20.1 21.0 21.1 22.0 22.1 23.0 23.1 20.4 20.5 21.4 21.5 22.4 22.5 23.4 23.5
24.0 24.1 25.0 25.1 26.0 26.1 27.0 27.1 24.4 24.5 25.4 25.5 26.4 26.5 27.4 27.5
28.0 28.1 29.0 29.1 30.0 30.1 31.0 31.1 28.4 28.5 29.4 29.5 30.4 30.5 31.4 31.5
 0.2  0.3  1.2  1.3  2.2  2.3  3.2  3.3  0.6  0.7  1.6  1.7  2.6  2.7  3.6  3.7
 4.2  4.3  5.2  5.3  6.2  6.3  7.2  7.3  4.6  4.7  5.6  5.7  6.6  6.7  7.6  7.7
 8.2  8.3  9.2  9.3 10.2 10.3 11.2 11.3  8.6  8.7  9.6  9.7 10.6 10.7 11.6 11.7
12.2 12.3 13.2 13.3 14.2 14.3 15.2 15.3 12.6 12.7 13.6 13.7 14.6 14.7 15.6 15.7
16.2 16.3 17.2 17.3 18.2 18.3 19.2 19.3 16.6 16.7 17.6 17.7 18.6 18.7 19.6 19.7
20.2 20.3 21.2 21.3 22.2 22.3 23.2 23.3 20.6 20.7 21.6 21.7 22.6 22.7 23.6 23.7
24.2 24.3 25.2 25.3 26.2 26.3 27.2 27.3 24.6 24.7 25.6 25.7 26.6 26.7 27.6 27.7
28.2 28.3 29.2 29.3 30.2 30.3 31.2 31.3 28.6 28.7 29.6 29.7 30.6 30.7 31.6 31.7
"""
MMA_B = """
 0.0  4.0  8.0 12.0 16.0 20.0 24.0 28.0
 0.1  4.1  8.1 12.1 16.1 20.1 24.1 28.1
 1.0  5.0  9.0 13.0 17.0 21.0 25.0 29.0
 1.1  5.1  9.1 13.1 17.1 21.1 25.1 29.1
 2.0  6.0 10.0 14.0 18.0 22.0 26.0 30.0
 2.1  6.1 10.1 14.1 18.1 22.1 26.1 30.1
 3.0  7.0 11.0 15.0 19.0 23.0 27.0 31.0
 3.1  7.1 11.1 15.1 19.1 23.1 27.1 31.1
 0.2  4.2  8.2 12.2 16.2 20.2 24.2 28.2
 0.3  4.3  8.3 12.3 16.3 20.3 24.3 28.3
 1.2  5.2  9.2 13.2 17.2 21.2 25.2 29.2
 1.3  5.3  9.3 13.3 17.3 21.3 25.3 29.3
 2.2  6.2 10.2 14.2 18.2 22.2 26.2 30.2
 2.3  6.3 10.3 14.3 18.3 22.3 26.3 30.3
 3.2  7.2 11.2 15.2 19.2 23.2 27.2 31.2
 3.3  7.3 11.3 15.3 19.3 23.3 27.3 31.3
"""
MMA_C = """
 0.0  0.1  1.0  1.1  2.0  2.1  3.0  3.1
 4.0  4.1  5.0  5.1  6.0  6.1  7.0  7.1
 8.0  8.1  9.0  9.1 10.0 10.1 11.0 11.1
12.0 12.1 13.0 13.1 14.0 14.1 15.0 15.1
16.0 16.1 17.0 17.1 18.0 18.1 19.0 19.1
20.0 20.1 21.0 21.1 22.0 22.1 23.0 23.1
24.0 24.1 25.0 25.1 26.0 26.1 27.0 27.1
28.0 28.1 29.0 29.1 30.0 30.1 31.0 31.1
 0.2  0.3  1.2  1.3  2.2  2.3  3.2  3.3
 4.2  4.3  5.2  5.3  6.2  6.3  7.2  7.3
 8.2  8.3  9.2  9.3 10.2 10.3 11.2 11.3
12.2 12.3 13.2 13.3 14.2 14.3 15.2 15.3
16.2 16.3 17.2 17.3 18.2 18.3 19.2 19.3
20.2 20.3 21.2 21.3 22.2 22.3 23.2 23.3
24.2 24.3 25.2 25.3 26.2 26.3 27.2 27.3
28.2 28.3 29.2 29.3 30.2 30.3 31.2 31.3
"""
# The same for the 8x8 SIMD-group matrix as MLX uses it, for every operand.
SIMDGROUP = """
 0.0  0.1  1.0  1.1  8.0  8.1  9.0  9.1
 2.0  2.1  3.0  3.1 10.0 10.1 11.0 11.1
 4.0  4.1  5.0  5.1 12.0 12.1 13.0 13.1
 6.0  6.1  7.0  7.1 14.0 14.1 15.0 15.1
16.0 16.1 17.0 17.1 24.0 24.1 25.0 25.1
18.0 18.1 19.0 19.1 26.0 26.1 27.0 27.1
20.0 20.1 21.0 21.1 28.0 28.1 29.0 29.1
22.0 22.1 23.0 23.1 30.0 30.1 31.0 31.1
"""

CASES = [
    *(
        (atom, name, MMA_A if name == "A" else MMA_B if name == "B" else MMA_C)
        for atom in (MMA_M16N8K16_F16_F32, MMA_M16N8K16_BF16_F32)
        for name in "ABCD"
    ),
    *(
        (atom, name, SIMDGROUP)
        for atom in (SIMDGROUP_8X8_F32, SIMDGROUP_8X8_F16)
        for name in "ABCD"
    ),
]


@pytest.mark.parametrize(("atom", "name", "table"), CASES, ids=lambda v: getattr(v, "name", None))
def test_positions_are_the_published_ones(atom, name, table):
    operand = atom.operands[name]
    rows = [line.split() for line in table.strip().splitlines()]
    assert operand.shape == (len(rows), len(rows[0]))
    seen = 0
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            lane, slot = map(int, cell.split("."))
            assert operand.map(lane, slot) == (row, column)
            seen += 1
    assert seen == operand.participants * operand.slots


@pytest.mark.parametrize("atom", ATOMS.values(), ids=lambda atom: atom.name)
def test_every_operand_is_proved_a_bijection_without_enumeration(atom):
    proofs = atom.prove(budget=0)
    assert set(proofs) == {"A", "B", "C", "D"}
    assert all(proof.all_proven for proof in proofs.values())
    for operand in atom.operands.values():
        assert verify_inverse(operand.map, operand.owner(budget=0), budget=0).proven


# CuTe's layouts for the same instruction, with codomain (m, k), (n, k), (m, n) flattened first
# axis fastest (cutlass, include/cute/atom/mma_traits_sm80.hpp).
CUTE = {
    "A": ("((4,8),(2,2,2)):((32,1),(16,8,128))", ("m", "k")),
    "B": ("((4,8),(2,2)):((16,1),(8,64))", ("n", "k")),
    "C": ("((4,8),(2,2)):((32,1),(16,8))", ("m", "n")),
}


@pytest.mark.parametrize("name", CUTE)
def test_the_positions_agree_with_cute(name):
    text, order = CUTE[name]
    operand = MMA_M16N8K16_F16_F32.operands[name]
    cute = parse_map(text)
    axes = operand.map.codomain.names
    linear = flatten(operand.map.codomain, first_fastest=axes == order)
    ours = Compose(linear, operand.map)
    theirs = MixedRadix(cute.shape, cute.stride, 0, operand.map.domain, ours.codomain)
    assert equal_maps(ours, theirs, budget=0).proven


@pytest.mark.parametrize("atom", ATOMS.values(), ids=lambda atom: atom.name)
def test_fragments_multiply_like_matrices(atom):
    rng = np.random.default_rng(3)
    a, b, c = (
        rng.integers(-3, 4, atom.operands[name].shape).astype(_dtype(atom.operands[name].dtype))
        for name in "ABC"
    )
    fragments = {n: atom.operands[n].distribute(v) for n, v in zip("ABC", (a, b, c), strict=True)}
    assert fragments["A"].shape == (32, atom.operands["A"].slots)
    back = {n: atom.operands[n].collect(f).astype(np.float64) for n, f in fragments.items()}
    product = back["A"] @ back["B"] + back["C"]
    assert np.array_equal(product, a.astype(np.float64) @ b.astype(np.float64) + c)
    held = atom.operands["D"].distribute(product)
    assert np.array_equal(atom.operands["D"].collect(held), product)


def _dtype(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def test_types_registers_effects_and_capability():
    mma = MMA_M16N8K16_BF16_F32
    assert {n: o.dtype for n, o in mma.operands.items()} == {
        "A": "bfloat16", "B": "bfloat16", "C": "float32", "D": "float32",
    }  # fmt: skip
    assert [mma.operands[n].registers for n in "ABCD"] == [4, 2, 4, 4]
    assert mma.effects == Effects(("A", "B", "C"), ("D",), convergent=True, memory=False)
    assert mma.capability.admits("cuda", 80) and mma.capability.admits("cuda", 90)
    assert not mma.capability.admits("cuda", 75) and not mma.capability.admits("metal", 90)
    assert mma.provenance.value == "published" and "PTX ISA" in mma.source
    assert SIMDGROUP_8X8_F16.provenance.value == "observed" and "MLX" in SIMDGROUP_8X8_F16.source
    assert str(mma).startswith("mma_m16n8k16_bf16_f32: mma.sync.aligned.m16n8k16")


def test_an_atom_survives_pickling_and_compares():
    again = pickle.loads(pickle.dumps(MMA_M16N8K16_F16_F32))
    assert again == MMA_M16N8K16_F16_F32 and hash(again) == hash(MMA_M16N8K16_F16_F32)
    assert again != MMA_M16N8K16_BF16_F32


def atom_with(**operands):
    return InstructionAtom(
        "wrong",
        (("m", 8), ("n", 8)),
        operands,
        Effects(("A",), ()),
        Capability("cuda", 80, 32, "PTX ISA 7.0"),
        "nowhere",
    )


def fragment(shape, stride, lanes=32, slots=2, **axes):
    domain = IndexSet.box(lane=lanes, slot=slots)
    return OperandMap("A", "float32", MixedRadix(shape, stride, 0, domain, IndexSet.box(axes)))


ROWS = ((32, 2), ((("m", 0),), (("m", 1),)))


def test_contradictions_are_refused():
    good = fragment(*ROWS, m=8)
    assert atom_with(A=good).operands["A"] is good
    with pytest.raises(LayoutError, match="has the axis k"):
        atom_with(A=fragment((32, 2), ((("k", 0),), (("k", 1),)), k=8))
    with pytest.raises(LayoutError, match="has the axis m"):
        atom_with(A=fragment(*ROWS, m=16))
    with pytest.raises(LayoutError, match="filed under B"):
        atom_with(B=good)
    with pytest.raises(LayoutError, match="16 participants"):
        atom_with(A=fragment((16, 2), ROWS[1], lanes=16, m=8))
    with pytest.raises(LayoutError, match="names A, which is no operand"):
        atom_with()
    with pytest.raises(LayoutError, match="do not fill registers"):
        replace(good, elements_per_register=4)
    with pytest.raises(LayoutError, match="has the shape"):
        MMA_M16N8K16_F16_F32.operands["A"].distribute(np.zeros((16, 8)))
    with pytest.raises(LayoutError, match="has fragments"):
        MMA_M16N8K16_F16_F32.operands["A"].collect(np.zeros((32, 4)))


def test_a_broadcast_operand_has_no_unique_owner():
    """Every lane holds the two elements: covering, not injective."""
    broadcast = fragment(*ROWS, m=2)
    proof = prove(broadcast.map, 0)
    assert proof.surjectivity.proven and proof.injectivity.disproven
    with pytest.raises(ProofError, match="no unique owner"):
        broadcast.owner()
    assert broadcast.collect(broadcast.distribute(np.array([5, 7]))).tolist() == [5, 7]


@pytest.mark.device("metal")
@pytest.mark.skipif(
    sys.platform != "darwin" or shutil.which("xcrun") is None,
    reason="needs macOS with an Apple GPU and the command-line tools",
)
@pytest.mark.parametrize("atom", [SIMDGROUP_8X8_F32, SIMDGROUP_8X8_F16], ids=lambda a: a.name)
def test_this_mac_holds_the_positions(atom, tmp_path):
    script = Path(__file__).parents[2] / "scripts" / "measure_simdgroup_matrix.py"
    spec = importlib.util.spec_from_file_location("measure_simdgroup_matrix", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    measured = module.measure(atom.operands["A"].dtype, tmp_path)
    assert len(measured) == 64
    assert module.differences(atom, measured) == []
