"""What the matrix phases emit, against the instruction atoms of the layout algebra."""

import pytest

from tvm_tilex.layout import BIJECTION, require_proven
from tvm_tilex.layout.atoms import MMA_M16N8K16_BF16_F32, MMA_M16N8K16_F16_F32
from tvm_tilex.layout.queries import equal_maps
from tvm_tilex.transform.group_fragments import loaded_factor
from tvm_tilex.transform.group_maps import matrix_owner_map, thread_grid_owner_map

ATOMS = (MMA_M16N8K16_F16_F32, MMA_M16N8K16_BF16_F32)


@pytest.mark.parametrize("row_major", [True, False])
@pytest.mark.parametrize("which", ["A", "B"])
@pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
def test_ldmatrix_leaves_each_element_where_the_instruction_reads_it(atom, which, row_major):
    verdict = equal_maps(loaded_factor(which, row_major), atom.operands[which].map)
    assert verdict.proven, verdict.reason


@pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
def test_results_are_owned_as_the_instruction_writes_them(atom):
    """One fragment of the owner map, its digits read as lane and slot, is the atom's result."""
    owner = matrix_owner_map((16, 8), 1, 1)
    result = atom.operands["D"].map
    for lane in range(32):
        for slot in range(4):
            place = (0, 0, lane // 4, lane % 4, 0, 0, slot // 2, slot % 2)
            assert tuple(owner(*place)) == tuple(result(lane, slot))


@pytest.mark.parametrize(
    ("extents", "down", "across"), [((64, 64), 4, 1), ((64, 64), 2, 2), ((128, 48), 4, 3)]
)
def test_every_result_has_one_owner_and_one_slot(extents, down, across):
    require_proven(matrix_owner_map(extents, down, across), BIJECTION, budget=0)
    require_proven(thread_grid_owner_map(extents, 8, 8), BIJECTION, budget=0)


@pytest.mark.parametrize("atom", ATOMS, ids=lambda atom: atom.name)
def test_two_results_are_a_first_factor(atom):
    """(lane, slot) of m16k16 is (lane, slot % 4) of the result that holds its eight columns."""
    factor, result = atom.operands["A"].map, atom.operands["D"].map
    for lane in range(32):
        for slot in range(8):
            m, n = result(lane, slot % 4)
            assert tuple(factor(lane, slot)) == (m, n + 8 * (slot // 4))
