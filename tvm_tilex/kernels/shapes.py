"""Names of the dimensions that the library's parameters share: P ``rows`` of N ``columns``."""

__all__ = ["COLUMN", "MATRIX", "ROW"]

MATRIX = ("rows", "columns")
ROW = ("columns",)  # one value per column
COLUMN = ("rows",)  # one value per row
