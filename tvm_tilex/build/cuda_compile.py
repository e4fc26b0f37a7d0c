"""IEEE arithmetic on CUDA: this package's kernels are compiled without TVM's fast math.

Stock TVM hands every CUDA source to NVRTC or nvcc with ``--use_fast_math``: subnormals become zero
(a maximum is then no longer one of its inputs), division and square root are approximate, and
``expf`` is an approximation whose error grows with its argument. Kernels built by this pipeline
begin with a line that says what their arithmetic needs, and the callback that compiles CUDA source
obeys it, also where a saved library's source is compiled at load. Every other source goes to the
callback that was there before.

``ieee`` is the compiler's default arithmetic, with multiply and add contracted; a kernel whose
result depends on an order (``tilex.requires_precise_math``) says ``uncontracted`` as well.
"""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable
from typing import Any

from tvm_tilex.build.machine_code import MachineCode, cubin_for
from tvm_tilex.errors import TargetError
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tvm

__all__ = ["compile_into", "expect", "options_of", "register_cuda_compile"]

_COMPILE, _TEXT = "tvm_callback_cuda_compile", "tvm_callback_cuda_postproc"
_LINE = re.compile(r"// tilex: (?P<arch>sm_\w+) (?P<math>ieee(?: uncontracted)?)\n")
# The line that the module under construction shall begin with.
_PENDING: contextvars.ContextVar[str | None] = contextvars.ContextVar("cuda_line", default=None)
_INSTALLED: dict[str, Any] = {}


def expect(mod: IRModule) -> None:
    """Note what the CUDA kernels of ``mod``, split and about to be generated, need."""
    functions = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
    arch = next(filter(None, map(_arch_of, functions)), None)
    if arch is None:
        _PENDING.set(None)
        return
    precise = any(attrs.PRECISE in (f.attrs or {}) for f in functions)
    _PENDING.set(f"// tilex: {arch} ieee{' uncontracted' if precise else ''}\n")
    register_cuda_compile()


def _arch_of(function: PrimFunc) -> str | None:
    target = (function.attrs or {}).get("target", None)
    if target is None or target.kind.name != "cuda":
        return None
    return str(target.attrs.get("arch", "") or _present_arch() or "sm_90")


def options_of(source: str) -> tuple[str, tuple[str, ...]] | None:
    """Architecture and compiler options that a source's first line asks for, or None."""
    found = _LINE.match(source)
    if found is None:
        return None
    return found["arch"], ("--fmad=false",) if "uncontracted" in found["math"] else ()


def compile_into(code: MachineCode, source: str) -> None:
    """Compile a source of this package, as loading it would, and keep the result in ``code``.

    Raises
    ------
    TargetError
        If it cannot be compiled. Another source is left to its loading.
    """
    wanted = options_of(source)
    if wanted is not None:
        code.cubin(source, _runnable(wanted[0]), wanted[1])


def register_cuda_compile() -> None:
    """Install both callbacks, unless they are; earlier ones serve everything else."""
    for name, make in ((_TEXT, _mark), (_COMPILE, _compile)):
        current = tvm.get_global_func(name, allow_missing=True)
        if current is not None and current == _INSTALLED.get(name):
            continue
        tvm.register_global_func(name, make(current), override=True)
        _INSTALLED[name] = tvm.get_global_func(name)


def _mark(earlier: Callable[..., Any] | None) -> Callable[[str, Any], str]:
    def mark(source: str, target: Any) -> str:
        text = str(earlier(source, target)) if earlier is not None else source
        line = _PENDING.get()
        _PENDING.set(None)
        return text if line is None else line + text.lstrip("\n")

    return mark


def _compile(earlier: Callable[..., Any] | None) -> Callable[[str], Any]:
    def compile_source(source: str) -> Any:
        wanted = options_of(source)
        if wanted is not None:
            return cubin_for(source, _runnable(wanted[0]), wanted[1])
        if earlier is None:
            raise TargetError("no callback compiles CUDA source that is not of this package")
        return earlier(source)

    return compile_source


def _runnable(arch: str) -> str:
    """The architecture to compile for: the present device's, which will load the result."""
    present = _present_arch()
    if present is None or arch.rstrip("af") == present:
        return arch
    return present


def _present_arch() -> str | None:
    device = tvm.runtime.device("cuda", 0)
    if not device.exist:
        return None
    return "sm_" + str(device.compute_version).replace(".", "")
