"""Every version-sensitive TVM name this package uses, in one place (apache-tvm 0.27).

In this release ``tvm.tir`` is ``tvm.tirx``, loads are ``tvm.ir.TensorLoad`` nodes and walking goes
through ``tvm_ffi``'s structural functions.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.ir import Call, IRModule, Op, Range, TensorLoad, Var
from tvm.ir import _ffi_api as _ir_ffi
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer, detect_linear_equation
from tvm.target import Target
from tvm.tirx import PrimFunc
from tvm.tirx.op import register_intrin_lowering
from tvm.tirx.script.builder import ir as builder
from tvm.tirx.transform import prim_func_pass
from tvm_ffi.structural import structural_equal, structural_map, structural_walk

__all__ = [
    "Analyzer",
    "Call",
    "IRBuilder",
    "IRModule",
    "Op",
    "PrimFunc",
    "Range",
    "Target",
    "TensorLoad",
    "Var",
    "assertion",
    "builder",
    "call",
    "copy_async",
    "cuda_function",
    "detect_linear_equation",
    "element_bytes",
    "fused_multiply_add",
    "has_scalef",
    "ir",
    "ldmatrix",
    "mma_m16n8k16",
    "name",
    "prim_func_pass",
    "register_intrin_lowering",
    "register_op",
    "request_server",
    "s_tir",
    "simdgroup_load",
    "simdgroup_multiply_accumulate",
    "simdgroup_store",
    "structural_equal",
    "structural_map",
    "structural_walk",
    "tirx",
    "tvm",
    "wait_copies",
]

# Lazy selection: only the chosen branch is evaluated.
IF_THEN_ELSE = "prim.if_then_else"

# On an allocation: LowerTVMBuiltin leaves it to the code generator, which takes the stack.
ON_STACK = "disable_lower_builtin"

PURE = 1
OPAQUE = 3
CONTROL_JUMP = 6


def register_op(op: str, description: str, *, effect: int, vectorizable: bool) -> None:
    """Register a TIRx operator once; ``effect`` is :data:`PURE` or :data:`OPAQUE`."""
    if op in _REGISTERED:
        return
    _ir_ffi.RegisterOp(op, description)
    ir.register_op_attr(op, "TCallEffectKind", effect)
    ir.register_op_attr(op, "TScriptPrinterName", op)
    if vectorizable:
        ir.register_op_attr(op, "TVectorizable", True)
    _REGISTERED.add(op)


_REGISTERED: set[str] = set()


def call(op: str, *arguments: Any, dtype: str) -> Any:
    """Call a registered operator with a known result type."""
    return Call(Op.get(op), list(arguments), ret_ty=dtype)


def mma_m16n8k16(kind: str, a: Any, b: Any, c: Any) -> Any:
    """``c += a b`` of one SIMD group; operands are (buffer, first slot), c is float32."""
    from tvm.backend.cuda import op

    operands = [part for buffer, slot in (a, b, c) for part in (buffer.data, slot)]
    return op.ptx_legacy_mma("m16n8k16", "row", "col", kind, kind, "fp32", *operands, False)


def ldmatrix(trans: bool, matrices: int, target: Any, slot: Any, element: Any) -> Any:
    """8x8 matrices of 16-bit elements whose rows the lanes address, to ``target`` at ``slot``."""
    from tvm.backend.cuda import op

    dtype = str(target.ty.dtype)
    address = tirx.address_of(element)
    return op.ptx_legacy_ldmatrix(
        dtype, trans, matrices, ".b16", target.data, slot, address, tirx.IntImm("int32", 0)
    )


_COPY_ASYNC = """
__forceinline__ __device__ void tilex_copy_async_{size}(void* to, const void* from) {{
  unsigned int at = static_cast<unsigned int>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size};"
               :: "r"(at), "l"(from) : "memory");
}}
"""
_WAIT_COPIES = """
__forceinline__ __device__ void tilex_wait_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
"""


def copy_async(to: Any, source: Any, size: int) -> Any:
    """Start copying ``size`` (4, 8 or 16) bytes from an element of a view to one of a tile."""
    code = _COPY_ASYNC.format(size=size, cache="cg" if size == 16 else "ca")
    pointers = tirx.address_of(to), tirx.address_of(source)
    return cuda_function(f"tilex_copy_async_{size}", *pointers, source=code, dtype="void")


def wait_copies() -> Any:
    """Wait for every copy that this thread started."""
    return cuda_function("tilex_wait_copies", source=_WAIT_COPIES, dtype="void")


def simdgroup_load(matrix: Any, element: Any, pitch: int, transpose: bool) -> Any:
    """The 8x8 matrix that begins at ``element``, with ``pitch`` elements between rows."""
    from tvm.backend.metal import op

    zero = tirx.IntImm("int32", 0)
    return op.simdgroup_load(matrix.data, zero, tirx.address_of(element), pitch, 8, 8, transpose)


def simdgroup_store(matrix: Any, element: Any, pitch: int) -> Any:
    """The reverse of :func:`simdgroup_load`."""
    from tvm.backend.metal import op

    zero = tirx.IntImm("int32", 0)
    return op.simdgroup_store(matrix.data, zero, tirx.address_of(element), pitch, 8, 8, False)


def simdgroup_multiply_accumulate(c: Any, a: Any, b: Any) -> Any:
    """``c = a b + c`` on SIMD-group matrices."""
    from tvm.backend.metal import op

    zero = tirx.IntImm("int32", 0)
    return op.simdgroup_multiply_accumulate(c.data, zero, a.data, zero, b.data, zero, c.data, zero)


def cuda_function(name: str, *arguments: Any, source: str, dtype: str) -> Any:
    """Call a CUDA device function whose ``source`` is emitted in front of the kernel, once."""
    # Importing TVM's CUDA operators takes time that other targets need not spend.
    from tvm.backend.cuda.op import cuda_func_call

    return cuda_func_call(name, *arguments, source_code=source, return_type=dtype)


def assertion(condition: Any, message: str) -> Any:
    """A statement that raises ValueError unless ``condition`` holds."""
    return tirx.AssertStmt(condition, ir.StringImm("ValueError"), [ir.StringImm(message)])


def fused_multiply_add(target: Any) -> bool:
    """Whether an LLVM target's processor has FP32 multiply-adds that round once."""
    from tvm.target import codegen

    triple = str(target.attrs.get("mtriple", "")) or str(codegen.llvm_get_system_triple())
    if triple.startswith(("aarch64", "arm64")):
        return True
    if not triple.startswith(("x86_64", "i686")):
        return False
    return bool(codegen.llvm_cpu_has_features("fma", target))


