"""Precise math on Metal: a metallib made with fast math off, or an explicit error.

Stock TVM compiles Metal source at launch with fast math on, which keeps neither an order nor the
propagation of NaN. A module with a function that carries ``tilex.requires_precise_math`` is
therefore compiled ahead by Apple's toolchain (``xcrun metal -fno-fast-math``) through TVM's
callback ``tvm_callback_metal_compile``. Without the toolchain a build is refused, never relaxed;
:func:`source_only` permits the text alone, for the simulator and for reading.
"""

from __future__ import annotations

import contextlib
import contextvars
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tvm_tilex.errors import TargetError
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tvm

__all__ = ["expect", "has_precise_toolchain", "register_metal_compile", "source_only"]

_CALLBACK = "tvm_callback_metal_compile"
# Names of the functions of the module under construction that need precise math.
_PRECISE: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("precise", default=())
_SOURCE_ONLY: contextvars.ContextVar[bool] = contextvars.ContextVar("source_only", default=False)


def has_precise_toolchain() -> bool:
    """Whether Apple's command line compiler can be run."""
    return shutil.which("xcrun") is not None


@contextlib.contextmanager
def source_only() -> Iterator[None]:
    """Permit source for kernels that need precise math where the toolchain is missing."""
    token = _SOURCE_ONLY.set(not has_precise_toolchain())
    try:
        yield
    finally:
        _SOURCE_ONLY.reset(token)


def expect(mod: IRModule) -> None:
    """Note which functions of ``mod``, about to be built, need precise math."""
    names = [
        str(var.name_hint)
        for var, function in mod.functions.items()
        if isinstance(function, PrimFunc) and attrs.PRECISE in (function.attrs or {})
    ]
    _PRECISE.set(tuple(names))


def register_metal_compile() -> None:
    """Install the callback; one that was there before serves every other kernel."""
    earlier = tvm.get_global_func(_CALLBACK, allow_missing=True)
    tvm.register_global_func(_CALLBACK, _callback(earlier), override=True)


def _callback(earlier: Callable[..., Any] | None) -> Callable[[str, Any], Any]:
    def compile_kernel(source: str, target: Any) -> Any:
        names = _PRECISE.get()
        if not names:
            return earlier(source, target) if earlier is not None else (source, "metal")
        if _SOURCE_ONLY.get():
            return (source, "metal")
        if not has_precise_toolchain():
            raise TargetError(
                f"{', '.join(names)}: needs precise math, and stock TVM compiles Metal with fast "
                "math; a launchable module needs Apple's toolchain (xcrun)"
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
        text.write_text(source)
        command = ["xcrun", "-sdk", "macosx", "metal", "-fno-fast-math", "-O3"]
        run = subprocess.run(
            [*command, str(text), "-o", str(library)], capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            first = (run.stderr or run.stdout).strip().splitlines()
            raise TargetError(f"xcrun metal failed: {first[0] if first else run.returncode}")
        return library.read_bytes()
