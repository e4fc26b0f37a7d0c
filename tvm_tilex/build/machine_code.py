"""CUDA machine code that is kept: made once for a text, an architecture and options, then found.

A folder serves several processes, so that one may compile ahead what another one will load. Its
compiler is not part of the key: a folder is for as long as the compiler is the same, for one run.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tvm_tilex.build.cuda_toolchain import compile_cubin

__all__ = ["MachineCode", "NoMachineCode", "cubin_for", "kept"]


class MachineCode:
    """Cubins of this process, and of all that were given the same folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._found: dict[str, bytes] = {}

    def cubin(self, source: str, arch: str, options: tuple[str, ...]) -> bytes:
        """The cubin that :func:`compile_cubin` makes of these, or once made.

        Raises
        ------
        TargetError
            If it has to be compiled and cannot be.
        """
        key = hashlib.sha256(json.dumps([source, arch, options]).encode()).hexdigest()
        found = self._found.get(key) or self._read(key)
        if found is None:
            found = compile_cubin(source, arch, options)
            self._write(key, found)
        self._found[key] = found
        return found

    def _read(self, key: str) -> bytes | None:
        if self._folder is None:
            return None
        try:
            return (self._folder / f"{key}.cubin").read_bytes()
        except OSError:
            return None

    def _write(self, key: str, cubin: bytes) -> None:
        """A reader sees the whole file or none; without room each process compiles on its own."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            descriptor, path = tempfile.mkstemp(dir=self._folder)
            with open(descriptor, "wb") as file:
                file.write(cubin)
            os.replace(path, self._folder / f"{key}.cubin")


class NoMachineCode(MachineCode):
    """For text alone: what is built with it cannot be loaded."""

    def cubin(self, source: str, arch: str, options: tuple[str, ...]) -> bytes:
        """Nothing that a device would take, at once."""
        return b"text only"


_KEPT: contextvars.ContextVar[MachineCode | None] = contextvars.ContextVar("code", default=None)


@contextlib.contextmanager
def kept(code: MachineCode) -> Iterator[None]:
    """TVM takes machine code from ``code`` while this context is entered.

    It asks for it when a module is built, where its CUDA runtime is there, else when one is loaded.
    """
    token = _KEPT.set(code)
    try:
        yield
    finally:
        _KEPT.reset(token)


def cubin_for(source: str, arch: str, options: tuple[str, ...]) -> bytes:
    """The cubin for a module that is being built or loaded."""
    code = _KEPT.get()
    if code is None:
        return compile_cubin(source, arch, options)
    return code.cubin(source, arch, options)
