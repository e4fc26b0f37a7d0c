"""Correspondences: functions seen from both ends, placements with copies, finite relations."""

from tvm_tilex.layout.correspondence.base import (
    LayoutCorr,
    Occurrence,
    ReplicaKind,
    Span,
    embed,
    span,
)
from tvm_tilex.layout.correspondence.combine import Join
from tvm_tilex.layout.correspondence.compare import equal_correspondences
from tvm_tilex.layout.correspondence.finite import from_pairs
from tvm_tilex.layout.correspondence.function import as_function
from tvm_tilex.layout.correspondence.replication import Replica, replicate
from tvm_tilex.layout.correspondence.simplify import Simplified, simplify

__all__ = [
    "Join",
    "LayoutCorr",
    "Occurrence",
    "Replica",
    "ReplicaKind",
    "Simplified",
    "Span",
    "as_function",
    "embed",
    "equal_correspondences",
    "from_pairs",
    "replicate",
    "simplify",
    "span",
]
