"""Export library kernels with inputs and FP64 references for the C++ deployment runner.

Writes one folder per case below DIRECTORY::

    softmax/softmax.so       the kernel library
    softmax/input.npy        each argument that the kernel reads, by name
    softmax/output.npy       FP64 reference of each argument that it writes
    softmax/corrupted.npy    the first reference with one element moved out of its tolerance
    softmax/right.txt        command line of a right run, one word a line (tilex_run @right.txt)
    softmax/wrong.txt        the same against the corrupted reference

and ``library/kernels.so``, one library of the kernels in ``LIBRARY`` with dynamic rows and columns,
with the files of its first kernel.

File names in the command lines are relative to the case's folder. References and tolerances come
from the library's own oracles and its one table of tolerances.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.kernels.registry import KernelEntry
from tvm_tilex.kernels.tolerances import STORAGE, TOLERANCES


@dataclass(frozen=True)
class Case:
    """A kernel at P = ``rows``, N = ``columns`` with one storage type."""

    kernel: str
    rows: int
    columns: int
    dtype: str


CASES = (
    Case("softmax", 3, 4096, "float32"),
    Case("cross_entropy", 7, 1024, "float32"),  # int64 labels
    Case("rmsnorm", 17, 257, "bfloat16"),
    Case("layernorm", 5, 127, "float16"),
    Case("minmax", 5, 127, "float32"),  # two outputs, exact
)

# Kernels of one library, for any number of rows and up to this many columns.
LIBRARY = ("softmax", "cross_entropy")
WIDEST = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    directory = parser.parse_args().directory
    for case in CASES:
        export(case, directory / case.kernel)
        print(f"{case.kernel} {case.rows}x{case.columns} {case.dtype}: {directory / case.kernel}")
    export_library(directory / "library")


def export_library(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    extents = tx.dynamic("P"), tx.dynamic("N", max=WIDEST)
    entries = [kernels.catalog()[name] for name in LIBRARY]
    artifacts = [tx.compile(entry.kernel, *entry.specs(*extents)) for entry in entries]
    tx.export_library(folder / "kernels.so", artifacts)
    write_files(Case(LIBRARY[0], 19, 77, "float32"), "kernels.so", folder)


def export(case: Case, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    entry = kernels.catalog()[case.kernel]
    artifact = tx.compile(entry.kernel, *entry.specs(case.rows, case.columns, case.dtype))
    artifact.export_library(folder / f"{case.kernel}.so")
    write_files(case, f"{case.kernel}.so", folder)


def write_files(case: Case, library: str, folder: Path) -> None:
    entry = kernels.catalog()[case.kernel]
    arguments = entry.arguments(case.rows, case.columns, case.dtype)
    expected = dict(zip(entry.outputs, entry.expected(arguments), strict=True))
    words = [library, case.kernel]
    for position, (name, array) in enumerate(zip(entry.parameters, arguments, strict=True)):
        if position in expected:
            np.save(folder / f"{name}.npy", expected[position])
            words += output_words(entry, name, array)
        else:
            np.save(folder / f"{name}.npy", storable(array))
            words += ["--input", f"{name}.npy"]
    (folder / "right.txt").write_text("\n".join(words) + "\n")

    first = entry.outputs[0]
    np.save(folder / "corrupted.npy", corrupted(expected[first]))
    reference = words.index(f"{entry.parameters[first]}.npy")
    words[reference] = "corrupted.npy"
    (folder / "wrong.txt").write_text("\n".join(words) + "\n")


def output_words(entry: KernelEntry, name: str, array: NDArray[Any]) -> list[str]:
    """Return the words that describe an output, with the bound of ``tolerances.compare``."""
    tolerance = TOLERANCES[entry.operation]
    if tolerance.cancels:
        raise ValueError(f"{entry.name}: its bound depends on the inputs, not on one rtol and atol")
    unit, subnormal = STORAGE[dtype_of(str(array.dtype))]
    if tolerance.rtol == tolerance.atol == 0.0:
        unit = subnormal = 0.0  # a selection is exact
    shape = "x".join(map(str, array.shape))
    return [
        *("--output", f"{array.dtype}:{shape}"),
        *("--expect", f"{name}.npy"),
        *("--rtol", repr(tolerance.rtol + unit)),
        *("--atol", repr(tolerance.atol + subnormal)),
    ]


def corrupted(expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move the last element by a tenth of the largest: far above any tolerance, still a number."""
    wrong: NDArray[np.float64] = expected.copy()
    wrong.flat[-1] += 0.1 * np.abs(expected).max()
    return wrong


def storable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of bfloat16, which .npy files cannot name; other arrays as they are."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


if __name__ == "__main__":
    main()
