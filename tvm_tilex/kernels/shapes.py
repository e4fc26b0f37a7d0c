"""Names of the dimensions that the library's parameters share: P ``rows`` of N ``columns``."""

from tvm_tilex.ir.program import BoundsPolicy

__all__ = ["BLOCKS", "COLUMN", "MATRIX", "PREDICATE", "ROW", "ROWS_PER_BLOCK"]

MATRIX = ("rows", "columns")
ROW = ("columns",)  # one value per column
COLUMN = ("rows",)  # one value per row
BLOCKS = ("blocks", "columns")  # one row per block of rows, the last one possibly partial

ROWS_PER_BLOCK = 64
PREDICATE = BoundsPolicy.predicate