def has_scalef(target: Any) -> bool:
    """Whether an LLVM target's processor multiplies FP32 vectors by powers of two at once."""
    from tvm.target import codegen

    triple = str(target.attrs.get("mtriple", "")) or str(codegen.llvm_get_system_triple())
    if not triple.startswith("x86_64"):
        return False
    return bool(codegen.llvm_cpu_has_features(["avx512f", "avx512vl"], target))


def element_bytes(buffer: Any) -> int:
    """Bytes of an element of a buffer, of any type: programs of others hold more than ours."""
    return int(buffer.ty.dtype.dtype.itemsize)


def name(text: str, node: Any) -> Any:
    """Name a variable or buffer under construction, and return it."""
    IRBuilder.name(text, node)
    return node


def request_server(host: str, port: int, key: str) -> tuple[str, int, str]:
    """Ask an RPC tracker for a server: its host, port and the key that opens this one session.

    TVM's own ``TrackerSession.request`` connects at once and does not say to which server.
    """
    from tvm.rpc import base, connect_tracker

    tracker = connect_tracker(host, port)
    try:
        base.sendjson(tracker._sock, [base.TrackerCode.REQUEST, key, "", 1])
        code, answer = base.recvjson(tracker._sock)
    finally:
        tracker.close()
    if code != base.TrackerCode.SUCCESS:
        raise RuntimeError(f"the tracker answered {answer}")
    url, server_port, session_key = answer
    return str(url), int(server_port), str(session_key)
