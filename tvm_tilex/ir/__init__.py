"""TileIR: the typed, frozen form of a tile kernel, free of threads and memory levels."""

from tvm_tilex.ir.index import Index, IndexBinary, IndexConstant, ProgramCoordinate, index_bounds
from tvm_tilex.ir.ops import Combiner, ElementOp, NanPolicy, ReductionPolicy
from tvm_tilex.ir.print import format_program, format_statement
from tvm_tilex.ir.program import (
    Binding,
    Constant,
    Coordinate,
    Elementwise,
    Gather,
    Load,
    Operand,
    Parallel,
    Program,
    Reduce,
    Repartition,
    Statement,
    Store,
    Value,
    View,
    ViewAccess,
)
from tvm_tilex.ir.types import Axis, BoundsPolicy, DType, TileType

__all__ = [
    "Axis",
    "Binding",
    "BoundsPolicy",
    "Combiner",
    "Constant",
    "Coordinate",
    "DType",
    "ElementOp",
    "Elementwise",
    "Gather",
    "Index",
    "IndexBinary",
    "IndexConstant",
    "Load",
    "NanPolicy",
    "Operand",
    "Parallel",
    "Program",
    "ProgramCoordinate",
    "Reduce",
    "ReductionPolicy",
    "Repartition",
    "Statement",
    "Store",
    "TileType",
    "Value",
    "View",
    "ViewAccess",
    "format_program",
    "format_statement",
    "index_bounds",
]
