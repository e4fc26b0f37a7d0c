"""Typed maps between index sets, three-valued proofs about them, and an exhaustive oracle."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tvm_tilex.layout.algebra import compose, flatten, product, restrict, unflatten
from tvm_tilex.layout.base import Check, LayoutMap, Piece
from tvm_tilex.layout.composite import Compose, Piecewise, Product, Transform, Translate
from tvm_tilex.layout.contiguity import contiguity
from tvm_tilex.layout.cute_layout import (
    AnyCuteLayout,
    ComposedLayout,
    CuteLayout,
    Swizzle,
    parse_cute_layout,
)
from tvm_tilex.layout.emission import BIJECTION, ProvenMap, require_proven
from tvm_tilex.layout.errors import (
    ArithmeticRangeError,
    CodomainError,
    DomainError,
    LayoutTextError,
    OperatorError,
    TracingError,
    TransformError,
)
from tvm_tilex.layout.expr import (
    Call,
    Constant,
    Coordinate,
    Expr,
    Lookup,
    Op,
    Operation,
    Parameter,
    constant,
    coordinate,
    eq,
    le,
    lt,
    ne,
    parameter,
)
from tvm_tilex.layout.finite import analyze_finite
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.inverse import try_inverse
from tvm_tilex.layout.nodes import (
    BitLinear,
    FiniteTable,
    Identity,
    IndexExpr,
    Permute,
    Project,
)
from tvm_tilex.layout.normalize import normalize
from tvm_tilex.layout.parse import parse_map
from tvm_tilex.layout.preimage import preimage
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.queries import (
    Image,
    alignment,
    cardinality,
    equal_maps,
    image,
    verify_inverse,
)
from tvm_tilex.layout.radix import MixedRadix
from tvm_tilex.layout.recast import Recast
from tvm_tilex.layout.tracing import choose, index_map
from tvm_tilex.layout.transforms import (
    BoundTransform,
    RegisteredTransform,
    check_transform,
    register_transform,
)
from tvm_tilex.layout.verdict import Answer, Fact, LayoutProof, Verdict, VerdictKind, Witness
from tvm_tilex.layout.visitor import ExprVisitor

if TYPE_CHECKING:
    from tvm_tilex.layout.correspondence import (
        LayoutCorr,
        Occurrence,
        Replica,
        ReplicaKind,
        as_function,
        embed,
        equal_correspondences,
        from_pairs,
        replicate,
        span,
    )
    from tvm_tilex.layout.correspondence.simplify import simplify
    from tvm_tilex.layout.operators import (
        Derived,
        LayoutLike,
        Obligation,
        blocked_product,
        cosize,
        filter,
        filter_zeros,
        flat_divide,
        flat_product,
        left_inverse,
        logical_divide,
        logical_product,
        raked_product,
        right_inverse,
        slice_layout,
        tiled_divide,
        tiled_product,
        zipped_divide,
        zipped_product,
    )
    from tvm_tilex.layout.operators.coalesce import coalesce
    from tvm_tilex.layout.operators.complement import complement
    from tvm_tilex.layout.operators.composition import composition

PROVEN = VerdictKind.PROVEN
DISPROVEN = VerdictKind.DISPROVEN
UNKNOWN = VerdictKind.UNKNOWN

# Packages that are loaded on first use of one of their names.
_LAZY = {
    "correspondence": (
        "LayoutCorr",
        "Occurrence",
        "Replica",
        "ReplicaKind",
        "as_function",
        "embed",
        "equal_correspondences",
        "from_pairs",
        "replicate",
        "simplify",
        "span",
    ),
    "operators": (
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
    ),
}

__all__ = [
    "BIJECTION",
    "DEFAULT_BUDGET",
    "DISPROVEN",
    "PROVEN",
    "UNKNOWN",
    "Answer",
    "AnyCuteLayout",
    "ArithmeticRangeError",
    "Axis",
    "BitLinear",
    "BoundTransform",
    "Call",
    "Check",
    "CodomainError",
    "Compose",
    "ComposedLayout",
    "Constant",
    "Coordinate",
    "CuteLayout",
    "Derived",
    "DomainError",
    "Expr",
    "ExprVisitor",
    "Fact",
    "FiniteTable",
    "Identity",
    "Image",
    "IndexExpr",
    "IndexSet",
    "LayoutCorr",
    "LayoutLike",
    "LayoutMap",
    "LayoutProof",
    "LayoutTextError",
    "Lookup",
    "MixedRadix",
    "Obligation",
    "Occurrence",
    "Op",
    "Operation",
    "OperatorError",
    "Parameter",
    "Permute",
    "Piece",
    "Piecewise",
    "Product",
    "Project",
    "ProvenMap",
    "Recast",
    "RegisteredTransform",
    "Replica",
    "ReplicaKind",
    "Swizzle",
    "TracingError",
    "Transform",
    "TransformError",
    "Translate",
    "Verdict",
    "VerdictKind",
    "Witness",
    "alignment",
    "analyze_finite",
    "as_function",
    "blocked_product",
    "cardinality",
    "check_transform",
    "choose",
    "coalesce",
    "complement",
    "compose",
    "composition",
    "constant",
    "contiguity",
    "coordinate",
    "cosize",
    "embed",
    "eq",
    "equal_correspondences",
    "equal_maps",
    "filter",
    "filter_zeros",
    "flat_divide",
    "flat_product",
    "flatten",
    "from_pairs",
    "image",
    "index_map",
    "le",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "lt",
    "ne",
    "normalize",
    "parameter",
    "parse_cute_layout",
    "parse_map",
    "preimage",
    "product",
    "prove",
    "raked_product",
    "register_transform",
    "replicate",
    "require_proven",
    "restrict",
    "right_inverse",
    "simplify",
    "slice_layout",
    "span",
    "tiled_divide",
    "tiled_product",
    "try_inverse",
    "unflatten",
    "verify_inverse",
    "zipped_divide",
    "zipped_product",
]


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            found = getattr(importlib.import_module(f"tvm_tilex.layout.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'tvm_tilex.layout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
