"""The closed tree of exceptions that tvm_tilex raises.

Every message fits two lines and names the user's line, the operand and the rule. The tree is
registered with ``tvm_ffi.register_error`` (in :mod:`tvm_tilex.tirx.register`), so that a refusal
raised inside a TVM pass reaches the caller with its own type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm_tilex.support.srcloc import SourceLocation

__all__ = [
    "ArgumentError",
    "CaptureError",
    "DTypeError",
    "LayoutError",
    "LoweringError",
    "MappingError",
    "OptionError",
    "ParseError",
    "ProofError",
    "ShapeError",
    "SimulatorError",
    "TargetError",
    "TilexError",
    "VerifyError",
]


class TilexError(Exception):
    """Base of every error of this package.

    Parameters
    ----------
    message
        What is wrong and which rule says so, in one or two lines.
    location
        The user's line, printed in front of the message.
    """

    def __init__(self, message: str, *, location: SourceLocation | None = None) -> None:
        self.location = location
        super().__init__(f"{location}: {message}" if location is not None else message)


class CaptureError(TilexError):
    """A tile kernel whose Python source breaks a rule of the language."""


class ShapeError(CaptureError):
    """Axes, ranks or extents that do not fit each other."""


class DTypeError(CaptureError):
    """Element types that do not fit each other or the operation."""


class ParseError(TilexError):
    """A text (TileIR, layout, MSL) that does not parse."""


class VerifyError(TilexError):
    """An IR that is not well formed: a defect of the producer, not of the user's kernel."""


class LoweringError(TilexError):
    """A valid program that cannot be lowered; the message names the operation."""


class MappingError(TilexError):
    """An explicit request for SIMD groups that cannot be realized; the message says which rule."""


class ArgumentError(TilexError):
    """A call whose arguments do not fit the compiled kernel, named by parameter."""


class OptionError(TilexError):
    """A compile option whose value is outside its documented domain."""


class TargetError(TilexError):
    """A target that lacks what a kernel needs, or that cannot run here."""


class LayoutError(TilexError):
    """A layout, map or coordinate outside its declared domain or codomain."""


class ProofError(TilexError):
    """A fact that a legality rule requires and that is not proved."""


class SimulatorError(TilexError):
    """Base of the errors of the Metal source simulator (see :mod:`tvm_tilex.sim.errors`)."""
