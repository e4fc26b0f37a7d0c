"""What the library's kernels share: names of dimensions (P ``rows`` of N ``columns``), policies."""

from tvm_tilex.ir.ops import ReductionPolicy
from tvm_tilex.ir.program import BoundsPolicy

__all__ = ["BLOCKS", "COLUMN", "MATRIX", "PREDICATE", "RESCALED", "ROW", "ROWS_PER_BLOCK"]

MATRIX = ("rows", "columns")
ROW = ("columns",)  # one value per column
COLUMN = ("rows",)  # one value per row
BLOCKS = ("blocks", "columns")  # one row per block of rows, the last one possibly partial

ROWS_PER_BLOCK = 64
PREDICATE = BoundsPolicy.predicate
RESCALED = ReductionPolicy.rescaled_tree  # sums of exponentials relative to a maximum
