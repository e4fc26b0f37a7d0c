"""TileIR to real TIRx with TVM's Python builder; reductions are marked, nothing is scheduled."""

from tvm_tilex.lowering.kernel import lower_program
from tvm_tilex.lowering.sharing import SharedTileMaterialization

__all__ = ["SharedTileMaterialization", "lower_program"]
