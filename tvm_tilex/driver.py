"""From a tile kernel to an artifact with every stage, and from a call to a launch.

This module and ``tune`` alone see both ends of the pipeline.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_tilex import settings
from tvm_tilex.build.device_artifact import (
    DeviceArtifact,
    SplitRecorder,
    device_launches,
    launches_at,
)
from tvm_tilex.build.dump import StageDump
from tvm_tilex.build.machine_code import NoMachineCode, kept
from tvm_tilex.build.metal_compile import has_precise_toolchain, source_only
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.schedule import lowered, schedule
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import ArgumentError, TilexError
from tvm_tilex.ir import Extent, Program
from tvm_tilex.ir.dimensions import dimensions_of
from tvm_tilex.ir.print import format_program
from tvm_tilex.ir.types import dtype_of
from tvm_tilex.lang.kernel import TensorSpec, TileKernel, spec
from tvm_tilex.lang.rows import Positions, equal_extent, row_candidates, with_rows
from tvm_tilex.runtime.arguments import Argument, at_call, describe, require_same_device
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, tvm
from tvm_tilex.tirx.wellformed import VerifyEachPass
from tvm_tilex.transform.options import CompileOptions

__all__ = ["Artifact", "call", "compile", "compile_text", "lower"]


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
        One per view: a shape, ``tx.spec(shape, dtype)``, or an array. An extent of a shape is an
        integer, or known at launch: ``tx.dynamic(...)`` or the name of one.
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


def compile_text(
    kernel: TileKernel,
    *specs: Any,
    target: Any = "llvm",
    options: CompileOptions | None = None,
    **static: Any,
) -> Artifact:
    """Compile as :func:`compile` does, but for the plan and the emitted text only.

    The device compiler does not run, which takes most of the time on CUDA; the artifact cannot be
    launched, and is not cached.
    """
    program = _capture(kernel, specs, static)
    with kept(NoMachineCode()):
        artifact = _compile(program, resolve_target(target), options or CompileOptions(), None)
    return replace(artifact, text_only=True)


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
    return lowered(_capture(kernel, specs, static), options or CompileOptions())


def call(kernel: TileKernel, arrays: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Run ``kernel`` on arrays: compile for their types and device (cached) and launch.

    What is compiled serves any number of rows where the kernel can be captured so and the options
    leave the plan to the compiler or have one that fits every count; otherwise, and with
    ``dynamic_rows=False``, exactly the shapes of the call.
    """
    signature = _signature(arrays, keywords)
    environment = (kernel.environment(), _tuning_state())
    launch = kernel.launches.get((signature, environment)) if signature is not None else None
    if launch is not None and launch(arrays):
        return
    try:
        artifact = _call(kernel, arrays, keywords, environment)
    except ArgumentError as error:
        raise at_call(kernel.name, error) from None
    if signature is not None and launch is None:
        _remember(kernel, (signature, environment), artifact.direct_for(arrays))


def _remember(kernel: TileKernel, key: Hashable, launch: Any) -> None:
    """Keep the short way of one signature; a stream of ever new shapes does not fill memory."""
    if launch is None:
        return
    if len(kernel.launches) >= _SHORT_WAYS:
        kernel.launches.clear()
    kernel.launches[key] = launch


_SHORT_WAYS = 4096


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
    found = _Call(kernel, arguments, keywords, environment)
    artifact = found.shared() or found.specialized()
    artifact.launch(arguments)
    return artifact


def _tuning_state() -> Any:
    """What a stored winner depends on beside the key: the database, as it is now, if it is used."""
    database = settings.tuned()
    if not database:
        return None
    from tvm_tilex.tune.lookup import state

    return state(database)


