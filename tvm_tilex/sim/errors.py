"""Errors of the Metal source simulator.

Three families: a text that is not of the supported subset (:class:`MslSyntaxError`,
:class:`UnsupportedConstructError`, :class:`MslTypeError`), a launch whose arguments do not fit
(:class:`LaunchError`), and a fault of the running kernel (:class:`KernelFault` and below).
"""

from __future__ import annotations

from tvm_tilex.errors import ParseError, SimulatorError

__all__ = [
    "BarrierDivergenceError",
    "CollectiveDivergenceError",
    "ConstWriteError",
    "IntegerDivisionByZeroError",
    "KernelFault",
    "LaunchError",
    "MisalignedAccessError",
    "MslSyntaxError",
    "MslTypeError",
    "OutOfBoundsError",
    "RaceError",
    "ShiftWidthError",
    "SourceError",
    "StepLimitError",
    "UndefinedValueError",
    "UninitializedReadError",
    "UnsupportedConstructError",
]


class SourceError(SimulatorError, ParseError):
    """A text that the simulator does not accept.

    Parameters
    ----------
    message
        The construct and the rule.
    line, column
        Where it stands, both 1-based.
    construct
        The name of the construct, for example ``"switch statement"``.
    """

    def __init__(self, message: str, line: int, column: int, construct: str = "") -> None:
        self.line, self.column, self.construct = line, column, construct
        super().__init__(f"line {line}, column {column}: {message}")


class MslSyntaxError(SourceError):
    """Text that the grammar of the supported subset does not derive."""


class UnsupportedConstructError(SourceError):
    """A construct by name that is outside the supported subset."""


class MslTypeError(SourceError):
    """An expression whose types the Metal Shading Language does not allow."""


class LaunchError(SimulatorError):
    """Grid, group or arguments that do not fit the kernel or the limits of the device."""


class KernelFault(SimulatorError):
    """A fault found while a kernel ran.

    Attributes
    ----------
    line, column
        The position of the faulty construct in the text.
    thread
        ``(x, y, z)`` of the thread in its threadgroup.
    threadgroup
        ``(x, y, z)`` of the threadgroup in the grid.
    memory, address
        Name of the buffer or variable and the byte offset in it; None where no address is part
        of the fault.
    """

    def __init__(
        self,
        message: str,
        *,
        line: int,
        column: int,
        thread: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        memory: str | None = None,
        address: int | None = None,
    ) -> None:
        self.line, self.column = line, column
        self.thread, self.threadgroup = thread, threadgroup
        self.memory, self.address = memory, address
        where = f"thread {thread} of threadgroup {threadgroup}"
        if memory is not None:
            where += f", address {memory!r}" + ("" if address is None else f" + {address} bytes")
        super().__init__(f"line {line}, column {column}: {message}\n  {where}")


class OutOfBoundsError(KernelFault):
    """An access outside its buffer, threadgroup array or thread array."""


class MisalignedAccessError(KernelFault):
    """A vector access whose address is not a multiple of the vector's alignment."""


class UninitializedReadError(KernelFault):
    """A read of threadgroup memory that no thread of this threadgroup wrote."""


class UndefinedValueError(UninitializedReadError):
    """A value read from thread memory that nothing wrote, where the result depends on it."""


class RaceError(KernelFault):
    """Two threads at one address, one of them writing, with nothing that orders them."""


class BarrierDivergenceError(KernelFault):
    """A barrier that only part of its threadgroup or SIMD group reaches."""


class CollectiveDivergenceError(KernelFault):
    """A SIMD-group function or matrix operation that only part of its SIMD group reaches."""


class ConstWriteError(KernelFault):
    """A write through a const or constant pointer, or to an input-only buffer."""


class IntegerDivisionByZeroError(KernelFault):
    """An integer ``/`` or ``%`` by zero."""


class ShiftWidthError(KernelFault):
    """A shift by a negative amount or by at least the width of the shifted type."""


class StepLimitError(KernelFault):
    """A loop that runs past the step limit."""
