"""Pictures of layouts: a grid of cells, and the banks of shared memory that an access meets.

What is drawn is computed here in plain Python; matplotlib (the extra ``viz``) is imported by
:func:`draw` alone.
"""

from tvm_tilex.layout.drawing.banks import BankReport, Banks, bank_conflicts
from tvm_tilex.layout.drawing.grid import Cell, Grid, grid_of, thread_axes
from tvm_tilex.layout.drawing.picture import draw, save

__all__ = [
    "BankReport",
    "Banks",
    "Cell",
    "Grid",
    "bank_conflicts",
    "draw",
    "grid_of",
    "save",
    "thread_axes",
]
