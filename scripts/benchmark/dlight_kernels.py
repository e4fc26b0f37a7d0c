"""Row operators as TVM users get them: topi's compute, dlight's default GPU schedules.

Arithmetic is FP32 between a cast at each end, as in this package's kernels, so that narrow storage
is compared on equal terms. Compiled by TVM's own pipeline.
"""

import dataclasses
import functools

from tvm import te, topi
from tvm.s_tir import dlight

from tvm_tilex.build.device_artifact import SplitRecorder, device_launches
from tvm_tilex.build.target import resolve_target
from tvm_tilex.tirx.compat import IRModule, tvm

__all__ = ["OPERATORS", "compiled", "exported"]

OPERATORS = ("row_sum", "softmax", "rmsnorm", "layernorm")
# TVM compiles every CUDA source so; an exported text is compiled as TVM would.
OPTIONS = ("--use_fast_math",)


def _tensors(operator, rows, columns, dtype):
    matrix = te.placeholder((rows, columns), dtype, name="x")
    vectors = [te.placeholder((columns,), dtype, name=name) for name in ("weight", "bias")]
    wide = topi.cast(matrix, "float32")
    if operator == "row_sum":
        inputs, result = [matrix], topi.sum(wide, axis=1)
    elif operator == "softmax":
        inputs, result = [matrix], topi.nn.softmax(wide)
    elif operator == "rmsnorm":
        inputs = [matrix, vectors[0]]
        result = topi.nn.rms_norm(wide, topi.cast(vectors[0], "float32"), [1], 1e-6)
    else:
        inputs = [matrix, *vectors]
        weights = [topi.cast(vector, "float32") for vector in vectors]
        result = topi.nn.layer_norm(wide, *weights, [1], 1e-5)
    return [*inputs, topi.cast(result, dtype) if dtype != "float32" else result]


@functools.cache
def compiled(operator, rows, columns, dtype):
    """TVM's executable and the split module's launches, parameters in the library's order."""
    tensors = _tensors(operator, rows, columns, dtype)
    function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    target, recorder = resolve_target("cuda"), SplitRecorder()
    rules = (
        dlight.gpu.Reduction(),
        dlight.gpu.GeneralReduction(),
        dlight.gpu.Fallback(),
    )
    with target:
        module = dlight.ApplyDefaultSchedule(*rules)(IRModule({"main": function}))
    with tvm.transform.PassContext(instruments=[recorder]):
        executable = tvm.compile(module, target=target)
    launches = device_launches(recorder.module, "main")
    return executable, launches, tuple(tensor.op.name for tensor in tensors)


def exported(operator, rows, columns, dtype):
    """What another machine needs to launch the kernel: source, launches, parameter order."""
    executable, launches, parameters = compiled(operator, rows, columns, dtype)
    return {
        "source": str(executable.mod.imports[0].inspect_source()),
        "options": OPTIONS,
        "launches": [dataclasses.asdict(launch) for launch in launches],
        "parameters": parameters,
    }
