"""Cold and warm compile times, calls at another number of rows, and sizes of what is exported.

    python scripts/benchmark/compile_times.py [--kernel softmax] [--json FILE]

``cold`` is the first compilation of a fresh process, imports of TVM included and stated apart;
``compile`` a compilation in a process that has compiled something else before; ``cached`` the same
call again. All for a fixed shape, for dynamic rows, and for dynamic rows and columns. On LLVM
``new rows`` is a call with a number of rows that was not seen before. Figures are medians over
``--repeat`` runs, in milliseconds; sizes are bytes. GPU targets give text here: what the device's
own compiler adds is not in these numbers.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tvm_tilex as tx
from tvm_tilex import driver, kernels

ROWS, COLUMNS = 4096, 4096
FORMS = ("static", "rows", "rows and columns")

COLD = """
import time
begin = time.perf_counter()
import tvm
imported = time.perf_counter()
from tvm_tilex import driver, kernels
import sys
sys.path.insert(0, {folder!r})
from compile_times import specs
import tvm_tilex as tx
compiled = time.perf_counter()
tx.compile(kernels.catalog()[{kernel!r}].kernel, *specs({kernel!r}, {form!r}), target={target!r})
print(1e3 * (imported - begin), 1e3 * (time.perf_counter() - compiled))
"""


def specs(kernel: str, form: str) -> tuple[Any, ...]:
    """The argument types of one form of a kernel."""
    rows = ROWS if form == "static" else tx.dynamic("P")
    columns = tx.dynamic("N", max=COLUMNS) if form == "rows and columns" else COLUMNS
    return kernels.catalog()[kernel].specs(rows, columns)


def compiled(kernel: str, form: str, target: str) -> Any:
    entry = kernels.catalog()[kernel]
    return tx.compile(entry.kernel, *specs(kernel, form), target=target)


def milliseconds(run: Callable[[], Any], prepare: Callable[[], Any], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        prepare()
        begin = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def cold(kernel: str, form: str, target: str, repeat: int) -> tuple[float, float]:
    """Milliseconds of TVM's import, and of the first compilation of a process."""
    code = COLD.format(kernel=kernel, form=form, target=target, folder=str(Path(__file__).parent))
    found = []
    for _ in range(repeat):
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
        )
        found.append(tuple(map(float, ran.stdout.split())))
    imports, compilations = zip(*found, strict=True)
    return statistics.median(imports), statistics.median(compilations)


def new_rows(kernel: str, repeat: int) -> float:
    """Milliseconds of a call whose number of rows is new; the rows are too few to take any."""
    entry = kernels.catalog()[kernel]
    fresh = tx.tile_kernel(entry.kernel.function)
    counts = iter(range(1, repeat + 3))
    fresh(*entry.arguments(next(counts), COLUMNS))
    arguments: list[Any] = []

    def prepare() -> None:
        arguments[:] = entry.arguments(next(counts), COLUMNS)

    return milliseconds(lambda: fresh(*arguments), prepare, repeat)


def row(kernel: str, form: str, target: str, repeat: int) -> dict[str, Any]:
    imports, first = cold(kernel, form, target, repeat)
    compiled("row_sum", "static", target)  # what the process loads once
    forget = driver._ARTIFACTS.clear
    again = milliseconds(lambda: compiled(kernel, form, target), forget, repeat)
    cached = milliseconds(lambda: compiled(kernel, form, target), lambda: None, repeat)
    artifact = compiled(kernel, form, target)
    found = {
        "target": target,
        "form": form,
        "variants": len(artifact.variants),
        "import_tvm_ms": round(imports),
        "cold_ms": round(first),
        "compile_ms": round(again, 1),
        "cached_ms": round(cached, 2),
        "source_bytes": len(artifact.source.encode()),
    }
    if target == "llvm":
        with tempfile.TemporaryDirectory() as folder:
            library = artifact.export_library(Path(folder) / "kernel.so")
            found["library_bytes"] = library.stat().st_size
    return found


def whole_library() -> dict[str, Any]:
    """One library of every kernel with dynamic rows and columns."""
    artifacts = [compiled(name, "rows and columns", "llvm") for name in kernels.catalog()]
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        path = tx.export_library(Path(folder) / "kernels.so", artifacts)
        seconds = time.perf_counter() - begin
        return {
            "entries": len(artifacts),
            "export_ms": round(1e3 * seconds),
            "library_bytes": path.stat().st_size,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernel", default="softmax", choices=sorted(kernels.catalog()))
    parser.add_argument("--targets", default="llvm,metal,cuda")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    given = parser.parse_args()
    rows = [
        row(given.kernel, form, target, given.repeat)
        for target in given.targets.split(",")
        for form in FORMS
    ]
    report = {
        "kernel": given.kernel,
        "shape": [ROWS, COLUMNS],
        "machine": platform.processor() or platform.machine(),
        "numpy": np.__version__,
        "rows": rows,
        "new_rows_ms": round(new_rows(given.kernel, given.repeat), 3),
        "library": whole_library(),
    }
    for found in rows:
        print(" ".join(f"{key}={value}" for key, value in found.items()))
    print(f"call with a new number of rows: {report['new_rows_ms']} ms")
    print(f"library of every kernel: {report['library']}")
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
