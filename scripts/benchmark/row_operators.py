"""The row operators that GPU benchmarks measure: arguments, FP64 results, bytes, torch forms.

Needs torch, nothing of this package: it runs on a GPU machine without the compiler.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

__all__ = ["DTYPES", "LIMITS", "OPERATORS", "SHAPES", "Operator", "relative_error"]

SHAPES = (
    (32768, 256),
    (16384, 1024),
    (8192, 4096),
    (4096, 8192),
    (2048, 16384),
    (1024, 32000),
    (512, 131072),
    (8191, 4095),
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Norm of the error over the norm of the FP64 result, above which a kernel counts as wrong.
LIMITS = {"float32": 1e-4, "bfloat16": 1e-2, "float16": 2e-3}


@dataclass(frozen=True)
class Operator:
    """One operator of (P, N) matrices; ``inputs`` is a letter an input in call order.

    ``m`` is a matrix (P, N), ``v`` a vector (N), ``l`` int64 labels (P); the output is a matrix, or
    a line (P) where ``line`` is set. ``function`` gives it from the inputs, in any type: on FP64
    inputs it is the reference, on stored ones what torch computes.
    """

    name: str
    inputs: str
    line: bool
    function: Callable[..., torch.Tensor]

    def useful_bytes(self, rows: int, columns: int, dtype: str) -> int:
        """Every input element read once, every output element written once."""
        item = DTYPES[dtype].itemsize
        sizes = {"m": rows * columns * item, "v": columns * item, "l": rows * 8}
        written = rows * item if self.line else rows * columns * item
        return sum(sizes[kind] for kind in self.inputs) + written

    def arguments(self, rows: int, columns: int, dtype: str, device: str) -> list[torch.Tensor]:
        """Random inputs and an output poisoned with NaN, in the order of the library's kernel."""
        kind = DTYPES[dtype]
        shapes = {"m": (rows, columns), "v": (columns,)}
        found = [
            torch.randint(0, columns, (rows,), device=device)
            if letter == "l"
            else torch.randn(shapes[letter], device=device).to(kind)
            for letter in self.inputs
        ]
        out = (rows,) if self.line else (rows, columns)
        return [*found, torch.full(out, float("nan"), device=device, dtype=kind)]

    def expected(self, arguments: list[torch.Tensor]) -> torch.Tensor:
        """FP64 result from the inputs as stored."""
        inputs = arguments[: len(self.inputs)]
        return self.function(*(a.double() if a.is_floating_point() else a for a in inputs))


def _layernorm(x: torch.Tensor, weight=None, bias=None) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("row_sum", "m", True, lambda x: x.sum(-1)),
        Operator("softmax", "m", False, lambda x: torch.softmax(x, -1)),
        Operator("rmsnorm", "mv", False, lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6)),
        Operator("layernorm", "mvv", False, _layernorm),
        Operator("residual_layernorm", "mm", False, lambda x, r: _layernorm(x + r)),
        Operator("cross_entropy", "ml", True, lambda x, y: F.cross_entropy(x, y, reduction="none")),
    )
}


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm of the FP64 result; NaN where the output has one."""
    if got.shape != wanted.shape:
        return float("nan")
    return ((got.double() - wanted).norm() / wanted.norm().clamp_min(1e-300)).item()
