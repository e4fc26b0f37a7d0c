"""A compiled kernel: every stage of its making, the argument checks and the launch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tvm_tilex.analysis.in_place import runs_in_place
from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.build.device_artifact import DeviceArtifact
from tvm_tilex.build.schedule import Variant
from tvm_tilex.build.target import system_has
from tvm_tilex.errors import ArgumentError, TargetError
from tvm_tilex.ir import (
    Dimension,
    Parallel,
    Program,
    ViewAccess,
)
from tvm_tilex.ir.dimensions import bind_shapes, dimensions_of, fixed_views
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.plan.cooperative import CooperativePlan
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.runtime.arguments import (
    Argument,
    at_call,
    check_argument,
    describe,
    exported,
    overlapping,
    require_same_device,
)
from tvm_tilex.runtime.compare import launch_and_compare
from tvm_tilex.runtime.launcher import Launcher
from tvm_tilex.runtime.simulate import simulate as simulate_launches
from tvm_tilex.runtime.threads import use_every_core
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.transform.realization import realization_of

__all__ = ["Artifact"]


@dataclass(frozen=True)
class Artifact:
    """A compiled kernel with every stage of its making; called like the kernel.

    ``tile_ir`` is the captured program, ``tirx`` the reference module, ``scheduled`` the module
    after this package's passes, ``module`` TVM's executable. ``variants`` has one realization, or
    for dynamic extents one for each of their classes: the launch chooses. ``tuned`` says which
    stored winner the options are from, if any.
    """

    name: str
    target: Any
    options: CompileOptions
    materialization: SharedTileMaterialization
    tile_ir: Program
    tirx: IRModule
    scheduled: IRModule
    module: Any
    variants: tuple[Variant, ...]
    device: DeviceArtifact | None = None
    text_only: bool = False
    tuned: str | None = None
    recompile: Callable[[CompileOptions], Artifact] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def proof(self) -> ProofRecord | None:
        """Verdicts of the admission table for the greatest extents; None if not considered."""
        return self.variants[-1].proof

    @property
    def materialization_reason(self) -> str:
        """Why a CPU's planner keeps those shared tiles; empty where it did not choose."""
        return self.variants[-1].materialization_reason

    @property
    def early_views(self) -> bool:
        """Whether what every program reads is loaded before the first reduction (CUDA)."""
        return self.variants[-1].early_views

    @property
    def plan(self) -> GroupPlan | None:
        """The plan for the greatest extents; None where the reference map is used."""
        return self.variants[-1].plan

    @property
    def group_plans(self) -> tuple[CooperativePlan, ...]:
        """The plans of the cooperative groups, in order."""
        return self.variants[-1].group_plans

    @functools.cached_property
    def source(self) -> str:
        """Emitted source: Metal or CUDA text, or assembly on LLVM."""
        if self.kind == "llvm":
            return str(self.module.mod.inspect_source("asm"))
        imports = self.module.mod.imports
        return str(imports[0].inspect_source()) if imports else ""

    @property
    def kind(self) -> str:
        """Target kind: llvm, metal or cuda."""
        return str(self.target.kind.name)

    @property
    def requires_precise_math(self) -> bool:
        """Whether fast math could change the result beyond what the kernel permits."""
        return attrs.PRECISE in self.tirx[self.name].attrs

    @property
    def fallback(self) -> str | None:
        """Why the reference map is used although SIMD groups were considered, or None."""
        if self.plan is not None:
            return None
        refused = self.scheduled[self.name].attrs.get(attrs.GROUP_REFUSAL, None)
        if refused is not None:
            return str(refused)
        if self.group_plans:
            return None
        if self.proof is None:
            return self._not_considered
        declined = self.proof.declined
        if declined is not None:
            return f"{declined.name}: {declined.reason}"
        return self.variants[-1].refusal

    @property
    def _not_considered(self) -> str | None:
        """What the target lacks for SIMD groups where no option states a choice."""
        wanted = realization_of(self.tirx[self.name], self.target, self.options)
        stated = self.options.metal_subgroup_reductions, self.options.subgroup_reductions
        if self.kind == "llvm" or wanted.enabled or False in stated:
            return None
        return wanted.reason

    @functools.cached_property
    def function(self) -> Any:
        """The packed function that launches the kernel on tensors of this device."""
        self.require_launchable()
        if not system_has(self.kind):
            raise TargetError(
                f"{self.name}: compiled for {self.kind}, but this process has no {self.kind} device"
            )
        if self.kind == "llvm":
            use_every_core()
        return self.module[self.name]

    def require_launchable(self) -> None:
        """Refuse Metal source whose result fast math would change.

        Raises
        ------
        TargetError
            If the toolchain that compiles it precisely is missing.
        """
        if self.kind == "metal" and self.requires_precise_math and self.text_only:
            raise TargetError(
                f"{self.name}: needs precise math, and stock TVM compiles Metal with fast math; "
                "launching or exporting it needs Apple's toolchain (xcrun)"
            )

    @functools.cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dynamic extents: names and ranges."""
        return dimensions_of(self.tile_ir.views)

    @functools.cached_property
    def empty(self) -> bool:
        """Whether no program runs at all, whatever the dynamic extents are."""
        return self._empty_at({})

    def _empty_at(self, values: Mapping[str, int]) -> bool:
        """Whether no program runs for these values of the dynamic extents."""
        roots = [s for s in self.tile_ir.body if isinstance(s, Parallel)]
        return all(
            any(
                (
                    values.get(axis.extent.name)
                    if isinstance(axis.extent, Dimension)
                    else axis.extent
                )
                == 0
                for axis in root.axes
            )
            for root in roots
        )

    def runs_nothing(self, arguments: Sequence[Argument]) -> bool:
        """Whether these arguments leave nothing to do.

        Raises
        ------
        ArgumentError
            If a dynamic extent is outside its range, or differs between arguments.
        """
        if not self.dimensions:
            return self.empty
        shapes = [argument.shape for argument in arguments]
        return self._empty_at(bind_shapes(self.tile_ir.views, shapes, self.name))

    def __call__(self, *arrays: Any, simulate: bool = False) -> tuple[Any, ...] | None:
        """Check the arrays against the compiled views and launch; outputs are written in place.

        Parameters
        ----------
        arrays
            One array a view, in order.
        simulate
            Also run a Metal kernel's text in the simulator, on copies, and compare the outputs
            with the device's. Without an Apple GPU a launch is the simulator's own.

        Returns
        -------
        tuple or None
            The simulator's counters, one for each kernel, where it ran.

        Raises
        ------
        ArgumentError
            If an array differs in number, type, shape, layout or device, or overlaps an output.
        TargetError
            If the target's device is not present, or ``simulate`` is asked of another target.
        SimulatorError
            If the emitted text has a fault, or device and simulator disagree.
        """
        direct = self.direct
        if direct is not None and not simulate and direct(arrays):
            return None
        try:
            arguments = self._describe(arrays)
            if simulate:
                return launch_and_compare(self, arguments)
            return self.launch(arguments)
        except ArgumentError as error:
            raise at_call(self.name, error) from None

    def _describe(self, arrays: Sequence[Any]) -> list[Argument]:
        views = self.tile_ir.views
        if len(arrays) != len(views):
            names = ", ".join(view.name for view in views)
            raise ArgumentError(
                f"{self.name} takes {len(views)} arrays ({names}), not {len(arrays)}"
            )
        return [describe(view.name, array) for view, array in zip(views, arrays, strict=True)]

    def launch(self, arguments: Sequence[Argument]) -> tuple[Any, ...] | None:
        """Check described arguments and launch; counters where the simulator runs."""
        for view, argument in zip(self.tile_ir.views, arguments, strict=True):
            check_argument(self.name, view, argument)
            if argument.device[0] != self._expected_device:
                _ = self.function  # says so where there is no such device at all
                raise ArgumentError(
                    f"{self.name}: argument {view.name!r} is on {argument.device[0]}, the kernel "
                    f"was compiled for {self.kind} and takes {self._expected_device} memory here"
                )
            require_same_device(self.name, view.name, argument, arguments[0])
        if self.runs_nothing(arguments):
            return () if self.simulated else None
        artifact = self.variant(arguments)
        if self.simulated:
            assert artifact.device is not None
            return simulate_launches(artifact.device, artifact.tile_ir, arguments)
        artifact.launcher.send(arguments[0].device[1], [exported(a) for a in arguments])
        return None

    @functools.cached_property
    def launcher(self) -> Launcher:
        """What launches :attr:`function`."""
        return Launcher(
            self.name,
            self.kind,
            self.tile_ir.views,
            self.function,
            self.alignment,
            lambda: self._unvectorized.launcher,
        )

    @property
    def direct(self) -> Callable[[Sequence[Any]], bool] | None:
        """The short way for torch tensors (:meth:`.Launcher.direct`), from the first call on."""
        return self.__dict__.get("_direct") or self._make_direct()

    def direct_for(self, arrays: Sequence[Any]) -> Callable[[Sequence[Any]], bool] | None:
        """The short way for tensors of exactly these shapes, which were launched just now."""
        if not self.dimensions or self.direct is None:
            return self.direct
        values = bind_shapes(self.tile_ir.views, [array.shape for array in arrays], self.name)
        if self._empty_at(values):
            return None
        return self.launcher.direct(fixed_views(self.tile_ir.views, values))

    def _make_direct(self) -> Callable[[Sequence[Any]], bool] | None:
        if "torch" not in sys.modules or self.empty or self.kind == "metal":
            return None
        if not system_has(self.kind):
            return None
        self.__dict__["_direct"] = found = self.launcher.direct()
        return found

    def variant(self, arguments: Sequence[Argument]) -> Artifact:
        """Choose the artifact that a launch of these arguments runs.

        This one, where arguments are distinct and their bases fit its vector accesses; the
        reference map where an output is exactly an input; the same map with scalar accesses where
        a base is not aligned.
        """
        if self._overlaps(arguments):
            return self._in_place
        return self._unvectorized if self._misaligned(arguments) else self

    @functools.cached_property
    def simulated(self) -> bool:
        """Whether calls run in the simulator: a Metal kernel where there is no Apple GPU."""
        return self.kind == "metal" and not system_has("metal")

    @property
    def _expected_device(self) -> str:
        return "llvm" if self.simulated else self.kind

    def simulate(self, *arrays: Any, seed: int = 0) -> tuple[Any, ...]:
        """Run a Metal kernel's emitted text in the simulator on processor memory.

        Returns
        -------
        tuple
            The simulator's counters, one for each launch.
        """
        if self.device is None or self.kind != "metal":
            raise TargetError(f"{self.name}: only a Metal kernel runs in the simulator")
        arguments = self._describe(arrays)
        for view, argument in zip(self.tile_ir.views, arguments, strict=True):
            check_argument(self.name, view, argument)
        device = self.device if self.runs_nothing(arguments) else self.variant(arguments).device
        assert device is not None
        return simulate_launches(device, self.tile_ir, arguments, seed=seed)

    def export_library(self, path: str | Path) -> Path:
        """Write a shared library that TVM's runtime loads without this package or the compiler."""
        self.require_launchable()
        path = Path(path)
        self.module.export_library(str(path))
        return path

    @functools.cached_property
    def alignment(self) -> dict[str, int]:
        """Bytes that vector accesses assume of a view's base address, by name."""
        found = self.scheduled[self.name].attrs.get(attrs.ALIGNMENT, {})
        return {str(name): int(size) for name, size in found.items()}

    def _misaligned(self, arguments: Sequence[Argument]) -> bool:
        """Whether a base address is not what the vector accesses assume."""
        named = zip(self.tile_ir.views, arguments, strict=True)
        return any(a.address % self.alignment.get(view.name, 1) for view, a in named)

    @functools.cached_property
    def _unvectorized(self) -> Artifact:
        """The same map with scalar accesses, for a base that vectors do not fit."""
        assert self.recompile is not None
        return self.recompile(replace(self.options, vector_access=False))

    def _overlaps(self, arguments: Sequence[Argument]) -> bool:
        """Whether a written argument shares memory with another one.

        Memory may be shared by exactly the same array, where every program reads only what it
        writes; everything else would race, and is refused.
        """
        views = self.tile_ir.views
        found = False
        for i, written in enumerate(views):
            if written.access is ViewAccess.read:
                continue
            for j, other in enumerate(views):
                if i == j or not overlapping(arguments[i], arguments[j]):
                    continue
                pair = f"{self.name}: arguments {written.name!r} and {other.name!r}"
                if self.options.noalias:
                    raise ArgumentError(f"{pair} overlap, and noalias=True was promised")
                # Memory (a buffer handle on Metal) is equal where they overlap.
                same = arguments[i].address == arguments[j].address and written.shape == other.shape
                if not same or written.dtype != other.dtype:
                    raise ArgumentError(f"{pair} overlap in part; rows run in parallel")
                if self.proof is not None and self.proof.explicit:
                    raise ArgumentError(
                        f"{pair} are the same array; the SIMD-group map that was requested needs "
                        "distinct ones"
                    )
                if not runs_in_place(self.tile_ir, written.name, other.name):
                    raise ArgumentError(
                        f"{pair} are the same array, but a program reads what another writes"
                    )
                found = True
        return found

    @functools.cached_property
    def _in_place(self) -> Artifact:
        """The reference map with every load kept as a snapshot and no aliasing promise."""
        assert self.recompile is not None
        preserve = SharedTileMaterialization.PRESERVE
        return self.recompile(
            replace(self.options, noalias=False, shared_tile_materialization=preserve)
        )
