"""Machine code ahead of its trial: device compilers run beside the measurements, on other cores.

A device compiler takes seconds for a kernel that is measured in less. Every candidate's source is
known once the cost model was asked, so each is compiled into the run's folder, where the process
that measures will find it. Only the search is measured beside that, and only by the device's own
timestamps; what is published is measured after :meth:`Ahead.close`.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from tvm_tilex.build.cuda_compile import compile_into
from tvm_tilex.build.cuda_toolchain import find_nvcc
from tvm_tilex.build.machine_code import MachineCode
from tvm_tilex.errors import TilexError

__all__ = ["Ahead", "default_jobs"]


def default_jobs() -> int:
    """Compilers at once: two cores are left to the processes that tune and measure."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) - 2)


class Ahead:
    """Compiles sources in the order in which they are added, each text once."""

    def __init__(self, folder: str, jobs: int) -> None:
        self._code = MachineCode(Path(folder))
        self._pool = ThreadPoolExecutor(jobs)  # each waits for a compiler's process
        self._by_text: dict[str, Future[None]] = {}
        self._by_candidate: dict[int, Future[None]] = {}

    @staticmethod
    def serves(kind: str) -> bool:
        """Whether there is a compiler in a process of its own: nvcc."""
        return kind == "cuda" and find_nvcc() is not None

    def add(self, candidate: int, source: str) -> None:
        """Compile a candidate's source when a compiler is free."""
        if source not in self._by_text:
            self._by_text[source] = self._pool.submit(self._compile, source)
        self._by_candidate[candidate] = self._by_text[source]

    def await_candidate(self, candidate: int, limit: float) -> None:
        """Return when the candidate's code is there, or not begun: then its trial compiles it."""
        future = self._by_candidate.get(candidate)
        if future is not None and not future.cancel():
            wait([future], limit)

    def await_all(self) -> None:
        """Return when everything that was added is compiled."""
        wait(self._by_text.values())

    def close(self) -> None:
        """Begin no further compilation, and return when no compiler runs."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _compile(self, source: str) -> None:
        with contextlib.suppress(TilexError):  # the trial says so
            compile_into(self._code, source)
