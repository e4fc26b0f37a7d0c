"""From a tile kernel to an artifact with every stage, and from a call to a launch.

This module and ``tune`` alone see both ends of the pipeline.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_tilex import settings
from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.build.device_artifact import DeviceArtifact, SplitRecorder, device_launches
from tvm_tilex.build.dump import StageDump
from tvm_tilex.build.metal_compile import has_precise_toolchain, source_only
from tvm_tilex.build.pipeline import realization, register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import ArgumentError, MappingError, TilexError
from tvm_tilex.ir import Program
from tvm_tilex.ir.print import format_program
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.ir.verify import verify
from tvm_tilex.lang.kernel import TensorSpec, TileKernel
from tvm_tilex.lowering import SharedTileMaterialization, lower_program
from tvm_tilex.plan.cooperative import CooperativePlan
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.runtime.arguments import Argument, at_call, describe, require_same_device
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, tvm
from tvm_tilex.tirx.wellformed import VerifyEachPass
from tvm_tilex.transform.options import CompileOptions

__all__ = ["Artifact", "call", "compile", "lower"]


def compile(
    kernel: TileKernel,
    *specs: Any,
    target: Any = "llvm",
    options: CompileOptions | None = None,
    dump: str | Path | None = None,
    tuned: bool | str | Path | None = None,
    **static: Any,
) -> Artifact:
    """Compile a tile kernel for argument shapes and types.

    Parameters
    ----------
    kernel
        A ``@tx.tile_kernel``.
    specs
        One per view: a shape, ``tx.spec(shape, dtype)``, or an array.
    target
        ``"llvm"``, ``"metal"``, ``"cuda"``, or a TVM target or its description.
    options
        :class:`tx.CompileOptions`.
    dump
        A folder that receives every stage as numbered files (also ``TILEX_DUMP``).
    tuned
        True uses the options that tuning found best for exactly this kernel, these options, target,
        device and versions, if the user's tuning database has them; a path names a database. None
        asks the environment (``TILEX_TUNED``).
    static
        Values of the kernel's compile-time constants.

    Raises
    ------
    TilexError
        A subclass that names the line, operand and rule that is broken.
    """
    program = _capture(kernel, specs, static)
    folder = Path(dump) if dump is not None else settings.current().dump
    options = options or CompileOptions()
    resolved = resolve_target(target)
    database = settings.tuned() if tuned is None else tuned
    if database:
        return _tuned(program, resolved, options, folder, database)
    return _compiled(program, resolved, options, folder)


def _compiled(
    program: Program, target: Any, options: CompileOptions, folder: Path | None
) -> Artifact:
    if folder is not None:
        return _compile(program, target, options, folder)
    return _cached(program, target, options)


def _tuned(
    program: Program,
    target: Any,
    options: CompileOptions,
    folder: Path | None,
    database: bool | str | Path,
) -> Artifact:
    """Compile with a stored winner's options; they are proved and planned like any others."""
    from tvm_tilex.tune.lookup import stored_winner, unusable

    winner = stored_winner(program, target, options, database)
    if winner is None:
        return _compiled(program, target, options, folder)
    try:
        artifact = _compiled(program, target, winner.options, folder)
    except TilexError as error:
        unusable(winner, error)
        return _compiled(program, target, options, folder)
    return replace(artifact, tuned=winner.origin)


def lower(
    kernel: TileKernel, *specs: Any, options: CompileOptions | None = None, **static: Any
) -> IRModule:
    """Lower a tile kernel to an IRModule of reference TIRx, for any TVM pipeline.

    Shared tiles are preserved unless the options say otherwise; parameters as in :func:`compile`.
    """
    register_pipeline()
    return _lowered(_capture(kernel, specs, static), options or CompileOptions())


