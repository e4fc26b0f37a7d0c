"""Tunes library kernels and times them beside torch on the same inputs.

    python scripts/benchmark/tile_torch/run.py --output NEW_EMPTY_DIRECTORY \
        --backends metal --operations rmsnorm,softmax --metal-subgroup-reductions \
        --tune-group-threads 32,64,128,256 --samples 9 --sample-ms 60 --warmup-ms 100

Each backend is a tuning run with a report of its own (`OUTPUT/BACKEND/report.json`), to be replayed
by `tilex tune --replay`. `OUTPUT/results.json` holds the published measurements beside torch's:
eager, into an output that exists, end to end with one synchronization a sample, and on CUDA by
events, too. torch's result is checked against the same FP64 oracle. `--native` times the winner of
the llvm backend by the C++ runner, too (`scripts/run_ctest.sh` builds it): one cold call with
loading, so that it is a check without Python and no rate.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch.nn.functional as F

import tvm_tilex as tx
from tvm_tilex import kernels, tune
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import TilexError
from tvm_tilex.kernels.registry import KernelEntry
from tvm_tilex.tools.subjects import Shape
from tvm_tilex.tools.tune_options import search_options, space_of, space_options, timing_of
from tvm_tilex.tune.api import new_folder
from tvm_tilex.tune.live import LiveTable
from tvm_tilex.tune.metric import default_metric, require_metric
from tvm_tilex.tune.record import Measurement
from tvm_tilex.tune.report import Section
from tvm_tilex.tune.space import require_budget
from tvm_tilex.tune.wall import from_samples, wall_clock

SHAPES = ((256, 1024), (1024, 4096))
DEVICES = {"llvm": "cpu", "cuda": "cuda", "metal": "mps"}


def peers() -> dict[str, Callable[..., Any]]:
    """torch's own operator for each kernel, over the kernel's arguments; returns the outputs."""
    return {
        "row_sum": lambda x, out: torch.sum(x, 1, out=out),
        "row_max": lambda x, out: torch.amax(x, 1, out=out),
        "row_min": lambda x, out: torch.amin(x, 1, out=out),
        "minmax": lambda x, low, high: torch.aminmax(x, dim=1, out=(low, high)),
        "softmax": lambda x, out: torch.softmax(x, 1, out=out),
        "log_softmax": lambda x, out: torch.log_softmax(x, 1, out=out),
        "logsumexp": lambda x, out: torch.logsumexp(x, 1, out=out),
        "layernorm": lambda x, w, b, out: out.copy_(F.layer_norm(x, x.shape[1:], w, b)),
        "layernorm_no_affine": lambda x, out: out.copy_(F.layer_norm(x, x.shape[1:])),
        "rmsnorm": lambda x, w, out: out.copy_(F.rms_norm(x, x.shape[1:], w, 1e-6)),
        "residual_layernorm": lambda x, r, out: out.copy_(F.layer_norm(x + r, x.shape[1:])),
        "cross_entropy": lambda x, y, out: out.copy_(F.cross_entropy(x, y, reduction="none")),
    }


def time_torch(
    entry: KernelEntry, section: Section, seed: int, backend: str, timing: tune.Timing
) -> dict[str, Any]:
    """Check and time torch's operator on the tuner's inputs."""
    name = DEVICES[backend]
    if name == "cuda" and not torch.cuda.is_available():
        return {"skipped": "torch has no CUDA device here"}
    if name == "mps" and not torch.backends.mps.is_available():
        return {"skipped": "torch has no Apple GPU here"}
    before = section.subject.subject().arguments(seed)
    arguments = [_tensor(array).to(name) for array in before]
    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(name, lambda: None)
    operation = peers()[entry.name]
    operation(*arguments)
    wait()
    compared = entry.check([_array(t, like) for t, like in zip(arguments, before, strict=True)])
    found: list[Measurement] = [wall_clock(lambda: operation(*arguments), wait, timing)]
    if name == "cuda":
        found.append(_events(lambda: operation(*arguments), timing))
    return {
        "device": name,
        "right": all(comparison.within for comparison in compared),
        "measurements": [{**vars(m), "samples": list(m.samples)} for m in found],
    }


def _events(launch: Callable[[], Any], timing: tune.Timing) -> Measurement:
    """GPU time as the tuner takes it: each launch between two events, after overwriting the L2."""
    scratch = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    samples = []
    for _ in range(timing.samples):
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in "be"] for _ in range(20)]
        for begin, end in pairs:
            scratch.zero_()
            begin.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        samples.append(float(np.mean([b.elapsed_time(e) for b, e in pairs])) / 1e3)
    how = "CUDA events around each launch, L2 overwritten before it"
    return from_samples("gpu", "seconds", samples, 20, how)


def run_native(
    runner: Path, entry: KernelEntry, section: Section, seed: int, limit: float
) -> dict[str, Any]:
    """The winner in the C++ runner on .npy files, judged against the same oracle."""
    assert section.winner is not None
    subject = section.subject.subject()
    options = tx.CompileOptions.from_json(section.winner.trial.options)
    artifact = tx.compile(subject.kernel, *subject.specs, target="llvm", options=options)
    before = subject.arguments(seed)
    with tempfile.TemporaryDirectory(prefix="tilex-native-") as folder:
        library = artifact.export_library(Path(folder, "kernel.so"))
        words = [str(library), entry.name]
        written = {}
        for position, array in enumerate(before):
            path = Path(folder, f"{position}.npy")
            np.save(path, array.view(np.uint16) if _is_bfloat16(array) else array)
            if position not in entry.outputs:
                words += ["--input", str(path)]
                continue
            written[position] = Path(folder, f"out{position}.npy")
            words += ["--output-like", str(path), "--write", str(written[position])]
        begin = time.perf_counter()
        try:
            done = subprocess.run(
                [str(runner.resolve()), *words], capture_output=True, text=True, timeout=limit
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"right": False, "reason": str(error)}
        seconds = time.perf_counter() - begin
        if done.returncode:
            reason = (done.stderr or done.stdout).strip()
            return {"right": False, "reason": reason or f"exit code {done.returncode}"}
        after = [
            np.load(written[i]).view(a.dtype) if i in written else a for i, a in enumerate(before)
        ]
    if not all(comparison.within for comparison in entry.check(after)):
        return {"right": False, "reason": "not the oracle's result"}
    return {"right": True, "process_seconds": seconds, "how": "one cold call and loading"}


def _is_bfloat16(array: np.ndarray) -> bool:
    return array.dtype.name == "bfloat16"


def _tensor(array: np.ndarray) -> torch.Tensor:
    if _is_bfloat16(array):
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _array(tensor: torch.Tensor, like: np.ndarray) -> np.ndarray:
    moved = tensor.cpu()
    if _is_bfloat16(like):
        return moved.view(torch.uint16).numpy().view(like.dtype)
    return moved.numpy()


def _names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    known = list(DEVICES) if param.name == "backends" else list(peers())
    names = [name.strip() for name in value.split(",")]
    wrong = [name for name in names if name not in known]
    if wrong:
        raise click.BadParameter(f"{', '.join(wrong)}: use some of {', '.join(known)}")
    return list(dict.fromkeys(names))


@click.command()
@click.option("--output", required=True, type=click.Path(path_type=Path))
@click.option("--backends", default="llvm", show_default=True, callback=_names)
@click.option("--operations", default="softmax", show_default=True, callback=_names)
@click.option("--shape", "shapes", type=Shape(), multiple=True, help="PxN; two by default.")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--native",
    type=click.Path(exists=True, dir_okay=False, executable=True, path_type=Path),
    help="The C++ runner, tilex_run: runs the winners of the llvm backend.",
)
@search_options
@space_options
def main(
    output: Path,
    backends: list[str],
    operations: list[str],
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    seed: int,
    native: Path | None,
    **given: Any,
) -> None:
    """Tune OPERATIONS on BACKENDS and compare with torch."""
    if native is not None and "llvm" not in backends:
        raise click.UsageError("--native runs winners of the llvm backend, and it is not asked for")
    for name in ("rpc_servers", "rpc_tracker", "rpc_key"):
        given.pop(name)
    limit, metric = given.pop("time_limit"), given.pop("tuning_metric")
    subgroups, timing = given.pop("subgroups"), timing_of(given)
    shapes = shapes or SHAPES
    dimensions = {k: given.pop(k) for k in list(given) if k.startswith("tune_") or k == "others"}
    runs = []
    for backend in backends:  # everything that can be refused is, before any work
        resolved = resolve_target(backend)
        kind = str(resolved.kind.name)
        space = space_of(resolved, subgroups, dict(dimensions), dtype)
        chosen = metric or default_metric(kind)
        require_metric(chosen, kind, tune.Endpoint())
        count = len(shapes) * len(operations)
        bound = given["trials"] if given["search"] == "optuna" else None
        require_budget(space, count, given["budget"], trials=bound)
        runs.append((backend, space, chosen))
    rows: list[dict[str, Any]] = []
    with new_folder(output):
        for backend, space, chosen in runs:
            for operation in operations:
                with LiveTable(chosen) as progress:
                    report = tune.tune(
                        operation,
                        list(shapes),
                        dtype=dtype,
                        target=backend,
                        space=space,
                        metric=chosen,
                        timing=timing,
                        limit=limit,
                        seed=seed,
                        output=output / backend / operation,
                        progress=progress,
                        **given,
                    )
                for row in _rows(report, operation, backend, native):
                    rows.append(row)
                    print(_line(row), flush=True)
                text = json.dumps({"torch": torch.__version__, "rows": rows}, indent=1)
                (output / "results.json").write_text(text)
    if not all(row["winner"] for row in rows):
        raise click.ClickException("some shapes have no winner")
    if not all(row.get("native", {"right": True})["right"] for row in rows):
        raise click.ClickException("the C++ runner was not right: see results.json")


def _rows(
    report: tune.Report, operation: str, backend: str, native: Path | None
) -> Iterator[dict[str, Any]]:
    """Each shape's published measurement beside torch's and, on llvm, the C++ runner's check."""
    entry, settings = kernels.catalog()[operation], report.settings
    for section in report.sections:
        winner = section.winner
        row: dict[str, Any] = {
            "operation": entry.name,
            "shape": section.subject.shapes[0],
            "dtype": section.subject.dtype,
            "backend": backend,
            "metric": settings.metric,
            "ended": section.ended,
            "winner": winner.trial.to_dict() if winner else None,
            "default": winner.default.to_dict() if winner else None,
            "torch": time_torch(entry, section, settings.seed, backend, settings.timing),
        }
        if native is not None and winner is not None and backend == "llvm":
            row["native"] = run_native(native, entry, section, settings.seed, settings.limit)
        yield row


