"""Process-wide switches from the environment.

``TILEX_DUMP``
    A folder that receives every stage of every compilation as numbered files.
``TILEX_VERIFY``
    ``1`` runs the verifier after each pass (the test suite does).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Settings", "current"]


@dataclass(frozen=True)
class Settings:
    """Values of the switches at one moment."""

    dump: Path | None = None
    verify: bool = False


def current() -> Settings:
    """Read the switches now."""
    dump = os.environ.get("TILEX_DUMP")
    return Settings(Path(dump) if dump else None, os.environ.get("TILEX_VERIFY") == "1")