def call(kernel: TileKernel, arrays: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Run ``kernel`` on arrays: compile for their types and device (cached) and launch."""
    signature = _signature(arrays, keywords)
    environment = (kernel.environment(), _tuning_state())
    launch = kernel.launches.get((signature, environment)) if signature is not None else None
    if launch is not None and launch(arrays):
        return
    try:
        artifact = _call(kernel, arrays, keywords, environment)
    except ArgumentError as error:
        raise at_call(kernel.name, error) from None
    if signature is not None and launch is None and artifact.direct is not None:
        kernel.launches[signature, environment] = artifact.direct


def _signature(arrays: Sequence[Any], keywords: Mapping[str, Any]) -> Hashable | None:
    """What selects the artifact for torch tensors; None for anything else."""
    try:
        types = tuple([(array.shape, array.dtype) for array in arrays])
        first = arrays[0].is_cuda
    except (AttributeError, IndexError):
        return None
    # Text, not equality: 0.0 == -0.0 and True == 1, but they compile differently.
    constants = [(k, v if k == "options" else repr(v)) for k, v in keywords.items()]
    return types, first, tuple(constants)


def _call(
    kernel: TileKernel,
    arrays: Sequence[Any],
    keywords: Mapping[str, Any],
    environment: Hashable,
) -> Artifact:
    names = tuple(kernel.parameters)
    if len(arrays) != len(names):
        raise ArgumentError(
            f"{kernel.name} takes {len(names)} arrays ({', '.join(names)}), not {len(arrays)}"
        )
    arguments = [describe(name, array) for name, array in zip(names, arrays, strict=True)]
    static = {k: v for k, v in keywords.items() if k != "options"}
    key = (
        tuple((a.shape, a.dtype, a.device[0]) for a in arguments),
        # Text, not equality: 0.0 == -0.0 and True == 1, but they compile differently.
        tuple(sorted((name, repr(value)) for name, value in static.items())),
        keywords.get("options"),
        environment,
    )
    artifact = kernel.artifacts.get(key)
    if artifact is None:
        artifact = _compile_for(kernel, names, arguments, keywords.get("options"), static)
        kernel.artifacts[key] = artifact
    artifact.launch(arguments)
    return artifact


def _tuning_state() -> Any:
    """What a stored winner depends on beside the key: the database, as it is now, if it is used."""
    database = settings.tuned()
    if not database:
        return None
    from tvm_tilex.tune.lookup import state

    return state(database)


def _compile_for(
    kernel: TileKernel,
    names: tuple[str, ...],
    arguments: Sequence[Argument],
    options: CompileOptions | None,
    static: Mapping[str, Any],
) -> Artifact:
    first = arguments[0]
    for name, argument in zip(names, arguments, strict=True):
        require_same_device(kernel.name, name, argument, first)
    specs = [_array_spec(kernel.name, n, a) for n, a in zip(names, arguments, strict=True)]
    return compile(kernel, *specs, target=first.device[0], options=options, **static)


def _array_spec(kernel: str, name: str, argument: Argument) -> TensorSpec:
    try:
        return TensorSpec(argument.shape, dtype_of(argument.dtype))
    except TilexError:
        raise ArgumentError(
            f"{kernel}: argument {name!r} is {argument.dtype}, not an element type of the language"
        ) from None


def _capture(kernel: TileKernel, specs: Sequence[Any], static: Mapping[str, Any]) -> Program:
    if not isinstance(kernel, TileKernel):
        raise ArgumentError(f"{kernel!r} is not a tile kernel; decorate it with @tx.tile_kernel")
    names = [*kernel.parameters, *map(str, range(len(specs)))]
    found = [_as_spec(kernel.name, name, s) for name, s in zip(names, specs, strict=False)]
    return kernel.capture(found, static)


def _as_spec(kernel: str, name: str, given: Any) -> TensorSpec:
    if isinstance(given, TensorSpec):
        return given
    if isinstance(given, (tuple, list)):
        return TensorSpec(tuple(int(extent) for extent in given))
    return _array_spec(kernel, name, describe(name, given))


def _cached(program: Program, target: Any, options: CompileOptions) -> Artifact:
    # Text, not equality: 0.0 == -0.0 and True == 1, but they are different programs. The toolchain
    # decides whether a kernel that needs precise math can be launched.
    toolchain = target.kind.name == "metal" and has_precise_toolchain()
    key = (format_program(program), str(target), options.to_json(), toolchain)
    if key not in _ARTIFACTS:
        _ARTIFACTS[key] = _compile(program, target, options, None)
    return _ARTIFACTS[key]


_ARTIFACTS: dict[tuple[str, str, str, bool], Artifact] = {}


def _lowered(program: Program, options: CompileOptions) -> IRModule:
    verify(program)
    mode = options.shared_tile_materialization or SharedTileMaterialization.PRESERVE
    function = lower_program(program, mode, noalias=options.noalias is not False)
    function = function.with_attr(attrs.OPTIONS, options.to_json())
    return IRModule({program.name: function})


def _compile(
    program: Program, target: Any, options: CompileOptions, folder: Path | None
) -> Artifact:
    register_pipeline()
    dump = StageDump(folder) if folder is not None else None
    if dump is not None:
        dump.write("tile_ir", format_program(program))
    recorder = SplitRecorder()
    with _instruments(dump, recorder), source_only() as text_only:
        mode, module, scheduled = _schedule(program, target, options, dump)
        executable = tvm.compile(scheduled, target=target, tir_pipeline="tilex")
    artifact = Artifact(
        name=program.name,
        target=target,
        options=options,
        materialization=mode,
        tile_ir=program,
        tirx=module,
        scheduled=scheduled,
        module=executable,
        proof=_proof(scheduled[program.name]),
        plan=_plan(scheduled[program.name]),
        group_plans=_group_plans(scheduled[program.name]),
        device=_device(program.name, target, module, executable, recorder),
        text_only=text_only,
        recompile=lambda changed: _compile(program, target, changed, None),
    )
    if dump is not None:
        suffix = {"metal": "metal", "cuda": "cu"}.get(target.kind.name, "s")
        dump.write("source", artifact.source, suffix)
    return artifact


def _schedule(
    program: Program, target: Any, options: CompileOptions, dump: StageDump | None
) -> tuple[SharedTileMaterialization, IRModule, IRModule]:
    """Lower and realize, with the first materialization for which a plan fits."""
    for mode, keep_views in _materializations(target.kind.name, options):
        module = _lowered(program, replace(options, shared_tile_materialization=mode))
        if dump is not None:
            dump.write("reference", module.script(), "py")
        passes = tvm.ir.transform.Sequential(
            realization(target, keep_views=keep_views), name="tilex.Realize"
        )
        try:
            scheduled = passes(module)
        except MappingError as error:
            raise MappingError(str(error), location=program.body[0].location) from None
        if attrs.PLAN_REFUSAL not in scheduled[program.name].attrs:
            break
    return mode, module, scheduled


def _materializations(
    kind: str, options: CompileOptions
) -> tuple[tuple[SharedTileMaterialization, bool], ...]:
    """Which shared tiles are kept, and whether views are: the target's order of preference."""
    stated = options.shared_tile_materialization
    keep = kind == "cuda"
    if stated is not None:
        return ((stated, keep),)
    if kind == "llvm":
        return ((SharedTileMaterialization.EXPENSIVE_ONLY, False),)
    preserve, recompute = (SharedTileMaterialization[n] for n in ("PRESERVE", "RECOMPUTE"))
    if options.explicit_request:
        return ((preserve, keep),)
    # Beyond the stripe bound a row is read again rather than run by one thread.
    kept = ((preserve, True),) if keep else ()
    return (*kept, (preserve, False), (recompute, False))


def _device(
    name: str, target: Any, module: IRModule, executable: Any, recorder: SplitRecorder
) -> DeviceArtifact | None:
    """What another runtime launches; None for a processor target."""
    kind = str(target.kind.name)
    if kind == "llvm" or recorder.module is None:
        return None
    launches = device_launches(recorder.module, name)
    source = str(executable.mod.imports[0].inspect_source()) if launches else ""
    return DeviceArtifact(kind, source, launches, attrs.PRECISE in module[name].attrs)


def _proof(function: Any) -> ProofRecord | None:
    text = function.attrs.get(attrs.PROOF, None)
    return None if text is None else ProofRecord.from_json(str(text))


def _plan(function: Any) -> GroupPlan | None:
    text = function.attrs.get(attrs.PLAN, None)
    return None if text is None else GroupPlan.from_json(str(text))


def _group_plans(function: Any) -> tuple[CooperativePlan, ...]:
    text = function.attrs.get(attrs.GROUP_PLANS, None)
    found = [] if text is None else json.loads(str(text))
    return tuple(CooperativePlan.from_json(json.dumps(plan)) for plan in found)


@contextlib.contextmanager
def _instruments(dump: StageDump | None, recorder: SplitRecorder) -> Iterator[None]:
    """The caller's pass context with our instruments added."""
    current = tvm.transform.PassContext.current()
    wanted = [*(current.instruments or ()), recorder]
    if dump is not None:
        wanted.append(dump.instrument())
    if settings.current().verify:
        wanted.append(VerifyEachPass())
    with tvm.transform.PassContext(
        opt_level=current.opt_level, config=dict(current.config), instruments=wanted
    ):
        yield
