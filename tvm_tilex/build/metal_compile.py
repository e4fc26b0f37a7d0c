"""Precise math on Metal: a metallib made with fast math off, or an explicit error.

Stock TVM compiles Metal source at launch with fast math on, which keeps neither an order nor the
propagation of NaN. A module with a function that carries ``tilex.requires_precise_math`` is
therefore compiled ahead by Apple's toolchain (``xcrun metal -fno-fast-math``) through TVM's
callback ``tvm_callback_metal_compile``. Without the toolchain a build is refused, never relaxed;
:func:`source_only` permits the text alone, for the simulator and for reading.

The callback acts on the kernels of such a module alone, each once: the pipeline names them right
before code generation. Every other kernel goes to the callback that was there before, or to TVM.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_tilex.errors import TargetError
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tvm

__all__ = ["expect", "has_precise_toolchain", "register_metal_compile", "source_only"]

_CALLBACK = "tvm_callback_metal_compile"
_DEVICE_FUNCTION = 2  # tvm::CallingConv::kDeviceKernelLaunch
_NAME = re.compile(r"\bkernel void (\w+)\(")


@dataclass
class _Build:
    """The module under construction: functions that need precise math, kernels yet to compile."""

    functions: tuple[str, ...] = ()
    kernels: set[str] = field(default_factory=set)


_BUILD: contextvars.ContextVar[_Build | None] = contextvars.ContextVar("build", default=None)
_SOURCE_ONLY: contextvars.ContextVar[bool] = contextvars.ContextVar("source_only", default=False)


def has_precise_toolchain() -> bool:
    """Whether Apple's command line compiler can be run."""
    return shutil.which("xcrun") is not None


@contextlib.contextmanager
def source_only() -> Iterator[bool]:
    """Permit source for kernels that need precise math where the toolchain is missing.

    Yields whether it is missing, so that the module holds text that must not be launched.
    """
    missing = not has_precise_toolchain()
    token = _SOURCE_ONLY.set(missing)
    try:
        yield missing
    finally:
        _SOURCE_ONLY.reset(token)


def expect(mod: IRModule) -> None:
    """Note the Metal kernels of ``mod``, split and about to be generated, if any must be precise.

    All kernels of a module have one payload format, so that one of them decides for all.
    """
    functions = [(v, f) for v, f in mod.functions.items() if isinstance(f, PrimFunc)]
    precise = tuple(str(v.name_hint) for v, f in functions if attrs.PRECISE in (f.attrs or {}))
    kernels = {str(f.attrs["global_symbol"]) for _, f in functions if _is_metal_kernel(f)}
    _BUILD.set(_Build(precise, kernels) if precise and kernels else None)
    if precise and kernels:
        register_metal_compile()


def _is_metal_kernel(function: PrimFunc) -> bool:
    found = function.attrs or {}
    target = found.get("target", None)
    metal = target is not None and target.kind.name == "metal"
    return metal and int(found.get("calling_conv", 0)) == _DEVICE_FUNCTION


def register_metal_compile() -> None:
    """Install the callback, unless it is; one that was there before serves every other kernel."""
    current = tvm.get_global_func(_CALLBACK, allow_missing=True)
    if current is not None and current in _INSTALLED:
        return
    tvm.register_global_func(_CALLBACK, _callback(current), override=True)
    _INSTALLED[:] = [tvm.get_global_func(_CALLBACK)]


_INSTALLED: list[Any] = []


def _callback(earlier: Callable[..., Any] | None) -> Callable[[str, Any], Any]:
    def compile_kernel(source: str, target: Any) -> Any:
        build, name = _BUILD.get(), _NAME.search(source)
        if build is None or name is None or name.group(1) not in build.kernels:
            return earlier(source, target) if earlier is not None else (source, "metal")
        build.kernels.discard(name.group(1))
        if _SOURCE_ONLY.get():
            return (source, "metal")
        if not has_precise_toolchain():
            raise TargetError(
                f"{', '.join(build.functions)}: needs precise math, and stock TVM compiles Metal "
                "with fast math; a launchable module needs Apple's toolchain (xcrun)"
            )
        return (compile_precisely(source), "metallib")

    return compile_kernel


def compile_precisely(source: str) -> bytes:
    """Compile Metal source to a metallib with fast math off.

    Raises
    ------
    TargetError
        If the toolchain rejects the source; the message is its first line.
    """
    with tempfile.TemporaryDirectory(prefix="tilex-metal-") as folder:
        text, library = Path(folder, "kernel.metal"), Path(folder, "kernel.metallib")
        text.write_bytes(source.encode())
        command = ["xcrun", "-sdk", "macosx", "metal", "-fno-fast-math", "-O3"]
        run = subprocess.run(
            [*command, str(text), "-o", str(library)], capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            first = (run.stderr or run.stdout).strip().splitlines()
            raise TargetError(f"xcrun metal failed: {first[0] if first else run.returncode}")
        return library.read_bytes()
