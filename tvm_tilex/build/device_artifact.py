"""What another runtime needs to launch a kernel without TVM: source, entry, grid, arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import LoweringError
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import (
    Analyzer,
    Call,
    IRModule,
    Op,
    Var,
    ir,
    structural_map,
    structural_walk,
    tirx,
)

__all__ = ["DeviceArtifact", "KernelLaunch", "SplitRecorder", "device_launches", "launches_at"]

_DIMENSIONS = ("x", "y", "z")


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a device function.

    ``grid`` counts threadgroups, ``group`` threads of a threadgroup, both as (x, y, z).
    ``buffers`` names the kernel's parameters in the order of the device function's buffers;
    ``scalars`` are the values of the trailing scalar structure, in field order.
    ``shared_bytes`` is the static threadgroup memory, ``dynamic_shared_bytes`` what the launch
    must ask for (CUDA beyond 48 KiB; the function's attribute too); ``cluster`` the threadgroups
    that must be launched as one cluster. ``dependent`` allows the launch to overlap the kernel
    before it (programmatic stream serialization, launched with that attribute).
    """

    entry: str
    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    buffers: tuple[str, ...]
    scalars: tuple[int | float, ...]
    shared_bytes: int
    dynamic_shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    dependent: bool = False


@dataclass(frozen=True)
class DeviceArtifact:
    """Device source with its launches, in order; empty where no program runs.

    Launches of a kernel with dynamic extents depend on them: ``launches`` is empty, and
    :meth:`launches_at` gives them.
    """

    kind: str
    source: str
    launches: tuple[KernelLaunch, ...]
    requires_precise_math: bool
    bind: Callable[[Mapping[str, int]], tuple[KernelLaunch, ...]] | None = None

    def launches_at(self, dimensions: Mapping[str, int]) -> tuple[KernelLaunch, ...]:
        """The launches for values of the dynamic extents, by name, within their ranges."""
        return self.launches if self.bind is None else self.bind(dimensions)


@ir.instrument.pass_instrument
class SplitRecorder:
    """TVM pass instrument that keeps the module as it is when host and device are split."""

    def __init__(self) -> None:
        self.module: IRModule | None = None

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        """Keep the module after SplitHostDevice."""
        if info.name == "tirx.SplitHostDevice":
            self.module = mod


def device_launches(split: IRModule, function: str) -> tuple[KernelLaunch, ...]:
    """Launches that the host function makes, read from the module after SplitHostDevice.

    Raises
    ------
    LoweringError
        If a launch extent is not a constant or an argument is not a parameter's buffer.
    """
    return _launches(split, split[function].body)


def launches_at(
    split: IRModule, function: str, dimensions: Mapping[str, int]
) -> tuple[KernelLaunch, ...]:
    """Launches that the host function makes where its dynamic extents have these values.

    Raises
    ------
    LoweringError
        As :func:`device_launches`, or if an extent has no value or one outside its range.
    """
    host = split[function]
    values = {
        extent: tirx.IntImm(str(extent.ty.dtype), dimensions[extent.name])
        for parameter in host.params
        for extent in getattr(parameter.ty, "shape", ())
        if isinstance(extent, Var) and extent.name in dimensions
    }
    body = structural_map(host.body, (Var, lambda var: values.get(var, var)), order="post")
    return tuple(launch for part in _reached(body) for launch in _launches(split, part))


def _reached(statement: Any) -> Iterator[Any]:
    """The parts of a host function without variables that run."""
    if isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from _reached(part)
    elif isinstance(statement, (tirx.IfThenElse, tirx.AssertStmt)):
        holds = Analyzer().simplify(statement.condition)
        if not isinstance(holds, tirx.IntImm):
            raise LoweringError(f"the launch depends on {holds}, which has no value")
        if isinstance(statement, tirx.AssertStmt):
            if not holds.value:
                raise LoweringError("".join(part.value for part in statement.message_parts))
        elif holds.value:
            yield from _reached(statement.then_case)
        elif statement.else_case is not None:
            yield from _reached(statement.else_case)
    else:
        yield statement


def _launches(split: IRModule, host: Any) -> tuple[KernelLaunch, ...]:
    calls: list[Any] = []

    def visit(call: Call) -> None:
        if isinstance(call.op, Op) and call.op.name == "tirx.call_ffi_kernel":
            calls.append(call)

    structural_walk(host, (Call, visit))
    return tuple(_launch(split, call) for call in calls)


def _launch(split: IRModule, call: Any) -> KernelLaunch:
    entry = str(call.args[0].value)
    device = split[entry]
    count = len(device.params)
    parameters = list(map(str, call.attrs.launch_params))
    # A flag, which takes no argument.
    stated = [parameter for parameter in parameters if parameter != attrs.DEPENDENT_LAUNCH]
    extents = dict(zip(stated, call.args[1 + count :], strict=True))
    buffers, scalars = [], []
    for argument in call.args[1 : 1 + count]:
        if isinstance(argument, Call) and isinstance(argument.args[0], Var):
            buffers.append(str(argument.args[0].name))
            continue
        argument = Analyzer().simplify(argument)
        if isinstance(argument, (tirx.IntImm, tirx.FloatImm)):
            scalars.append(argument.value)
        else:
            raise LoweringError(f"{entry}: launch argument {argument} is no parameter's buffer")
    return KernelLaunch(
        entry=entry,
        grid=_extents(entry, extents, "blockIdx"),
        group=_extents(entry, extents, "threadIdx"),
        buffers=tuple(buffers),
        scalars=tuple(scalars),
        shared_bytes=_shared_bytes(device, "shared"),
        dynamic_shared_bytes=_shared_bytes(device, "shared.dyn"),
        cluster=_extents(entry, extents, "clusterCtaIdx"),
        dependent=attrs.DEPENDENT_LAUNCH in parameters,
    )


def _extents(entry: str, extents: dict[str, Any], prefix: str) -> tuple[int, int, int]:
    found = []
    for dimension in _DIMENSIONS:
        extent = extents.get(f"{prefix}.{dimension}", tirx.IntImm("int32", 1))
        extent = Analyzer().simplify(extent)
        if not isinstance(extent, tirx.IntImm):
            raise LoweringError(f"{entry}: {prefix}.{dimension} has the extent {extent}")
        found.append(int(extent.value))
    return found[0], found[1], found[2]


def _bytes(dtype: str) -> int:
    """Bytes of an element; uint16 is how bfloat16 is held where a target lacks it."""
    return dtype_of("bfloat16" if dtype == "uint16" else dtype).bytes


def _shared_bytes(device: Any, scope: str) -> int:
    total = 0

    def visit(statement: Any) -> None:
        nonlocal total
        if statement.buffer.scope() != scope:
            return
        size = _bytes(str(statement.buffer.ty.dtype))
        for extent in statement.buffer.ty.shape:
            size *= int(extent.value)
        total += size

    structural_walk(device.body, (tirx.AllocBuffer, visit))
    return total
