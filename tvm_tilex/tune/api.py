"""Tuning from Python: one call that searches, measures the winner anew and stores it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from tvm_tilex.build.screening import has_clusters
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import ArgumentError
from tvm_tilex.kernels.subjects import kernel_name
from tvm_tilex.lang.kernel import TileKernel
from tvm_tilex.tune.database import Database
from tvm_tilex.tune.endpoint import LOCAL, Endpoint
from tvm_tilex.tune.errors import ReportError
from tvm_tilex.tune.job import DEFAULT_TIMING, SubjectSpec, Timing
from tvm_tilex.tune.metric import default_metric
from tvm_tilex.tune.ownership import owned
from tvm_tilex.tune.progress import Progress
from tvm_tilex.tune.report import Report, Settings
from tvm_tilex.tune.search import DEFAULT_SEARCH
from tvm_tilex.tune.session import new_report, resumed, run
from tvm_tilex.tune.space import Space, default_space, has_odd_rows
from tvm_tilex.tune.store import store

__all__ = ["DEFAULT_BUDGET", "default_output", "new_folder", "resume", "tune"]

# Several shapes of the largest default space; most of it is refused without being compiled.
DEFAULT_BUDGET = 25_000


def tune(
    kernel: TileKernel | str,
    shapes: Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]],
    *,
    dtype: str = "float32",
    static: Mapping[str, Any] | None = None,
    target: Any = "llvm",
    space: Space | None = None,
    metric: str | None = None,
    search: str = DEFAULT_SEARCH,
    trials: int | None = None,
    patience: int = 8,
    budget: int = DEFAULT_BUDGET,
    timing: Timing = DEFAULT_TIMING,
    limit: float = 120.0,
    jobs: int | None = None,
    seed: int = 0,
    endpoints: Sequence[Endpoint] = (LOCAL,),
    output: str | Path | None = None,
    database: Database | None = None,
    progress: Progress | None = None,
) -> Report:
    """Tune a kernel for one or more shapes.

    Parameters
    ----------
    kernel
        A tile kernel, or its name: of the library, or ``file.py:name``. Its source must be a file,
        since candidates run in other processes.
    shapes
        The shapes to tune for: (P, N) for a kernel of the library, one shape a view otherwise.
    space
        The candidates; by default those of :func:`default_space`.
    metric
        ``host-wall``, ``gpu-control`` or ``sim-cost`` (modelled); by default what there is here.
    search
        ``neighbours``, ``model``, ``exhaustive`` or ``optuna``.
    jobs
        Compilers of machine code that run beside the search, on CUDA with nvcc: 0 none, None one a
        core but two.
    output
        A new or empty folder for ``report.json``; by default one in the user's cache folder.
    database
        Receives the winners; None stores none.

    Raises
    ------
    BudgetError, MetricError, TilexError
        Before any work, if something asked for cannot be.
    """
    name = kernel_name(kernel) if isinstance(kernel, TileKernel) else absolute_name(kernel)
    resolved = resolve_target(target)
    kind = str(resolved.kind.name)
    extents = [_shapes(shape) for shape in shapes]
    odd_rows = has_odd_rows(itertools.chain.from_iterable(extents), dtype)
    clusters = has_clusters(resolved)
    settings = Settings(
        target=str(resolved),
        space=space or default_space(kind, dtype=dtype, clusters=clusters, odd_rows=odd_rows),
        metric=metric or default_metric(kind, endpoints[0]),
        timing=timing,
        seed=seed,
        search=search,
        trials=trials,
        patience=patience,
        budget=budget,
        limit=limit,
        endpoints=tuple(endpoints),
        jobs=jobs,
    )
    subjects = [SubjectSpec(name, found, dtype, dict(static or {})) for found in extents]
    report = new_report(settings, subjects)
    folder = Path(output) if output is not None else default_output(name)
    with new_folder(folder):
        finished = run(report, folder / "report.json", progress)
    if database is not None:
        store(finished, database)
    return finished


def resume(
    path: Path,
    *,
    endpoints: Sequence[Endpoint] | None = None,
    budget: int | None = None,
    limit: float | None = None,
    database: Database | None = None,
    progress: Progress | None = None,
) -> Report:
    """Carry on an interrupted run from its report; finished trials are not repeated.

    Raises
    ------
    ReportError
        If the report cannot be read, another run is writing it, or kernels or versions are not
        what they were.
    """
    path = path / "report.json" if path.is_dir() else path
    Report.read(path)  # what is no report is named before a lock is
    with owned(path.parent):
        finished = _carry_on(path, endpoints, budget, limit, progress)
    if database is not None:
        store(finished, database)
    return finished


def _carry_on(
    path: Path,
    endpoints: Sequence[Endpoint] | None,
    budget: int | None,
    limit: float | None,
    progress: Progress | None,
) -> Report:
    old = Report.read(path)
    settings = dataclasses.replace(
        old.settings,
        endpoints=tuple(endpoints or old.settings.endpoints),
        budget=old.settings.budget if budget is None else budget,
        limit=old.settings.limit if limit is None else limit,
    )
    wanted = new_report(settings, [section.subject for section in old.sections])
    return run(resumed(old, wanted), path, progress)


def absolute_name(name: str) -> str:
    """The name that another working directory finds, too."""
    path, _, attribute = name.rpartition(":")
    return f"{Path(path).resolve()}:{attribute}" if path else name


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Create an output folder and keep other runs out of it.

    Raises
    ------
    ReportError
        If it exists and is not empty: no report is ever overwritten. If another run is using it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None
    with owned(path):
        if any(path.iterdir()):
            raise ReportError(f"{path}: not empty; name a new folder, or resume the run in it")
        yield


def default_output(name: str) -> Path:
    """Where a report goes that no folder is named for: the user's cache, by kernel and time."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    plain = name.rpartition(":")[2]
    root = Path(platformdirs.user_cache_dir("tvm_tilex")) / "tuning"
    return root / f"{plain}-{stamp}-{os.getpid()}"


def _shapes(given: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """One shape, or one a view."""
    nested = given if given and isinstance(given[0], (tuple, list)) else (given,)
    try:
        return tuple(tuple(int(extent) for extent in shape) for shape in nested)
    except (TypeError, ValueError):
        raise ArgumentError(f"shape {given!r}: not extents, nor one shape a view") from None
