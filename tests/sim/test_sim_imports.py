"""The simulator stands alone: its source imports nothing of the compiler."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import tvm_tilex.sim

ALLOWED = {"numpy", "ml_dtypes", "lark", "rich"}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path.name}"
            names.add(node.module)
    return names


def test_sources_import_only_what_is_allowed():
    for path in Path(tvm_tilex.sim.__file__).parent.glob("*.py"):
        for name in imported(path):
            top = name.split(".")[0]
            inside = name.startswith("tvm_tilex.sim") or name == "tvm_tilex.errors"
            assert inside or top in ALLOWED or top in sys.stdlib_module_names, (path.name, name)


def test_running_a_kernel_needs_no_other_package_and_no_tvm():
    """The parent package is replaced by an empty one, whose own imports are not the simulator's."""
    program = """
import sys, types, numpy as np
parent = types.ModuleType("tvm_tilex")
parent.__path__ = [PATH]
sys.modules["tvm_tilex"] = parent
from tvm_tilex.sim import MetalKernel
data = np.zeros(1, np.float32)
text = "kernel void k(device float* a [[buffer(0)]]) { a[0] = 1.0f; }"
print(MetalKernel.from_source(text)["k"].launch(1, 1, data).table()[:1])
bad = {m for m in sys.modules if m == "tvm" or m.startswith(("tvm.", "tvm_ffi", "torch"))}
packages = {m for m in sys.modules if m.startswith("tvm_tilex.")}
extra = {m for m in packages if not m.startswith(("tvm_tilex.sim", "tvm_tilex.errors"))}
assert not bad and not extra and data[0] == 1, (bad, extra)
"""
    program = program.replace("PATH", repr(str(Path(tvm_tilex.sim.__file__).parents[1])))
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)
