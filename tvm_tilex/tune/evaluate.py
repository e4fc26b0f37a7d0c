"""One job, start to end, in the process that it may crash: capture, compile, validate, measure."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_tilex.build.cuda_compile import compile_into
from tvm_tilex.build.machine_code import MachineCode, kept
from tvm_tilex.build.screening import screen
from tvm_tilex.build.target import resolve_target
from tvm_tilex.driver import compile, compile_text
from tvm_tilex.errors import TilexError
from tvm_tilex.ir.program import ViewAccess
from tvm_tilex.kernels.subjects import Subject
from tvm_tilex.kernels.tolerances import Comparison
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune.inputs import inputs_of
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
        not measure), ``screened`` or ``device-lost``; the other keys are fields of a trial.
    """
    started = time.perf_counter()
    code = MachineCode(Path(job.shared) if job.shared and not job.fresh else None)
    try:
        with kept(code):
            outcome = _screen(job) if job.screened else _evaluate(job, code)
    except DeviceLost as error:
        outcome = {"status": "device-lost", "reason": str(error), "device": error.device}
        outcome["began"] = error.began
    except RemoteTimeout as error:
        outcome = {"status": "timeout", "reason": str(error)}
    except Exception as error:  # a defect of ours or of TVM is an outcome like any other
        outcome = {"status": "failed", "reason": _reason(error)}
    return {**outcome, "seconds": time.perf_counter() - started}


def _screen(job: Job) -> Outcome:
    """The planner's refusals, with the reasons that compiling would give, and scores."""
    candidates = tuple(map(CompileOptions.from_json, job.screened))
    found = screen(job.subject.subject().capture(), resolve_target(job.target), candidates)
    reasons = [None if one.refusal is None else _reason(one.refusal) for one in found]
    return {"status": "screened", "reasons": reasons, "scores": [one.score for one in found]}


def _evaluate(job: Job, code: MachineCode) -> Outcome:
    subject = job.subject.subject()
    begin = time.perf_counter()
    try:
        artifact = _compile(job, subject)
        if job.measure and job.endpoint.kind == "local":
            compile_into(code, artifact.source)  # unless building it did; not amid the validation
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


def _compile(job: Job, subject: Subject) -> Artifact:
    target, options = resolve_target(job.target), CompileOptions.from_json(job.options)
    given: dict[str, Any] = {"target": target, "options": options, **subject.static}
    if not job.measure and target.kind.name == "cuda":
        return compile_text(subject.kernel, *subject.specs, **given)
    return compile(subject.kernel, *subject.specs, tuned=False, **given)


def _run(job: Job, subject: Subject, artifact: Artifact) -> Outcome:
    begin = time.perf_counter()
    before, expected = inputs_of(job.subject.label, subject, job.seed, job.shared)
    if job.endpoint.kind == "local":
        launch: Any = LocalLaunch(artifact, before, job.metric)
        device = "simulator" if job.metric == "sim-cost" else device_name(artifact.kind)
    else:
        launch = RemoteLaunch(artifact, before, job)
        device = launch.device
    try:
        comparisons = subject.check(artifact.tile_ir, before, launch.run(), expected)
        validated = time.perf_counter()
        outcome: Outcome = {"device": device, "outputs": _outputs(artifact, comparisons)}
        outcome["validate_seconds"] = validated - begin
        wrong = [o["name"] for o in outcome["outputs"] if not o["right"]]
        if wrong:
            return {**outcome, "status": "wrong", "reason": f"{', '.join(wrong)}: not the oracle"}
        measurements, skipped = launch.measure(job.timing)
        outcome["measure_seconds"] = time.perf_counter() - validated
    finally:
        close = getattr(launch, "close", None)
        if close is not None:
            close()
    found = [
        {**vars(measurement), "samples": list(measurement.samples)} for measurement in measurements
    ]
    return {**outcome, "status": "valid", "measurements": found, "skipped": skipped}


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
            "programs_per_subgroup": plan.programs_per_subgroup,
            "threads": plan.threads,
            "blocks": plan.blocks,
            "shared_bytes": plan.shared_bytes,
            "staged_bytes": plan.staged_bytes,
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
