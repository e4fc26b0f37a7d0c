"""TileIR to real TIRx with TVM's Python builder; reductions are marked, nothing is scheduled."""

from tvm_tilex.lower.kernel import lower_program
from tvm_tilex.lower.sharing import SharedTileMaterialization

__all__ = ["SharedTileMaterialization", "lower_program"]
