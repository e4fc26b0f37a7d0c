"""Which extents of a call's arrays may count independent programs.

A call is compiled for any number of rows if the kernel can be captured so. Which extents are the
rows is not stated anywhere: it is guessed here from the annotations or the shapes, and the capture
is the judge, since a dynamic extent without a bound may only count programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tvm_tilex.ir.index import Dimension, Extent
from tvm_tilex.lang.tensor import ViewSpec

__all__ = ["ROWS", "Positions", "equal_extent", "row_candidates", "with_rows"]

# (argument, dimension) pairs that share one extent.
Positions = frozenset[tuple[int, int]]

# Not all that an extent may be: a grid must hold the threadgroups of up to 16 a row.
ROWS = Dimension("rows", 0, 2**27 - 1)


def row_candidates(
    parameters: Mapping[str, ViewSpec], shapes: Sequence[tuple[int, ...]]
) -> Iterator[Positions]:
    """Guesses, the likelier first: leading extents with one name, or that are equal.

    Where a width happens to equal the number of rows, the arrays of the highest rank decide.
    """
    seen: set[Positions] = set()
    for found in _guesses(list(parameters.values()), shapes):
        if found and found not in seen:
            seen.add(found)
            yield found


def _guesses(views: Sequence[ViewSpec], shapes: Sequence[tuple[int, ...]]) -> Iterator[Positions]:
    ranks = [len(shape) for shape in shapes]
    order = sorted(range(len(shapes)), key=lambda n: -ranks[n])
    for leading in order:
        name = (views[leading].dimensions or (None,))[0]
        if name is not None:
            yield frozenset(
                (n, d)
                for n, view in enumerate(views)
                for d, other in enumerate(view.dimensions or ())
                if other == name
            )
            continue
        equal = [n for n, shape in enumerate(shapes) if shape[:1] == shapes[leading][:1]]
        yield frozenset((n, 0) for n in equal)
        yield frozenset((n, 0) for n in equal if ranks[n] == max(ranks))


def equal_extent(positions: Positions, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether these places of a call's shapes hold one and the same extent, within :data:`ROWS`."""
    found = {shapes[n][d] if d < len(shapes[n]) else -1 for n, d in positions}
    return len(found) == 1 and 0 <= min(found) <= ROWS.maximum


def with_rows(positions: Positions, shapes: Sequence[tuple[int, ...]]) -> list[tuple[Extent, ...]]:
    """The shapes with :data:`ROWS` at these places."""
    return [
        tuple(ROWS if (n, d) in positions else extent for d, extent in enumerate(shape))
        for n, shape in enumerate(shapes)
    ]