def _line(row: dict[str, Any]) -> str:
    """Ours beside torch, scope by scope."""

    def scopes(side: dict[str, Any] | None) -> dict[str, float]:
        return {m["scope"]: m["value"] for m in (side or {}).get("measurements", ())}

    ours, theirs = scopes(row["winner"]), scopes(row["torch"])
    shape = "x".join(map(str, row["shape"]))
    parts = [f"{row['operation']} {shape} {row['dtype']} {row['backend']}"]
    for scope, value in ours.items():
        if scope == "modelled":
            parts.append(f"{value:.1f} modelled, no time")
        elif scope in theirs:
            parts.append(
                f"{scope} {1e6 * value:.1f} us, torch {1e6 * theirs[scope]:.1f} us "
                f"({theirs[scope] / value:.2f}x)"
            )
        else:
            parts.append(f"{scope} {1e6 * value:.1f} us")
    if "skipped" in row["torch"]:
        parts.append(row["torch"]["skipped"])
    elif not row["torch"]["right"]:
        parts.append("torch is outside the tolerance")
    if "native" in row:
        native = row["native"]
        parts.append("native: right" if native["right"] else f"native: {native.get('reason')}")
    return "; ".join(parts)


if __name__ == "__main__":
    try:
        main()
    except TilexError as error:
        sys.exit(f"run.py: {error}")
