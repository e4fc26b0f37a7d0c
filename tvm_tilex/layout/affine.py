"""Injectivity and exact image size of quasi-affine maps.

Given two points with equal outputs, write ``delta`` for the difference of the unknowns (digits,
coordinates, opaque atoms), ``|delta_i| <= width_i``. Two sufficient conditions, from the
specification "Layouts and value distribution":

* dominance: a row with ``|A[j,i]| > sum over unresolved k != i of |A[j,k]| * width_k`` forces
  ``delta_i = 0``; repeated until nothing changes;
* full column rank of what is left modulo ``2**31 - 1``: a nonzero modular minor is a nonzero
  integer minor. A modular failure says nothing.
"""

from __future__ import annotations

from math import prod

from tvm_tilex.layout.context import Context
from tvm_tilex.layout.expr import Coordinate, Expr
from tvm_tilex.layout.forms import DigitSystem, Form, Variable

__all__ = ["AffineImage", "full_column_rank", "image_size", "prove_injective"]

PRIME = 2**31 - 1
_BITSET_LIMIT = 1 << 22


def _widths(
    context: Context, system: DigitSystem, rows: list[dict[Variable, int]]
) -> dict[Variable, int]:
    widths: dict[Variable, int] = {}
    for row in rows:
        for variable in row:
            if variable in widths:
                continue
            low, high = system.variable_interval(variable)
            fixed = low == high or (isinstance(variable, Expr) and context.is_constant(variable))
            widths[variable] = 0 if fixed else high - low
    return {v: w for v, w in widths.items() if w}


def _needed(context: Context, system: DigitSystem) -> list[Variable]:
    needed: list[Variable] = []
    for leaf, (low, high) in context.bounds.items():
        if low >= high or not isinstance(leaf, Coordinate):
            continue
        digits = system.coordinate_digits.get(leaf)
        if digits is None:
            needed.append(leaf)
            continue
        for digit in digits:
            a, b = system.variable_interval(digit)
            if a < b:
                needed.append(digit)
    return needed


def _dominate(rows: list[dict[Variable, int]], widths: dict[Variable, int]) -> None:
    """Remove from ``widths`` every unknown that some row forces to be equal."""
    changed = True
    while changed and widths:
        changed = False
        for row in rows:
            while True:
                live = [(abs(c), v) for v, c in row.items() if v in widths]
                if not live:
                    break
                reach = sum(c * widths[v] for c, v in live)
                forced = [v for c, v in live if c > reach - c * widths[v]]
                if not forced:
                    break
                for variable in forced:
                    del widths[variable]
                changed = True


def full_column_rank(rows: list[list[int]], columns: int) -> bool:
    """Whether the integer matrix has full column rank modulo ``2**31 - 1`` (sufficient over Q)."""
    work = [[value % PRIME for value in row] for row in rows]
    # Full column rank needs a pivot in every column, so the pivot row is the column's number.
    for column in range(columns):
        pivot = next((r for r in range(column, len(work)) if work[r][column]), None)
        if pivot is None:
            return False
        work[column], work[pivot] = work[pivot], work[column]
        inverse = pow(work[column][column], PRIME - 2, PRIME)
        head = work[column]
        for row in work[column + 1 :]:
            factor = row[column] * inverse % PRIME
            if factor:
                for k in range(column, columns):
                    row[k] = (row[k] - factor * head[k]) % PRIME
    return True


def prove_injective(context: Context, forms: tuple[Form, ...]) -> str | None:
    """Return the reason why equal outputs force equal points, or None."""
    system = DigitSystem(forms, context.atom_interval, context.form_interval)
    needed = _needed(context, system)
    if not needed:
        return "at most one point"
    rows = system.rows + system.definitions
    widths = _widths(context, system, rows)
    if any(variable not in widths for variable in needed):
        return None
    _dominate(rows, widths)
    if not any(variable in widths for variable in needed):
        return "affine dominance"
    columns = list(widths)
    matrix = [[row.get(v, 0) for v in columns] for row in rows]
    if full_column_rank(matrix, len(columns)):
        return "affine rank modulo 2^31 - 1"
    return None


class AffineImage:
    """The exact image of an affine map on a box: size, and per output least and greatest."""

    __slots__ = ("gcds", "intervals", "size")

    def __init__(self, size: int, intervals: list[tuple[int, int]], gcds: list[int]) -> None:
        self.size = size
        self.intervals = intervals
        self.gcds = gcds


def image_size(context: Context, forms: tuple[Form, ...]) -> AffineImage | None:
    """Return the exact image of ``forms`` on a static box without guards, or None."""
    if context.guards or context.space.parameters:
        return None
    system = DigitSystem(forms, context.atom_interval, context.form_interval)
    if not system.exact or system.definitions:
        return None
    sizes: dict[Variable, int] = {}
    for row in system.rows:
        for variable in row:
            if isinstance(variable, Expr) and not isinstance(variable, Coordinate):
                return None
            if not isinstance(variable, Expr) and variable not in _digit_set(system):
                return None
            low, high = system.variable_interval(variable)
            sizes[variable] = high - low + 1
    intervals = [system.row_interval(k) for k in range(len(forms))]
    steps: dict[Variable, int] = dict.fromkeys(sizes, 0)
    scale = 1
    for row, (low, high) in zip(system.rows, intervals, strict=True):
        for variable, coefficient in row.items():
            steps[variable] += coefficient * scale
        scale *= high - low + 1
    count = _count_sums([(abs(steps[v]), n) for v, n in sizes.items() if n > 1])
    return None if count is None else AffineImage(count, intervals, _gcds(system))


def _digit_set(system: DigitSystem) -> set[Variable]:
    return {d for digits in system.coordinate_digits.values() for d in digits}


def _gcds(system: DigitSystem) -> list[int]:
    from math import gcd

    return [gcd(*row.values()) if row else 0 for row in system.rows]


def _count_sums(digits: list[tuple[int, int]]) -> int | None:
    """Return the number of distinct sums of ``step * d``, ``0 <= d < n``; None where undecided."""
    count, span, step = 1, 0, 0
    for a, n in sorted(digits):
        reach = a * (n - 1)
        if a == 0:
            continue
        if a > span:
            progression = span == 0 or (step and a == span + step)
            step = (step or a) if progression else 0
            count *= n
        elif step and a % step == 0:
            count = (span + reach) // step + 1
        else:
            return _count_bitset(digits)
        span += reach
    return count


def _count_bitset(digits: list[tuple[int, int]]) -> int | None:
    span = sum(a * (n - 1) for a, n in digits)
    if span > _BITSET_LIMIT or prod(n for _, n in digits) < 0:
        return None
    reached = 1
    for a, n in digits:
        done = 1
        while done < n:
            more = min(done, n - done)
            reached |= reached << (a * more)
            done += more
    return reached.bit_count()
