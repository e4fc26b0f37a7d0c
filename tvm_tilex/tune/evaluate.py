"""One job, start to end, in the process that it may crash: capture, compile, validate, measure."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from tvm_tilex.driver import compile
from tvm_tilex.errors import TilexError
from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.kernels.subjects import Subject
from tvm_tilex.kernels.tolerances import Comparison
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune.job import Job
from tvm_tilex.tune.local import LocalLaunch
from tvm_tilex.tune.rpc import DeviceLost, RemoteLaunch, RemoteTimeout
from tvm_tilex.tune.versions import device_name

__all__ = ["evaluate"]

Outcome = dict[str, Any]


def evaluate(job: Job) -> Outcome:
    """Run one job and say what came of it.

    Returns
    -------
    dict
        ``status`` is one of :data:`tvm_tilex.tune.record.STATUSES`, ``compiled`` (a job that does
        not measure) or ``device-lost``; the other keys are fields of a trial.
    """
    started = time.perf_counter()
    try:
        outcome = _evaluate(job)
    except DeviceLost as error:
        outcome = {"status": "device-lost", "reason": str(error), "device": error.device}
        outcome["began"] = error.began
    except RemoteTimeout as error:
        outcome = {"status": "timeout", "reason": str(error)}
    except Exception as error:  # a defect of ours or of TVM is an outcome like any other
        outcome = {"status": "failed", "reason": _reason(error)}
    return {**outcome, "seconds": time.perf_counter() - started}


def _evaluate(job: Job) -> Outcome:
    subject = job.subject.subject()
    begin = time.perf_counter()
    try:
        artifact = compile(
            subject.kernel,
            *subject.specs,
            target=job.target,
            options=CompileOptions.from_json(job.options),
            tuned=False,
            **subject.static,
        )
    except TilexError as error:
        return {"status": "refused", "reason": _reason(error)}
    outcome: Outcome = {
        "compile_seconds": time.perf_counter() - begin,
        "facts": plan_facts(artifact),
        **({"source": artifact.source} if job.source else {}),
    }
    if not job.measure:
        return {**outcome, "status": "compiled"}
    return {**outcome, **_run(job, subject, artifact)}


def _run(job: Job, subject: Subject, artifact: Artifact) -> Outcome:
    before, expected = _inputs(job.subject.label, subject, job.seed)
    if job.endpoint.kind == "local":
        launch: Any = LocalLaunch(artifact, before, job.metric)
        device = "simulator" if job.metric == "sim-cost" else device_name(artifact.kind)
    else:
        launch = RemoteLaunch(artifact, before, job)
        device = launch.device
    try:
        comparisons = subject.check(artifact.tile_ir, before, launch.run(), expected)
        outcome: Outcome = {"device": device, "outputs": _outputs(artifact, comparisons)}
        wrong = [o["name"] for o in outcome["outputs"] if not o["right"]]
        if wrong:
            return {**outcome, "status": "wrong", "reason": f"{', '.join(wrong)}: not the oracle"}
        measurements, skipped = launch.measure(job.timing)
    finally:
        close = getattr(launch, "close", None)
        if close is not None:
            close()
    found = [
        {**vars(measurement), "samples": list(measurement.samples)} for measurement in measurements
    ]
    return {**outcome, "status": "valid", "measurements": found, "skipped": skipped}


# One entry: candidates of a shape follow one another, and its arrays may be large.
@functools.lru_cache(maxsize=1)
def _cached_inputs(label: str, seed: int) -> dict[str, Any]:
    return {}


def _inputs(
    label: str, subject: Subject, seed: int
) -> tuple[Sequence[NDArray[Any]], tuple[NDArray[Any], ...]]:
    """Arguments before the call and FP64 outputs, which all candidates of a shape share."""
    kept = _cached_inputs(f"{label} {sorted(subject.static.items())}", seed)
    if not kept:
        kept["before"] = subject.arguments(seed)
        kept["expected"] = subject.expected(subject.capture(), kept["before"])
    return kept["before"], kept["expected"]


def plan_facts(artifact: Artifact) -> dict[str, Any]:
    """What a replay compares, and what a reader wants to know of the plan."""
    plan = artifact.plan
    shape: dict[str, Any] = {}
    if plan is not None:
        shape = {
            "subgroups": plan.reduction_subgroups_per_program,
            "programs_per_group": plan.programs_per_group,
            "lane_elements": plan.lane_elements,
            "blocks_per_program": plan.blocks_per_program,
            "threads": plan.threads,
            "blocks": plan.blocks,
            "shared_bytes": plan.shared_bytes,
            "stripe_scalars": plan.stripe_scalars,
            "barrier_sites": plan.barrier_sites,
            "collectives": list(plan.collectives),
            "cooperating_subgroups": not plan.independent_subgroups,
        }
    return {
        "plan": shape or None,
        "score": None if plan is None else plan.score,
        "fallback": artifact.fallback,
        "materialization": artifact.materialization.value,
        "cost_policy": artifact.options.cost_policy,
        "unroll": artifact.options.reduction_unroll,
        "requires_precise_math": artifact.requires_precise_math,
        "source_sha256": hashlib.sha256(artifact.source.encode()).hexdigest(),
    }


def _outputs(artifact: Artifact, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    written = [v for v in artifact.tile_ir.views if v.access is not ViewAccess.read]
    return [
        {
            "name": view.name,
            "right": comparison.within,
            "max_absolute_error": comparison.max_absolute_error,
            "max_relative_error": comparison.max_relative_error,
            # JSON has no infinity
            "fraction_of_allowed_error": min(comparison.worst_ratio, 1e308),
        }
        for view, comparison in zip(written, comparisons, strict=True)
    ]


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    # Ours fit two lines; TVM's end with what went wrong.
    kept = lines[:2] if isinstance(error, TilexError) else lines[-1:]
    return f"{type(error).__name__}: {' '.join(kept)}"[:500]
