"""CuTe's derived operators, each returned with the law that was verified of its result."""

from tvm_tilex.layout.operators.coalesce import coalesce, filter, filter_zeros
from tvm_tilex.layout.operators.complement import complement
from tvm_tilex.layout.operators.composition import composition
from tvm_tilex.layout.operators.derived import Derived, LayoutLike, Obligation
from tvm_tilex.layout.operators.divide import (
    flat_divide,
    logical_divide,
    tiled_divide,
    zipped_divide,
)
from tvm_tilex.layout.operators.inverses import left_inverse, right_inverse
from tvm_tilex.layout.operators.products import (
    blocked_product,
    flat_product,
    logical_product,
    raked_product,
    tiled_product,
    zipped_product,
)
from tvm_tilex.layout.operators.slicing import slice_layout
from tvm_tilex.layout.operators.width import cosize

__all__ = [
    "Derived",
    "LayoutLike",
    "Obligation",
    "blocked_product",
    "coalesce",
    "complement",
    "composition",
    "cosize",
    "filter",
    "filter_zeros",
    "flat_divide",
    "flat_product",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "raked_product",
    "right_inverse",
    "slice_layout",
    "tiled_divide",
    "tiled_product",
    "zipped_divide",
    "zipped_product",
]
