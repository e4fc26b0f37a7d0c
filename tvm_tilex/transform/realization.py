"""What the subgroup passes need of a function's target and options, from whoever states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.rows import MAPPED_KINDS, SUBGROUP_LANES
from tvm_tilex.plan.cost import IN_TURN
from tvm_tilex.plan.facts import Request, TargetFacts
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import PrimFunc, Target, structural_walk, tirx
from tvm_tilex.transform.common import compute_capability
from tvm_tilex.transform.options import CompileOptions

__all__ = ["Realization", "has_clusters", "opt_in_bytes", "realization_of"]

# By architecture (CUDA C++ Programming Guide, technical specifications per compute capability).
_OPT_IN = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90": 232448, "sm_100": 232448}
_DEPENDENT_CAPABILITY = 90  # programmatic dependent launches (CUDA Programming Guide)
_STAGED = {None: None, "register": False, "shared": True}


@dataclass(frozen=True)
class Realization:
    """A target's facts and an enabled or disabled candidate family."""

    kind: str
    target: TargetFacts
    enabled: bool
    reason: str
    explicit: bool
    options: CompileOptions
    family: str | None = None
    capability: int = 0  # of a CUDA device: 10 * major + minor

    @property
    def hints_caches(self) -> bool:
        """Whether loads can say how the caches should treat them (PTX ISA 7.4: from 8.0 on)."""
        return self.capability >= 80

    @property
    def matrices(self) -> bool:
        """Whether SIMD groups multiply matrices: CUDA's m16n8k16 is there from 8.0 on (PTX 7.0)."""
        return self.kind != "cuda" or self.capability >= 80

    @property
    def copies(self) -> bool:
        """Whether a thread can go on while memory is copied into a tile (PTX ISA 7.0: from 8.0)."""
        return self.capability >= 80

    @property
    def packed_extrema(self) -> bool:
        """Whether one instruction folds two maxima or minima of 16-bit floats (PTX ISA 7.0)."""
        return self.capability >= 80

    @property
    def vectors(self) -> dict[str, int]:
        """The widest vector access: elements and bytes; one element where options forbid it.

        Before compute capability 8.0 TVM widens vectors of bfloat16 as integers of 32 bits, whose
        vectors CUDA has up to four of.
        """
        lanes = {"metal": 4, "cuda": 8}.get(self.kind, 1)
        found = {"max_lanes": lanes if self.options.vector_access else 1, "max_bytes": 16}
        early = self.kind == "cuda" and self.capability < 80
        return {**found, "max_bfloat16_lanes": 4} if early else found

    @property
    def cost_policy(self) -> str:
        """The policy's name; CUDA's default is another where kernels are launched in turn."""
        name, options = self.options.cost_policy, self.options
        # A family below compute capability 9.0 states coefficients for such launches.
        alone = not self.target.dependent_launches and self.family is None
        in_turn = self.kind == "cuda" and (alone or options.dependent_launch is False)
        return IN_TURN if name == "default" and in_turn else name

    @property
    def request(self) -> Request:
        """The explicit choices and bounds for the planner."""
        options = self.options
        return Request(
            threads=options.threads_per_group,
            programs_per_group=options.reduction_programs_per_group,
            lane_elements=options.reduction_lane_elements,
            blocks_per_program=options.reduction_blocks_per_program,
            programs_per_subgroup=options.reduction_programs_per_subgroup,
            staged=_STAGED[options.reduction_stripe_storage],
            peeled=options.reduction_peeled_rows,
            dependent=options.dependent_launch,
            max_striped_scalars=options.max_reduction_striped_scalars_per_worker,
            max_candidates=options.max_thread_candidates,
        )


def realization_of(
    function: PrimFunc, target: Any | None, options: CompileOptions | None
) -> Realization:
    """Combine what the pass was told with the function's own attributes.

    Without options from either, nothing is enabled: a client that uses the passes by hand declares
    them. With options, None means that the target decides by asserting 32-lane SIMD groups.
    """
    target = target or function.attrs.get("target", None) or Target.current()
    kind = str(target.kind.name) if target is not None else ""
    text = function.attrs.get(attrs.OPTIONS, None)
    given = options or (CompileOptions.from_json(str(text)) if text is not None else None)
    facts = _target_facts(target)
    chosen = given or CompileOptions()
    explicit = chosen.explicit_request or _binds_subgroups(function)
    enabled, reason = _enabled(kind, facts, given, explicit)
    capability = compute_capability(target) if kind == "cuda" else 0
    return Realization(kind, facts, enabled, reason, explicit, chosen, _family(target), capability)


def _family(target: Any | None) -> str | None:
    """The device family of ``configs/targets`` that a target's tag names (``tilex/h200``)."""
    tag = str(target.tag) if target is not None else ""
    return tag.removeprefix("tilex/") if tag.startswith("tilex/") else None


def _enabled(
    kind: str, facts: TargetFacts, options: CompileOptions | None, explicit: bool
) -> tuple[bool, str]:
    if explicit:
        return True, "explicitly requested"
    if options is None:
        return False, "no options declare the candidate family"
    if kind not in MAPPED_KINDS:
        return False, f"target kind {kind or 'none'} has no SIMD-group realization"
    name = "metal_subgroup_reductions" if kind == "metal" else "subgroup_reductions"
    stated = getattr(options, name)
    if stated is not None:
        return bool(stated), f"{name}={bool(stated)}"
    if facts.lanes == SUBGROUP_LANES:
        return True, "the target asserts 32-lane SIMD groups"
    return False, f"the target says thread_warp_size {facts.lanes}, not 32"


def _target_facts(target: Any | None) -> TargetFacts:
    found = target.attrs if target is not None else {}
    threads = min(
        int(found.get("max_num_threads", 256)), int(found.get("max_threads_per_block", 1024))
    )
    cuda = target is not None and target.kind.name == "cuda"
    return TargetFacts(
        lane_elements=(1, 2, 4, 8) if cuda else (1,),
        reuses_stripes=cuda,
        regular_groups=cuda,
        programs_per_subgroup=(1, 2, 4) if cuda else (1,),
        cluster_blocks=_cluster_blocks(target) if cuda else 1,
        staging_bytes=opt_in_bytes(target) if cuda else 0,
        dependent_launches=cuda and compute_capability(target) >= _DEPENDENT_CAPABILITY,
        max_threads=threads,
        shared_bytes=int(found.get("max_shared_memory_per_block", 32768)),
        lanes=int(found.get("thread_warp_size", 1)),
    )


def _cluster_blocks(target: Any) -> int:
    """Portable cluster size (CUDA C++ Programming Guide): 8 from compute capability 9.0 on."""
    return 8 if compute_capability(target) >= 90 else 1


def has_clusters(target: Any) -> bool:
    """Whether several threadgroups of a target can share one program."""
    return _target_facts(target).cluster_blocks > 1


def opt_in_bytes(target: Any) -> int:
    """Bytes of shared memory that a CUDA launch may ask for, 0 where that is not known."""
    arch = str(target.attrs.get("arch", "")) if target is not None else ""
    return next((size for name, size in _OPT_IN.items() if arch.startswith(name)), 0)


def _binds_subgroups(function: PrimFunc) -> bool:
    found: list[bool] = []

    def visit(loop: Any) -> None:
        if attrs.annotation(loop, attrs.BINDING) == "subgroup":
            found.append(True)

    structural_walk(function.body, (tirx.For, visit))
    return bool(found)
