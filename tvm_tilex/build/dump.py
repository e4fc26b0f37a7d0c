"""Writes every stage of one compilation to numbered files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvm_tilex.tirx.compat import IRModule, ir

__all__ = ["StageDump"]


class StageDump:
    """A folder of stages: ``00_tile_ir.txt``, one ``.py`` per pass, then the emitted source.

    Stages of one of several alternatives carry its name: ``02_loaded.reference.py``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        self._last = ""
        self._alternative = ""
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("[0-9][0-9]_*"):
            stale.unlink()

    def write(self, stage: str, text: str, suffix: str = "txt") -> Path:
        """Write one stage and return its file."""
        name = re.sub(r"[^A-Za-z0-9.]+", "_", self._alternative + stage)
        path = self.folder / f"{self._count:02d}_{name}.{suffix}"
        path.write_text(text if text.endswith("\n") else text + "\n")
        self._count += 1
        return path

    @contextlib.contextmanager
    def alternative(self, name: str) -> Iterator[None]:
        """Name what is written inside as stages of one alternative."""
        self._alternative = f"{name}."
        try:
            yield
        finally:
            self._alternative = ""

    def instrument(self) -> Any:
        """A TVM pass instrument that writes the module after each pass that changed it."""
        dump = self

        @ir.instrument.pass_instrument
        class WriteAfterPass:
            def run_after_pass(self, mod: IRModule, info: Any) -> None:
                text = mod.script()
                if text != dump._last:
                    dump._last = text
                    dump.write(str(info.name), text, "py")

        return WriteAfterPass()
