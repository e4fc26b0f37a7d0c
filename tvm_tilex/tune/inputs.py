"""Arguments and FP64 outputs of a subject: made once for all its candidates, in every process.

A folder of the run hands them to processes that come later; they are mapped from it, not read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_tilex.ir.types import dtype_of, numpy_dtype
from tvm_tilex.kernels.subjects import Subject

__all__ = ["Inputs", "inputs_of"]

Array = NDArray[Any]
# Arguments before the call, and the expected outputs.
Inputs = tuple[tuple[Array, ...], tuple[Array, ...]]


def inputs_of(label: str, subject: Subject, seed: int, folder: str) -> Inputs:
    """Arguments before the call and FP64 outputs, which all candidates of a shape share.

    ``label`` names the subject, ``folder`` the run's own; without one, or without room in it, each
    process makes its own.
    """
    kept = _of_this_process(f"{label} {sorted(subject.static.items())}", seed)
    if not kept:
        kept.append(_read(label, seed, folder) or _make(label, subject, seed, folder))
    return kept[0]


# One entry: candidates of a shape follow one another, and its arrays may be large.
@functools.lru_cache(maxsize=1)
def _of_this_process(label: str, seed: int) -> list[Inputs]:
    return []


def _make(label: str, subject: Subject, seed: int, folder: str) -> Inputs:
    before = subject.arguments(seed)
    made = tuple(before), tuple(subject.expected(subject.capture(), before))
    if folder:
        with contextlib.suppress(OSError):
            _write(_path(label, seed, folder), made)
    return made


def _path(label: str, seed: int, folder: str) -> Path:
    return Path(folder, hashlib.sha256(f"{label} {seed}".encode()).hexdigest() + ".arrays")


def _write(path: Path, made: Inputs) -> None:
    """One line that describes the arrays, then each at a multiple of 4 KiB; whole or not there."""
    described = [[[str(a.dtype), a.shape] for a in arrays] for arrays in made]
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(json.dumps(described).encode() + b"\n")
            for array in (array for arrays in made for array in arrays):
                file.seek(-file.tell() % _PAGE, os.SEEK_CUR)
                file.write(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


_PAGE = 4096


def _read(label: str, seed: int, folder: str) -> Inputs | None:
    if not folder:
        return None
    try:
        with open(_path(label, seed, folder), "rb") as file:
            described = json.loads(file.readline())
            place = file.tell()
            mapped = np.memmap(file, np.uint8, "r")
    except (OSError, ValueError):  # none, or nothing in it to map
        return None
    found: list[tuple[Array, ...]] = []
    for arrays in described:
        group = []
        for name, shape in arrays:
            dtype = _dtype(name)
            place += -place % _PAGE
            size = dtype.itemsize * int(np.prod(shape))
            group.append(mapped[place : place + size].view(dtype).reshape(shape))
            place += size
        found.append(tuple(group))
    before, expected = found
    return before, expected


def _dtype(name: str) -> Any:
    return np.dtype(name) if name in np.sctypeDict else numpy_dtype(dtype_of(name))
