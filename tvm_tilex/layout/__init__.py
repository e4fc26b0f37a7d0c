"""Typed maps between index sets, three-valued proofs about them, and an exhaustive oracle."""

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

PROVEN = VerdictKind.PROVEN
DISPROVEN = VerdictKind.DISPROVEN
UNKNOWN = VerdictKind.UNKNOWN

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
    "DomainError",
    "Expr",
    "ExprVisitor",
    "Fact",
    "FiniteTable",
    "Identity",
    "Image",
    "IndexExpr",
    "IndexSet",
    "LayoutMap",
    "LayoutProof",
    "LayoutTextError",
    "Lookup",
    "MixedRadix",
    "Op",
    "Operation",
    "Parameter",
    "Permute",
    "Piece",
    "Piecewise",
    "Product",
    "Project",
    "ProvenMap",
    "Recast",
    "RegisteredTransform",
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
    "cardinality",
    "check_transform",
    "choose",
    "compose",
    "constant",
    "contiguity",
    "coordinate",
    "eq",
    "equal_maps",
    "flatten",
    "image",
    "index_map",
    "le",
    "lt",
    "ne",
    "normalize",
    "parameter",
    "parse_cute_layout",
    "parse_map",
    "product",
    "prove",
    "register_transform",
    "require_proven",
    "restrict",
    "try_inverse",
    "unflatten",
    "verify_inverse",
]
