"""Views of buffers, distributions of values, and the accesses of operations.

All three are layout maps with a declared reading; none has an arithmetic of its own.
"""

from tvm_tilex.layout.views.access import Access
from tvm_tilex.layout.views.distribution import (
    Distribution,
    exchange,
    local_exchange,
)
from tvm_tilex.layout.views.indexed import IndexedAccess, gather, scatter
from tvm_tilex.layout.views.policy import BoundsPolicy
from tvm_tilex.layout.views.view import Buffer, TensorView

__all__ = [
    "Access",
    "BoundsPolicy",
    "Buffer",
    "Distribution",
    "IndexedAccess",
    "TensorView",
    "exchange",
    "gather",
    "local_exchange",
    "scatter",
]
