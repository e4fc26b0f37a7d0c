"""Execution-first tile kernels on stock Apache TVM.

``import tvm_tilex as tx`` imports neither TVM nor torch; what needs them is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tvm_tilex.lang import *  # noqa: F403
from tvm_tilex.lang import __all__ as _language
from tvm_tilex.lang.kernel import TensorSpec, dynamic, spec

if TYPE_CHECKING:
    from tvm_tilex.driver import Artifact, compile, lower
    from tvm_tilex.runtime.library import export_library
    from tvm_tilex.transform.options import CompileOptions

__version__ = "0.1.0"

# Public names whose modules import TVM, and subpackages, by where they live.
_LAZY = {
    "Artifact": "tvm_tilex.driver",
    "CompileOptions": "tvm_tilex.transform.options",
    "compile": "tvm_tilex.driver",
    "export_library": "tvm_tilex.runtime.library",
    "lower": "tvm_tilex.driver",
}
_MODULES = ("errors", "ir", "kernels", "layout", "sim", "torch", "transform", "tune")

__all__ = [
    *_language,
    "Artifact",
    "CompileOptions",
    "TensorSpec",
    "compile",
    "dynamic",
    "export_library",
    "lower",
    "spec",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"tvm_tilex.{name}")
    raise AttributeError(f"module 'tvm_tilex' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
