"""The tile language: write a kernel in Python, capture it once as TileIR."""

from tvm_tilex.ir.ops import ReductionPolicy
from tvm_tilex.ir.types import DTYPES, Axis
from tvm_tilex.lang.axes import axis, coord, parallel, shape
from tvm_tilex.lang.groups import dot, full, group, memory, pipeline
from tvm_tilex.lang.kernel import TileKernel, tile_kernel
from tvm_tilex.lang.ops import (
    abs,
    add,
    cast,
    ceil,
    coordinate,
    erf,
    exp,
    exp2,
    floor,
    fma,
    gather,
    log,
    log2,
    maximum,
    minimum,
    pow,
    reduce,
    repartition,
    rsqrt,
    sigmoid,
    sqrt,
    tanh,
    where,
)
from tvm_tilex.lang.tensor import In, InOut, Out, TensorView, floating
from tvm_tilex.lang.tile import Tile

float32 = DTYPES["float32"]
float16 = DTYPES["float16"]
bfloat16 = DTYPES["bfloat16"]
int32 = DTYPES["int32"]
int64 = DTYPES["int64"]
uint8 = DTYPES["uint8"]
boolean = DTYPES["bool"]

__all__ = [
    "Axis",
    "In",
    "InOut",
    "Out",
    "ReductionPolicy",
    "TensorView",
    "Tile",
    "TileKernel",
    "abs",
    "add",
    "axis",
    "bfloat16",
    "boolean",
    "cast",
    "ceil",
    "coord",
    "coordinate",
    "dot",
    "erf",
    "exp",
    "exp2",
    "float16",
    "float32",
    "floating",
    "floor",
    "fma",
    "full",
    "gather",
    "group",
    "int32",
    "int64",
    "log",
    "log2",
    "maximum",
    "memory",
    "minimum",
    "parallel",
    "pipeline",
    "pow",
    "reduce",
    "repartition",
    "rsqrt",
    "shape",
    "sigmoid",
    "sqrt",
    "tanh",
    "tile_kernel",
    "uint8",
    "where",
]
