"""The processor's code: packed floating-point instructions, and more than one thread at work."""

import os
import platform
import re
import subprocess
import sys
import textwrap

import pytest

import tvm_tilex as tx
from tvm_tilex.runtime.threads import physical_cores

CATALOG = tx.kernels.catalog()
PACKED = {
    "x86_64": r"\bv?(add|sub|mul|div|max|fmadd\d*|fnmadd\d*)ps\b.*[xyz]mm",
    "arm64": r"\bf(add|sub|mul|div|mla|max)\b.*\.4s|\bf(add|sub|mul|div|mla|max)\.4s",
}


def compute_code(name):
    """Assembly of the kernel's compute functions, without the argument checks."""
    entry = CATALOG[name]
    source = tx.compile(entry.kernel, *entry.specs(64, 4096)).source
    parts = re.split(r"^(_?[A-Za-z_.][\w.]*):", source, flags=re.M)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return "".join(b for label, b in named if "compute_" in label or "parallel_lambda" in label
                   or label.startswith((".", "L")))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "operations"),
    [("row_sum", {"add"}), ("softmax", {"max", "sub", "add", "div"}), ("rmsnorm", {"mul"})],
)
def test_named_loops_are_packed(name, operations):
    machine = {"AMD64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    if machine not in PACKED:
        pytest.skip(f"no instruction table for {machine}")
    found = {
        next(group for group in match.groups() if group).rstrip("0123456789")
        for match in re.finditer(PACKED[machine], compute_code(name))
    }
    found |= {"mul", "add"} if found & {"fmadd", "mla"} else set()
    assert operations <= found


def test_scalar_folds_have_no_packed_sums():
    """The pattern above can fail: an ordered sum is one chain of scalar additions."""

    @tx.tile_kernel
    def ordered(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            tile = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
            total = tx.reduce(tile, columns, tx.add, policy="fold_left")
            out(tx.coord(nest.index()), tx.shape(1)).store(total)

    source = tx.compile(ordered, (64, 4096), (64,)).source
    assert not re.search(r"\bv?addps\b", source)


def test_programs_are_handed_to_tvms_thread_pool():
    entry = CATALOG["row_sum"]
    assert "TVMBackendParallelLaunch" in tx.compile(entry.kernel, *entry.specs(64, 4096)).source


def working_threads(**environment):
    """Threads that did work in a fresh process that only launches, and where it may still run."""
    script = """
        import os, pathlib, time
        import numpy as np
        import tvm_tilex as tx

        def busy():
            tasks = pathlib.Path("/proc/self/task").iterdir()
            return {t.name: int((t / "schedstat").read_text().split()[0]) for t in tasks}

        processors = os.sched_getaffinity(0)
        x, out = np.ones((2048, 4096), np.float32), np.zeros(2048, np.float32)
        artifact = tx.compile(tx.kernels.row_sum, x, out)
        artifact(x, out)
        before, until = busy(), time.monotonic() + 0.7
        while time.monotonic() < until:
            artifact(x, out)
        after = busy()
        print(sum(after[t] - before.get(t, 0) > 20_000_000 for t in after))
        print(processors == os.sched_getaffinity(0))
    """
    inherited = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    threads, same = done.stdout.split()
    return int(threads), same == "True"


@pytest.mark.skipif(physical_cores() < 2, reason="one core, or a system that doesn't say")
def test_a_thread_works_on_every_core_and_none_is_pinned():
    assert working_threads() == (physical_cores(), True)


@pytest.mark.skipif(physical_cores() < 2, reason="one core, or a system that doesn't say")
def test_the_environment_decides_where_it_says_so():
    threads, _ = working_threads(TVM_NUM_THREADS="1")
    assert threads == 1
