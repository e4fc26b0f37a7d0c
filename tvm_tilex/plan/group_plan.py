"""The decision record: threads, programs, storage, synchronization, cost, and what was rejected."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from tvm_tilex.plan.resources import MapShape

__all__ = ["Candidate", "GroupPlan"]


@dataclass(frozen=True)
class Candidate:
    """One enumerated map: scored, or rejected with its reason."""

    subgroups: int
    programs_per_group: int
    lane_elements: int
    score: float | None
    rejection: str | None
    blocks_per_program: int = 1
    staged: bool = False
    programs_per_subgroup: int = 1
    peeled: bool = False

    @property
    def shape(self) -> MapShape:
        """S, Q, V, C, the staging, R and peeling."""
        return MapShape(
            self.subgroups,
            self.programs_per_group,
            self.lane_elements,
            self.blocks_per_program,
            self.staged,
            self.programs_per_subgroup,
            self.peeled,
        )


@dataclass(frozen=True)
class GroupPlan:
    """How a root loop is mapped onto threadgroups.

    S = ``reduction_subgroups_per_program`` SIMD groups of ``lanes`` serve a program, Q =
    ``programs_per_group`` programs share a threadgroup, V = ``lane_elements`` consecutive elements
    belong to a worker; C = ``blocks_per_program`` threadgroups, a cluster, share one program, or
    R = ``programs_per_subgroup`` programs share one SIMD group, each with lanes / R workers.
    ``peeled`` says that a row's packs of V elements begin at its first aligned element.
    ``staged_bytes`` are the shared bytes of a threadgroup that hold stripes of views, besides
    ``shared_bytes``, which hold partials. ``blocks`` counts all threadgroups of the launch.
    ``stripes`` are the private scalars of each striped buffer, in order, ``stripe_scalars`` those
    of 32 bits that live at once and are not staged; ``repartitions`` the elements of each tile that
    the source places anew. ``programs`` and ``blocks`` are the most where the count is known at
    launch, ``least_programs`` the least. ``dependent`` says that the kernel is launched before the
    one that it follows has ended.
    """

    programs: int
    reduction_subgroups_per_program: int
    programs_per_group: int
    lane_elements: int
    lanes: int
    threads: int
    blocks: int
    shared_bytes: int
    stripe_scalars: int
    stripes: tuple[int, ...]
    barrier_sites: int
    collectives: tuple[str, ...]
    independent_subgroups: bool
    score: float
    rounds: int
    candidates: tuple[Candidate, ...]
    repartitions: tuple[int, ...] = ()
    blocks_per_program: int = 1
    staged_bytes: int = 0
    least_programs: int | None = None
    programs_per_subgroup: int = 1
    peeled: bool = False
    dependent: bool = False

    @property
    def shape(self) -> MapShape:
        """S, Q, V, C, the staging, R and peeling."""
        return MapShape(
            self.reduction_subgroups_per_program,
            self.programs_per_group,
            self.lane_elements,
            self.blocks_per_program,
            self.staged_bytes > 0,
            self.programs_per_subgroup,
            self.peeled,
        )

    @property
    def workers(self) -> int:
        """W, the workers of one program."""
        return self.shape.workers(self.lanes)

    @property
    def dynamic(self) -> bool:
        """Whether the number of programs is known at launch only."""
        return self.least_programs not in (None, self.programs)

    @property
    def ragged(self) -> bool:
        """Whether the last threadgroup may hold fewer programs than the others."""
        if self.programs_per_group == 1:
            return False
        return self.dynamic or self.programs % self.programs_per_group != 0

    @property
    def replays(self) -> bool:
        """Whether programs past the last one repeat it and store nothing.

        A condition around them would not be uniform where threads meet: at the barrier of several
        SIMD groups, or in the collective of a SIMD group that programs share.
        """
        return self.ragged and not self.shape.whole_subgroup

    @property
    def _groups(self) -> str:
        if not self.dynamic:
            return str(self.blocks)
        if self.blocks_per_program > 1:
            return f"{self.blocks_per_program}*P"
        return f"ceil(P/{self.programs_per_group})" if self.ragged else "P"

    def to_json(self) -> str:
        """Stable text of the whole record."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> GroupPlan:
        """A record from :meth:`to_json`'s text."""
        values: dict[str, Any] = json.loads(text)
        for name in ("stripes", "collectives", "repartitions"):
            values[name] = tuple(values.get(name, ()))
        values["candidates"] = tuple(Candidate(**c) for c in values["candidates"])
        return cls(**values)

    def describe(self) -> str:
        """One line for a report."""
        placed = ", ".join(map(str, self.repartitions))
        repartitions = f"repartitions of {placed} elements, " if placed else ""
        shared = f"R={self.programs_per_subgroup} programs a SIMD group, "
        return (
            f"S={self.reduction_subgroups_per_program} SIMD groups a program, "
            f"{shared if self.programs_per_subgroup > 1 else ''}"
            f"Q={self.programs_per_group} programs a threadgroup, V={self.lane_elements}"
            f"{' from the first aligned element' if self.peeled else ''}: "
            f"{self._groups} threadgroups of {self.threads} threads{self._clustered}, "
            f"{self.shared_bytes} shared bytes{self._staged}, "
            f"{self.stripe_scalars} private scalars, {self.barrier_sites} barriers, "
            f"{repartitions}score {self.score:g}"
        )

    @property
    def _staged(self) -> str:
        return f" and {self.staged_bytes} for stripes" if self.staged_bytes else ""

    @property
    def _clustered(self) -> str:
        return f", C={self.blocks_per_program} a program" if self.blocks_per_program > 1 else ""
