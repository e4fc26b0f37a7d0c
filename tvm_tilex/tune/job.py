"""What a worker process is told, as JSON: one candidate of one subject, and how to measure it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm_tilex.kernels.subjects import Subject, make_subject
from tvm_tilex.tune.endpoint import LOCAL, Endpoint

__all__ = ["DEFAULT_TIMING", "Job", "SubjectSpec", "Timing"]


@dataclass(frozen=True)
class SubjectSpec:
    """A subject by name: ``kernel`` is of the library or ``file.py:name``."""

    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    static: Mapping[str, Any] = field(default_factory=dict)

    def subject(self) -> Subject:
        """Find the kernel, here and now."""
        return make_subject(self.kernel, self.shapes, self.dtype, self.static)

    @property
    def label(self) -> str:
        """Short text for tables."""
        name = self.kernel.rpartition(":")[2]
        return f"{name} {' '.join('x'.join(map(str, s)) for s in self.shapes)} {self.dtype}"

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> SubjectSpec:
        """A specification from JSON values."""
        return cls(**{**found, "shapes": tuple(map(tuple, found["shapes"]))})


@dataclass(frozen=True)
class Timing:
    """How long to measure: ``samples`` medians' worth of ``sample_ms``, after ``warmup_ms``."""

    samples: int = 9
    sample_ms: float = 20.0
    warmup_ms: float = 50.0


DEFAULT_TIMING = Timing()


@dataclass(frozen=True)
class Job:
    """One compilation, validation and measurement.

    ``target`` is a name or TVM's description as text. ``measure`` False stops after compilation
    (to know the plan and its score). ``source`` True returns the emitted source too. ``fresh``
    asks for a process that has compiled nothing before, and for machine code of its own. ``limit``
    bounds its seconds. ``screened`` asks for something else: what the planner says of these
    options. ``shared`` is a folder of the run for what its processes need in common.
    """

    subject: SubjectSpec
    target: str
    options: str
    metric: str
    timing: Timing = DEFAULT_TIMING
    seed: int = 0
    endpoint: Endpoint = LOCAL
    measure: bool = True
    source: bool = False
    fresh: bool = False
    limit: float = 120.0
    screened: tuple[str, ...] = ()
    shared: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Job:
        """A job from :meth:`to_dict`'s values."""
        return cls(
            **{
                **found,
                "subject": SubjectSpec.from_dict(found["subject"]),
                "timing": Timing(**found["timing"]),
                "screened": tuple(found["screened"]),
                "endpoint": Endpoint.from_dict(found["endpoint"]),
            }
        )
