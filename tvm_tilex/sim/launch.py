"""A launch: limits, arguments, and the chunks of threadgroups that run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tvm_tilex.sim.arguments import bind_storages, pack_struct
from tvm_tilex.sim.counters import Counters, DeviceTraffic, ThreadgroupTraffic
from tvm_tilex.sim.errors import LaunchError
from tvm_tilex.sim.machine import Machine
from tvm_tilex.sim.memory import Buffer, Pointer, Storage, ThreadgroupArray
from tvm_tilex.sim.race import Shadow
from tvm_tilex.sim.types import ArrayType, PointerType, VectorType, element_type

if TYPE_CHECKING:
    from tvm_tilex.sim.kernel import BufferParameter, Checks, Limits, MetalKernel

__all__ = ["Launch", "LaunchOptions"]

_PRIVATE_BYTES_PER_CHUNK = 256 << 20


@dataclass(frozen=True)
class LaunchOptions:
    """The keyword arguments of :meth:`tvm_tilex.sim.MetalKernel.launch`."""

    seed: int
    checks: Checks
    read_only: tuple[str | int, ...] = ()
    simd_width: int = 32
    step_limit: int = 1 << 20
    lanes_per_chunk: int = 1 << 16
    threadgroup_memory: Mapping[int, int] = field(default_factory=dict)


class Launch:
    """One launch of one kernel."""

    def __init__(
        self,
        kernel: MetalKernel,
        grid: int | Sequence[int],
        group: int | Sequence[int],
        arguments: tuple[Any, ...],
        options: LaunchOptions,
        limits: Limits,
    ) -> None:
        self.kernel, self.options, self.limits = kernel, options, limits
        self.grid = _extent(grid, "grid", kernel.name, 0)
        self.group = _extent(group, "group", kernel.name, 1)
        self.threads = int(np.prod(self.group))
        self.threadgroups = int(np.prod(self.grid, dtype=object))
        self._check_limits()
        self.counters = Counters(kernel.name, self.threadgroups, self.threads)
        self.counters.private_bytes_per_thread = kernel.private_bytes
        self.counters.threadgroup_bytes = self.threadgroup_bytes
        self.buffers = self._bind(arguments)

    def _check_limits(self) -> None:
        name, limits = self.kernel.name, self.limits
        if self.threads > limits.threads_per_threadgroup:
            raise LaunchError(
                f"kernel {name}: group {self.group} has {self.threads} threads; the limit is "
                f"{limits.threads_per_threadgroup}"
            )
        dynamic = {index for _, index in self.kernel.dynamic}
        missing = dynamic - set(self.options.threadgroup_memory)
        if missing:
            raise LaunchError(f"kernel {name}: threadgroup({min(missing)}) has no size given")
        self.threadgroup_bytes = self.kernel.threadgroup_bytes + sum(
            self.options.threadgroup_memory[index] for index in dynamic
        )
        if self.threadgroup_bytes > limits.threadgroup_bytes:
            raise LaunchError(
                f"kernel {name}: {self.threadgroup_bytes} bytes of threadgroup memory; the limit "
                f"is {limits.threadgroup_bytes}"
            )
        if not 1 <= self.options.simd_width <= 64:
            raise LaunchError(f"kernel {name}: simd_width {self.options.simd_width} not in 1 to 64")

    def _bind(self, arguments: tuple[Any, ...]) -> list[tuple[BufferParameter, Buffer]]:
        rest = list(arguments)
        arrays: list[tuple[BufferParameter, np.ndarray, bool]] = []
        for position, parameter in enumerate(self.kernel.buffers):
            name = parameter.symbol.name
            if parameter.struct is not None:
                data, rest = pack_struct(self.kernel.name, name, parameter.struct, rest)
                arrays.append((parameter, data, True))
                continue
            if not rest:
                raise LaunchError(
                    f"kernel {self.kernel.name}: {len(arguments)} arguments, none for buffer "
                    f"{name!r} ({len(self.kernel.buffers)} parameters)"
                )
            array = rest.pop(0)
            _check_array(self.kernel.name, parameter, array)
            fixed = {name, position} & set(self.options.read_only)
            arrays.append((parameter, array, bool(fixed) or not array.flags.writeable))
        if rest:
            raise LaunchError(
                f"kernel {self.kernel.name}: {len(arguments)} arguments, {len(rest)} too many"
            )
        unknown = set(self.options.read_only) - {b.symbol.name for b in self.kernel.buffers}
        if any(isinstance(u, str) for u in unknown):
            raise LaunchError(
                f"kernel {self.kernel.name}: read_only names no buffer: {sorted(map(str, unknown))}"
            )
        return self._buffers(arrays)

    def _buffers(
        self, arrays: list[tuple[BufferParameter, np.ndarray, bool]]
    ) -> list[tuple[BufferParameter, Buffer]]:
        found = []
        placed = bind_storages([array for _, array, _ in arrays])
        for (parameter, array, fixed), (storage, base) in zip(arrays, placed, strict=True):
            name = parameter.symbol.name
            traffic = self.counters.device[name] = DeviceTraffic()
            buffer = Buffer(name, storage, base, array.nbytes, traffic)
            buffer.writable = not fixed
            found.append((parameter, buffer))
        actors = self.threadgroups * (self.threads + -(-self.threads // self.options.simd_width))
        dtype = np.dtype(np.int64 if actors >= 1 << 31 else np.int32)
        if self.options.checks.races:
            self._shadows(found, dtype)
        return found

    def _shadows(self, found: list[tuple[BufferParameter, Buffer]], dtype: np.dtype) -> None:
        for _, buffer in found:
            if buffer.writable and buffer.name in self.kernel.stored:
                storage: Storage = buffer.storage
                if storage.shadow is None:
                    storage.shadow = Shadow(-(-storage.data.size // storage.unit), "device", dtype)

    def run(self) -> Counters:
        """Run all chunks."""
        lanes = self.options.lanes_per_chunk
        if self.kernel.private_bytes:
            lanes = min(lanes, _PRIVATE_BYTES_PER_CHUNK // self.kernel.private_bytes)
        step = max(lanes // self.threads, 1)
        clock = 1
        with np.errstate(all="ignore"):
            for first in range(0, self.threadgroups, step):
                clock = self._chunk(first, min(step, self.threadgroups - first), clock)
        return self.counters

    def _chunk(self, first: int, groups: int, clock: int) -> int:
        options = self.options
        machine = Machine(
            self.grid,
            self.group,
            first,
            groups,
            options.simd_width,
            self.counters,
            options.checks,
            options.seed,
            options.step_limit,
            clock,
        )
        machine.frame = [None] * self.kernel.slots
        machine.owner = [machine.everyone] * self.kernel.slots
        for parameter, buffer in self.buffers:
            machine.frame[parameter.symbol.slot] = Pointer(buffer, 0)
        for symbol, attribute in self.kernel.positions:
            machine.frame[symbol.slot] = _position(machine, attribute, symbol.type)
        for symbol in self.kernel.threadgroup_arrays:
            assert isinstance(symbol.type, ArrayType)
            element = getattr(symbol.type.element, "element", symbol.type.element)
            machine.frame[symbol.slot] = self._threadgroup(
                machine, symbol.name, symbol.type.size, element.size
            )
        for symbol, index in self.kernel.dynamic:
            assert isinstance(symbol.type, PointerType)
            element = getattr(symbol.type.pointee, "element", symbol.type.pointee)
            array = self._threadgroup(
                machine, symbol.name, options.threadgroup_memory[index], element.size
            )
            machine.frame[symbol.slot] = Pointer(array, 0)
        self.kernel.body(machine)
        return machine.clock + 1

    def _threadgroup(self, machine: Machine, name: str, size: int, unit: int) -> ThreadgroupArray:
        traffic = self.counters.threadgroup.setdefault(name, ThreadgroupTraffic())
        return ThreadgroupArray(machine, name, size, unit, traffic)


def _extent(value: int | Sequence[int], what: str, name: str, least: int) -> tuple[int, int, int]:
    parts = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(parts) <= 3 or any(
        not isinstance(p, int | np.integer) or p < least for p in parts
    ):
        raise LaunchError(
            f"kernel {name}: {what} {value!r} is not one to three integers of at least {least}"
        )
    x, y, z = (*(int(p) for p in parts), 1, 1)[:3]
    return x, y, z


def _check_array(kernel: str, parameter: BufferParameter, array: Any) -> None:
    name = parameter.symbol.name
    if not isinstance(array, np.ndarray):
        raise LaunchError(
            f"kernel {kernel}: buffer {name!r} takes a NumPy array, not {type(array).__name__}"
        )
    if not array.flags.c_contiguous:
        raise LaunchError(f"kernel {kernel}: buffer {name!r} is not C-contiguous")
    assert isinstance(parameter.symbol.type, PointerType)
    pointee = parameter.symbol.type.pointee
    scalar = element_type(pointee)
    wanted = getattr(scalar, "dtype", None)
    if wanted is None or array.dtype == wanted or _same_storage(array.dtype, wanted):
        return
    raise LaunchError(
        f"kernel {kernel}: buffer {name!r} is {parameter.symbol.type}, the array is {array.dtype}"
    )


def _same_storage(given: np.dtype, wanted: np.dtype) -> bool:
    """Accept what TVM stores as another type: bfloat16 as ushort, bool as a byte."""
    if given == ml_dtypes.bfloat16:
        return wanted == np.uint16
    bytes_ = (np.dtype(np.bool_), np.dtype(np.int8), np.dtype(np.uint8))
    return given in bytes_ and wanted in bytes_ and np.dtype(np.bool_) in (given, wanted)


def _position(machine: Machine, attribute: str, kind: Any) -> Any:
    """Return the value of a position attribute as the declared type."""
    group = machine.first_group + machine.group_index
    thread = machine.thread
    (gx, gy, _), (tx, ty, _) = machine.grid, machine.group
    in_grid = (group % gx, group // gx % gy, group // (gx * gy))
    in_group = (thread % tx, thread // tx % ty, thread // (tx * ty))
    vector: tuple[Any, ...] | None = {
        "threadgroup_position_in_grid": in_grid,
        "thread_position_in_threadgroup": in_group,
        "thread_position_in_grid": tuple(
            g * n + t for g, n, t in zip(in_grid, machine.group, in_group, strict=True)
        ),
        "threads_per_threadgroup": machine.group,
        "threadgroups_per_grid": machine.grid,
        "threads_per_grid": tuple(g * n for g, n in zip(machine.grid, machine.group, strict=True)),
    }.get(attribute)
    width = machine.simd_width
    scalar: Any = {
        "thread_index_in_threadgroup": thread,
        "thread_index_in_simdgroup": thread % width,
        "simdgroup_index_in_threadgroup": thread // width,
        "threads_per_simdgroup": width,
        "thread_execution_width": width,
        "simdgroups_per_threadgroup": machine.simds,
    }.get(attribute)
    lanes = kind.lanes if isinstance(kind, VectorType) else 1
    dtype = element_type(kind).dtype
    parts = tuple(
        p.astype(dtype) if isinstance(p, np.ndarray) else dtype.type(p)
        for p in ((scalar,) if vector is None else vector)[:lanes]
    )
    return parts if isinstance(kind, VectorType) else parts[0]
