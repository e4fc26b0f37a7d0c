"""TileIR to real TIRx with TVM's Python builder; reductions are marked, nothing is scheduled."""

from tvm_tilex.lowering.kernel import lower_program
from tvm_tilex.lowering.sharing import SharedTileMaterialization
from tvm_tilex.lowering.traffic import bytes_moved

__all__ = ["SharedTileMaterialization", "bytes_moved", "lower_program"]
