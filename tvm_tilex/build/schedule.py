"""From a program to scheduled TIRx: one realization, or one for each class of its extents."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.build.dump import StageDump
from tvm_tilex.build.materializations import Materialization, materializations
from tvm_tilex.build.pipeline import mapping, planning
from tvm_tilex.errors import MappingError
from tvm_tilex.ir import Dimension, Group, Parallel, Program
from tvm_tilex.ir.dimensions import dimensions_of, restrict, tile_dimensions
from tvm_tilex.ir.verify import verify
from tvm_tilex.ir.walk import walk
from tvm_tilex.lowering import SharedTileMaterialization, lower_program
from tvm_tilex.plan.classes import FEW_POLICY, program_ranges, width_ranges
from tvm_tilex.plan.cooperative import CooperativePlan
from tvm_tilex.plan.group_plan import GroupPlan
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tvm
from tvm_tilex.transform.combine_variants import combine_variants
from tvm_tilex.transform.options import CompileOptions

__all__ = ["Schedule", "Variant", "lowered", "schedule"]


# A materialization, its reference and its planned module.
_Planned = tuple[Materialization, IRModule, IRModule]


@dataclass(frozen=True)
class Variant:
    """The realization for one range of each dynamic extent; the only one of a static program.

    ``materialization_reason`` says why a CPU's planner chose what is kept; empty where it didn't.
    ``early_views`` says that what every program reads is loaded before the first reduction.
    ``proof`` and ``plan`` are None where the reference map is used, ``group_plans`` are those of
    cooperative groups; ``refusal`` says why no plan fits an admitted program.
    """

    dimensions: tuple[Dimension, ...]
    materialization: SharedTileMaterialization
    materialization_reason: str
    early_views: bool
    proof: ProofRecord | None
    plan: GroupPlan | None
    group_plans: tuple[CooperativePlan, ...]
    refusal: str | None

    @property
    def ranges(self) -> str:
        """The ranges as text; empty for a static program."""
        return ", ".join(f"{d.name} in {d.range}" for d in self.dimensions)


@dataclass(frozen=True)
class Schedule:
    """Reference and scheduled module, and the variants in the order of their ranges.

    ``main`` is the variant for the most programs of the widest rows.
    """

    reference: IRModule
    scheduled: IRModule
    variants: tuple[Variant, ...]

    @property
    def main(self) -> Variant:
        """The variant for the greatest extents."""
        return self.variants[-1]


def lowered(program: Program, options: CompileOptions) -> IRModule:
    """Verify a program and lower it to reference TIRx."""
    verify(program)
    mode = options.shared_tile_materialization or SharedTileMaterialization.PRESERVE
    function = lower_program(program, mode, noalias=options.noalias is not False)
    function = function.with_attr(attrs.OPTIONS, options.to_json())
    return IRModule({program.name: function})


def schedule(
    program: Program, target: Any, options: CompileOptions, dump: StageDump | None = None
) -> Schedule:
    """Lower and realize a program for every extent that it admits.

    Raises
    ------
    MappingError
        If a requested map does not fit, or a GPU's cooperative group has dynamic extents around it.
    """
    dynamic = dimensions_of(program.views)
    _require_fixed_groups(program, target.kind.name)
    if not dynamic:
        variant, module, scheduled = _realize(program, target, options, dump)
        return Schedule(module, scheduled, (variant,))
    found = _for_boxes(program, target, options, dump)
    overlaps = {attrs.OVERLAPS in function.attrs for _, function in found}
    # The launches of a function have one attribute for all.
    if options.dependent_launch is None and len(overlaps) > 1:
        options = replace(options, dependent_launch=False)
        found = _for_boxes(program, target, options, dump)
    mode = found[-1][0].materialization
    whole = lowered(program, replace(options, shared_tile_materialization=mode))
    combined = combine_variants([function for _, function in found], whole[program.name])
    scheduled = IRModule({program.name: combined})
    return Schedule(whole, scheduled, tuple(variant for variant, _ in found))


def _for_boxes(
    program: Program, target: Any, options: CompileOptions, dump: StageDump | None
) -> list[tuple[Variant, PrimFunc]]:
    found: list[tuple[Variant, PrimFunc]] = []
    for box in _boxes(program, target.kind.name):
        found += _for_box(restrict(program, box), target, options, dump)
    return found


def _require_fixed_groups(program: Program, kind: str) -> None:
    """Refuse what would run a cooperative group by one thread: its planner counts programs."""
    group = next((s for s in walk(program) if isinstance(s, Group)), None)
    dynamic = dimensions_of(program.views)
    if kind == "llvm" or group is None or not dynamic:
        return
    raise MappingError(
        f"{program.name}: a cooperative group is planned for a fixed number of programs; "
        f"{dynamic[0].name} is dynamic",
        location=group.location,
    )


def _boxes(program: Program, kind: str) -> Iterator[dict[str, Dimension]]:
    """Every class of the widths, with the empty launch left out of the program counts.

    A processor's loops run to the extent itself, so that one class serves it.
    """
    dynamic = dimensions_of(program.views)
    tiles, counts = tile_dimensions(program), _program_dimensions(program)
    choices: list[list[Dimension]] = []
    for d in dynamic:
        least = max(1, d.minimum) if d.name in counts else d.minimum
        spans: tuple[tuple[int, int], ...] = ((least, d.maximum),)
        if d.name in tiles and kind != "llvm":
            spans = width_ranges(least, d.maximum)
        choices.append([Dimension(d.name, *span) for span in spans if span[0] <= span[1]])
    for chosen in itertools.product(*choices):
        yield {d.name: d for d in chosen}


def _program_dimensions(program: Program) -> frozenset[str]:
    """Dimensions that every root nest counts programs with: one is 0 where none runs."""
    roots = [root for root in program.body if isinstance(root, Parallel)]
    named = [
        {axis.extent.name for axis in root.axes if isinstance(axis.extent, Dimension)}
        for root in roots
    ]
    return frozenset(set.intersection(*named)) if named else frozenset()


def _for_box(
    program: Program, target: Any, options: CompileOptions, dump: StageDump | None
) -> list[tuple[Variant, PrimFunc]]:
    """The variants for one class of widths: one for every number of programs, or two.

    The plan is that of many programs. Few programs get a variant where the policy for them, the
    shortest path of one program, chooses another plan.
    """
    many, _, scheduled = _realize(program, target, options, dump)
    function = scheduled[program.name]
    split = _few_programs(program, target.kind.name, options)
    if split is None or many.plan is None:
        return [(many, function)]
    few_range, rest = split
    policy = replace(options, cost_policy=FEW_POLICY[target.kind.name])
    few, _, scheduled = _realize(restrict(program, {rest.name: few_range}), target, policy, dump)
    if few.plan is None or few.plan.shape == many.plan.shape:
        return [(many, function)]
    ranges = {str(d.name): [d.minimum, d.maximum] for d in many.dimensions}
    ranges[rest.name] = [rest.minimum, rest.maximum]
    dimensions = tuple(rest if d.name == rest.name else d for d in many.dimensions)
    return [
        (few, scheduled[program.name]),
        (replace(many, dimensions=dimensions), function.with_attr(attrs.DIMENSIONS, ranges)),
    ]


def _few_programs(
    program: Program, kind: str, options: CompileOptions
) -> tuple[Dimension, Dimension] | None:
    """The ranges of few and of many programs, where one dimension alone counts them.

    None where the options choose the plan or its policy, or where tiles run along a dynamic
    dimension too: the widths have classes enough.
    """
    counts = _program_dimensions(program)
    if options.explicit_request or options.cost_policy != "default" or len(counts) != 1:
        return None
    if tile_dimensions(program):
        return None
    (root, *others) = (root for root in program.body if isinstance(root, Parallel))
    fixed = math.prod(axis.extent for axis in root.axes if isinstance(axis.extent, int))
    (counted,) = (d for d in dimensions_of(program.views) if d.name in counts)
    spans = program_ranges(counted.minimum, counted.maximum, kind, per=max(1, fixed))
    if others or len(spans) != 2:
        return None
    return Dimension(counted.name, *spans[0]), Dimension(counted.name, *spans[1])


def _realize(
    program: Program, target: Any, options: CompileOptions, dump: StageDump | None
) -> tuple[Variant, IRModule, IRModule]:
    """Lower and realize, with the cheapest of the first materializations for which a plan fits."""
    ranks, reason = materializations(program, target.kind.name, options)
    for choices in ranks:
        planned = _alternatives(program, target, options, choices, dump)
        fitting = [p for p in planned if attrs.PLAN_REFUSAL not in p[2][program.name].attrs]
        if fitting:
            planned = sorted(fitting, key=lambda p: _score(p[2][program.name]))
            break
    choice, module, scheduled = planned[0]
    if dump is not None and len(choices) > 1:
        scores = [f"{choice} (score {_score(p[program.name]):g})" for choice, _, p in planned]
        dump.write("chosen", "shared_tile_materialization: " + ", not ".join(scores))
    scheduled = _passed(program, mapping(target), scheduled)
    return _variant(program, choice, reason, scheduled[program.name]), module, scheduled


def _alternatives(
    program: Program,
    target: Any,
    options: CompileOptions,
    choices: tuple[Materialization, ...],
    dump: StageDump | None,
) -> list[_Planned]:
    """What each choice is planned to; one whose requested map does not fit is left out.

    Raises
    ------
    MappingError
        If none fits: the first one's.
    """
    planned: list[_Planned] = []
    refused: list[MappingError] = []
    references: dict[SharedTileMaterialization, IRModule] = {}
    for choice in choices:
        tiles = choice.tiles
        if tiles not in references:
            chosen = replace(options, shared_tile_materialization=tiles)
            references[tiles] = lowered(program, chosen)
        named = contextlib.nullcontext()
        if dump is not None and len(choices) > 1:
            named = dump.alternative(str(choice))
        try:
            with named:
                planned.append(_planned(program, target, references[tiles], choice, dump))
        except MappingError as error:
            refused.append(error)
    if not planned:
        raise refused[0]
    return planned


def _planned(
    program: Program,
    target: Any,
    reference: IRModule,
    choice: Materialization,
    dump: StageDump | None,
) -> _Planned:
    if dump is not None:
        dump.write("reference", reference.script(), "py")
    passes = planning(target, keep_views=choice.keep_views, early_views=choice.early_views)
    return choice, reference, _passed(program, passes, reference)


def _passed(program: Program, passes: list[Any], module: IRModule) -> IRModule:
    try:
        return tvm.ir.transform.Sequential(passes, name="tilex.Realize")(module)
    except MappingError as error:
        raise MappingError(str(error), location=program.body[0].location) from None


def _score(function: PrimFunc) -> float:
    """The score of a function's plan; what has none comes after every other."""
    text = function.attrs.get(attrs.PLAN, None)
    return math.inf if text is None else GroupPlan.from_json(str(text)).score


def _variant(program: Program, choice: Materialization, reason: str, function: PrimFunc) -> Variant:
    def text(key: str) -> str | None:
        found = function.attrs.get(key, None)
        return None if found is None else str(found)

    proof, plan = text(attrs.PROOF), text(attrs.PLAN)
    groups = json.loads(text(attrs.GROUP_PLANS) or "[]")
    return Variant(
        dimensions=dimensions_of(program.views),
        materialization=choice.tiles,
        materialization_reason=reason,
        early_views=choice.early_views and attrs.PLAN in function.attrs,
        proof=None if proof is None else ProofRecord.from_json(proof),
        plan=None if plan is None else GroupPlan.from_json(plan),
        group_plans=tuple(CooperativePlan.from_json(json.dumps(group)) for group in groups),
        refusal=text(attrs.PLAN_REFUSAL),
    )
