"""From MSL text to launches: :class:`MetalKernel` and :class:`MetalLibrary`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.counters import Counters
from tvm_tilex.sim.errors import LaunchError, MslSyntaxError, UnsupportedConstructError
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.rules import EXPRESSION_RULES
from tvm_tilex.sim.launch import Launch, LaunchOptions
from tvm_tilex.sim.parse import parse
from tvm_tilex.sim.scope import Symbol, Symbols, record_types, resolve
from tvm_tilex.sim.statements import Statement, StatementCompiler
from tvm_tilex.sim.types import PointerType, ScalarType, StructType, element_type

__all__ = ["LIMITS", "BufferParameter", "Checks", "Limits", "MetalKernel", "MetalLibrary"]


@dataclass(frozen=True)
class Checks:
    """Which checks a launch makes. Bounds, divergence and arithmetic checks are always on.

    Parameters
    ----------
    races
        Report two unordered accesses of one address, one of them a write.
    uninitialized
        ``"use"`` (default): a read of threadgroup memory that nothing wrote is a fault at once; a
        value read from thread memory that nothing wrote is one where a result depends on it: a
        store to device or threadgroup memory, an address, a branch, a divisor or shift amount, a
        SIMD reduction. Moving such a value around (a shuffle, arithmetic whose result is thrown
        away) is not, because generated reductions do that in idle lanes. ``"read"``: every such
        read of a thread array is a fault. ``"off"``: neither.
    """

    races: bool = True
    uninitialized: Literal["use", "read", "off"] = "use"


@dataclass(frozen=True)
class Limits:
    """Limits of a device: threads per threadgroup, bytes of threadgroup memory, buffers."""

    threads_per_threadgroup: int = 1024
    threadgroup_bytes: int = 32768
    buffers: int = 31


LIMITS = Limits()


@dataclass(frozen=True)
class BufferParameter:
    """A buffer parameter: its index in the argument table and its slot in the frame."""

    symbol: Symbol
    index: int
    struct: StructType | None


_POSITIONS = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "threadgroups_per_grid",
    "threads_per_grid",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "threads_per_simdgroup",
    "simdgroups_per_threadgroup",
    "thread_execution_width",
)


class MetalKernel:
    """One compute kernel, compiled for the simulator.

    Attributes
    ----------
    name
        Its name in the text.
    buffers
        Its buffer parameters by ``[[buffer(i)]]``, ascending; a launch takes one argument each.
    threadgroup_bytes
        Bytes of its threadgroup arrays.
    private_bytes
        Bytes of thread arrays and matrices per thread.
    """

    def __init__(self, kernel: ast.Kernel, records: dict[str, StructType]) -> None:
        self.name = kernel.name
        symbols = Symbols()
        self._expressions = ExpressionCompiler(symbols, records, EXPRESSION_RULES)
        statements = StatementCompiler(self._expressions)
        self.buffers: tuple[BufferParameter, ...] = ()
        self.positions: list[tuple[Symbol, str]] = []
        self.dynamic: list[tuple[Symbol, int]] = []
        for parameter in kernel.parameters:
            self._parameter(parameter, symbols, records)
        self.buffers = tuple(sorted(self.buffers, key=lambda b: b.index))
        self.body: Statement = statements.compile(kernel.body)
        self.threadgroup_arrays = tuple(statements.threadgroup_arrays)
        self.threadgroup_bytes = sum(-(-s.type.size // 16) * 16 for s in self.threadgroup_arrays)  # type: ignore[union-attr]
        self.private_bytes = statements.private_bytes
        self.slots = symbols.slots
        self.stored = frozenset(self._expressions.stored)
        if self._expressions.moved_pointers:
            self.stored = frozenset(b.symbol.name for b in self.buffers)

    @staticmethod
    def from_source(text: str) -> MetalLibrary:
        """Parse and compile a text; index the result by kernel name.

        Raises
        ------
        MslSyntaxError, UnsupportedConstructError, MslTypeError
            With line, column and the name of the construct; all are :class:`ParseError`.
        """
        unit = parse(text)
        records = record_types(unit.records)
        if not unit.kernels:
            raise MslSyntaxError("the text has no kernel", 1, 1, "kernel")
        return MetalLibrary({k.name: MetalKernel(k, records) for k in unit.kernels})

    def _parameter(
        self, parameter: ast.Parameter, symbols: Symbols, records: dict[str, StructType]
    ) -> None:
        attributes = dict(parameter.attributes)
        where = (parameter.line, parameter.column)
        kind = resolve(parameter.type, records)
        if parameter.type.indirection:
            self._buffer(parameter, attributes, symbols, kind)
            return
        known = [a for a in attributes if a in _POSITIONS]
        if len(attributes) != 1 or not known:
            raise UnsupportedConstructError(
                f"parameter {parameter.name} with attributes {sorted(attributes)} is not supported",
                *where,
                "parameter attribute",
            )
        element = element_type(kind)
        if not isinstance(element, ScalarType) or element.name not in ("uint", "ushort"):
            raise MslSyntaxError(
                f"{known[0]} has type uint, ushort or a vector of them, not {kind}",
                *where,
                known[0],
            )
        symbol = symbols.declare(parameter, parameter.name, kind, builtin=True)
        self.positions.append((symbol, known[0]))

    def _buffer(
        self,
        parameter: ast.Parameter,
        attributes: dict[str, int | None],
        symbols: Symbols,
        kind: Any,
    ) -> None:
        where = (parameter.line, parameter.column)
        space = parameter.type.space
        const = parameter.type.const or space == "constant"
        index = attributes.get("buffer" if space != "threadgroup" else "threadgroup")
        if space not in ("device", "constant", "threadgroup") or index is None:
            raise UnsupportedConstructError(
                f"pointer parameter {parameter.name} needs an address space and an index "
                "attribute ([[buffer(i)]] or [[threadgroup(i)]])",
                *where,
                "parameter attribute",
            )
        if space == "threadgroup":
            pointer = PointerType(kind, space, const)
            symbol = symbols.declare(parameter, parameter.name, pointer, space=space)
            self.dynamic.append((symbol, index))
            return
        struct = kind if isinstance(kind, StructType) else None
        if parameter.type.indirection == "&" and struct is None:
            raise UnsupportedConstructError(
                f"reference parameter {parameter.name} to {kind} is not supported",
                *where,
                "reference parameter",
            )
        if index >= LIMITS.buffers:
            raise LaunchError(
                f"kernel {self.name}: buffer index {index} of {parameter.name}; "
                f"Metal has {LIMITS.buffers} buffers"
            )
        if any(b.index == index for b in self.buffers):
            raise MslSyntaxError(f"buffer({index}) is used twice", *where, "buffer attribute")
        roots = frozenset((parameter.name,))
        is_reference = struct is not None and parameter.type.indirection == "&"
        declared: Any = struct if is_reference else PointerType(kind, space, const)
        symbol = symbols.declare(
            parameter, parameter.name, declared, space=space, const=const, roots=roots
        )
        self.buffers += (BufferParameter(symbol, index, struct if is_reference else None),)

    def launch(
        self,
        grid: int | Sequence[int],
        group: int | Sequence[int],
        *arguments: Any,
        seed: int = 0,
        checks: Checks = Checks(),
        read_only: Sequence[str | int] = (),
        simd_width: int = 32,
        step_limit: int = 1 << 20,
        lanes_per_chunk: int = 1 << 16,
        threadgroup_memory: Mapping[int, int] | None = None,
    ) -> Counters:
        """Run the kernel and return what it did.

        Parameters
        ----------
        grid
            Threadgroups per grid, one to three integers (0 runs nothing).
        group
            Threads per threadgroup, one to three integers.
        *arguments
            One C-contiguous NumPy array per buffer, in ``[[buffer(i)]]`` order, written in place;
            for an argument struct (``constant S& arg``) one scalar per field in field order, or
            one mapping from field to scalar.
        seed
            Chooses the order in which SIMD reductions combine lanes. Equal launches agree bit for
            bit.
        checks
            See :class:`Checks`; everything is on by default.
        read_only
            Names or positions of buffers that the kernel may not write. An array that isn't
            writeable is read-only in any case.
        simd_width
            Lanes per SIMD group.
        step_limit
            Iterations after which a loop is a fault.
        lanes_per_chunk
            Bounds memory: whole threadgroups run together up to about this many threads.
        threadgroup_memory
            Bytes of ``[[threadgroup(i)]]`` parameters by index.

        Raises
        ------
        LaunchError
            Where grid, group or arguments do not fit the kernel or the limits.
        KernelFault
            Where a check fails; buffers then hold what was written before.
        """
        options = LaunchOptions(
            seed=seed,
            checks=checks,
            read_only=tuple(read_only),
            simd_width=simd_width,
            step_limit=step_limit,
            lanes_per_chunk=lanes_per_chunk,
            threadgroup_memory=dict(threadgroup_memory or {}),
        )
        return Launch(self, grid, group, arguments, options, LIMITS).run()


class MetalLibrary(Mapping[str, MetalKernel]):
    """The kernels of one text by name."""

    def __init__(self, kernels: dict[str, MetalKernel]) -> None:
        self._kernels = kernels

    def __getitem__(self, name: str) -> MetalKernel:
        try:
            return self._kernels[name]
        except KeyError:
            raise LaunchError(
                f"the text has no kernel {name!r}; it has {', '.join(self._kernels)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)
