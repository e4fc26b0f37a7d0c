"""Process-wide switches from the environment.

``TILEX_DUMP``
    A folder that receives every stage of every compilation as numbered files.
``TILEX_VERIFY``
    ``1`` runs the verifier after each pass (the test suite does).
``TILEX_TUNED``
    ``1`` compiles with the winners of the user's tuning database; a path names another one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Settings", "current", "tuned"]


@dataclass(frozen=True)
class Settings:
    """Values of the switches at one moment."""

    dump: Path | None = None
    verify: bool = False
    tuned: Path | bool = False


def current() -> Settings:
    """Read the switches now."""
    dump = os.environ.get("TILEX_DUMP")
    verify = os.environ.get("TILEX_VERIFY") == "1"
    return Settings(Path(dump) if dump else None, verify, tuned())


def tuned() -> Path | bool:
    """Whether stored winners are used, and of which database; cheap, since every call asks."""
    value = os.environ.get("TILEX_TUNED")
    if value is None or value in ("", "0"):
        return False
    return True if value == "1" else Path(value)
