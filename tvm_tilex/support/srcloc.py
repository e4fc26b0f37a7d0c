"""Where in the user's source an operation was written."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SourceLocation", "asked_by_user", "caller_location"]

_NAME = __name__.partition(".")[0]
_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
# The kernel library is written in the language, so its lines count as a user's.
_LIBRARY = os.path.join(_PACKAGE, "kernels") + os.sep


@dataclass(frozen=True)
class SourceLocation:
    """A file and a 1-based line; prints as ``file:line`` with the path relative when shorter."""

    file: str
    line: int

    def __str__(self) -> str:
        try:
            relative = os.path.relpath(self.file)
        except ValueError:  # another drive on Windows
            relative = self.file
        return f"{min(relative, self.file, key=len)}:{self.line}"


def asked_by_user(depth: int = 1) -> bool:
    """Whether the frame ``depth`` above the caller is outside this package."""
    name: str = sys._getframe(depth + 1).f_globals.get("__name__", "")
    package, _, rest = name.partition(".")
    return package != _NAME or rest.startswith("kernels.")


def caller_location() -> SourceLocation | None:
    """Return the innermost frame outside this package (its kernel library counts as outside)."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file.startswith(_LIBRARY):
            return SourceLocation(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None
