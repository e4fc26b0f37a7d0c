"""What the CPU's planner knows of a processor, and how many rows it runs together."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ProcessorFacts", "rows_together"]

_FEWEST, _MOST = 4, 16  # fewer rows hide little; 16 fill one vector with a value a row


@dataclass(frozen=True)
class ProcessorFacts:
    """Bytes of one core's data caches; by default what every current processor has."""

    first_level: int = 32 << 10
    second_level: int = 256 << 10


def rows_together(row_bytes: int, most: int, processor: ProcessorFacts) -> int:
    """How many rows go through a program's phases side by side; 1 where it does not pay.

    ``row_bytes`` counts all that a row's program passes over, inputs, outputs and storage; what
    rows that run together pass over must stay in the first level of the cache. ``most`` bounds the
    number, which is a power of two.
    """
    fitting = min(_MOST, most, processor.first_level // max(1, row_bytes))
    together = 1 << max(0, fitting.bit_length() - 1)
    return together if together >= _FEWEST else 1