class _Call:
    """What one call asks for: the artifact that serves it, compiled where there is none yet."""

    def __init__(
        self,
        kernel: TileKernel,
        arguments: Sequence[Argument],
        keywords: Mapping[str, Any],
        environment: Hashable,
    ) -> None:
        self.kernel = kernel
        self.arguments = arguments
        self.shapes = [argument.shape for argument in arguments]
        self.options: CompileOptions | None = keywords.get("options")
        self.static = {k: v for k, v in keywords.items() if k != "options"}
        self.key = (
            tuple((a.dtype, len(a.shape), a.device[0]) for a in arguments),
            # Text, not equality: 0.0 == -0.0 and True == 1, but they compile differently.
            tuple(sorted((name, repr(value)) for name, value in self.static.items())),
            self.options,
            environment,
        )

    def specialized(self) -> Artifact:
        """The artifact for exactly these shapes."""
        key = (self.key, tuple(self.shapes))
        artifact: Artifact | None = self.kernel.artifacts.get(key)
        if artifact is None:
            artifact = self.kernel.artifacts[key] = self._compile(self.shapes)
        return artifact

    def shared(self) -> Artifact | None:
        """The artifact for any number of rows, or None where a call must be specialized."""
        if self.options is not None and not self.options.dynamic_rows:
            return None
        if settings.tuned():  # winners are stored for shapes
            return None
        known = self.kernel.rows.get(self.key)
        if known is not None and equal_extent(known, self.shapes):
            return self._with_rows(known)
        if known is not None or not all(self.shapes):
            return None
        for positions in row_candidates(self.kernel.parameters, self.shapes):
            if not equal_extent(positions, self.shapes):
                continue
            artifact = self._with_rows(positions)
            if artifact is not None:
                self.kernel.rows[self.key] = positions
                return artifact
        return None

    def _with_rows(self, positions: Positions) -> Artifact | None:
        shapes = with_rows(positions, self.shapes)
        key = (self.key, tuple(shapes))
        if key not in self.kernel.artifacts:
            try:
                self.kernel.artifacts[key] = self._compile(shapes)
            except ArgumentError:
                raise
            except TilexError:  # the shapes themselves say what is wrong, or are accepted
                self.kernel.artifacts[key] = None
        artifact: Artifact | None = self.kernel.artifacts[key]
        return artifact

    def _compile(self, shapes: Sequence[tuple[Extent, ...]]) -> Artifact:
        first = self.arguments[0]
        names = tuple(self.kernel.parameters)
        for name, argument in zip(names, self.arguments, strict=True):
            require_same_device(self.kernel.name, name, argument, first)
        specs = [
            replace(_array_spec(self.kernel.name, name, argument), shape=shape)
            for name, argument, shape in zip(names, self.arguments, shapes, strict=True)
        ]
        return compile(
            self.kernel, *specs, target=first.device[0], options=self.options, **self.static
        )


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
        return spec(given)
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


def _compile(
    program: Program, target: Any, options: CompileOptions, folder: Path | None
) -> Artifact:
    register_pipeline()
    dump = StageDump(folder) if folder is not None else None
    if dump is not None:
        dump.write("tile_ir", format_program(program))
    recorder = SplitRecorder()
    with _instruments(dump, recorder), source_only() as text_only:
        made = schedule(program, target, options, dump)
        executable = tvm.compile(made.scheduled, target=target, tir_pipeline="tilex")
    artifact = Artifact(
        name=program.name,
        target=target,
        options=options,
        materialization=made.main.materialization,
        tile_ir=program,
        tirx=made.reference,
        scheduled=made.scheduled,
        module=executable,
        variants=made.variants,
        device=_device(program, target, made.reference, executable, recorder),
        text_only=text_only,
        recompile=lambda changed: _compile(program, target, changed, None),
    )
    if dump is not None:
        suffix = {"metal": "metal", "cuda": "cu"}.get(target.kind.name, "s")
        dump.write("source", artifact.source, suffix)
    return artifact


def _device(
    program: Program, target: Any, module: IRModule, executable: Any, recorder: SplitRecorder
) -> DeviceArtifact | None:
    """What another runtime launches; None for a processor target."""
    kind = str(target.kind.name)
    if kind == "llvm" or recorder.module is None:
        return None
    precise = attrs.PRECISE in module[program.name].attrs
    imports = executable.mod.imports
    source = str(imports[0].inspect_source()) if imports else ""
    if dimensions_of(program.views):
        bind = functools.partial(launches_at, recorder.module, program.name)
        return DeviceArtifact(kind, source, (), precise, bind)
    return DeviceArtifact(kind, source, device_launches(recorder.module, program.name), precise)


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
