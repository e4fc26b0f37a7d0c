"""Linear forms over coordinates and floor-quotient atoms, and their mixed-radix digits.

``x mod c`` is written ``x - c * (x div c)`` and nested quotients are merged, so that
``c * (x div c) + x mod c`` is literally ``x``. Digits undo this where ranges matter: quotients of
one form L by divisors ``c1 | c2 | ...`` become ``L = r0 + c1 * (r1 + ...)`` with bounded digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tvm_tilex.layout.expr import Coordinate, Expr
from tvm_tilex.layout.interval import Interval

__all__ = ["Atom", "Digit", "DigitSystem", "Form", "Quotient"]


class Quotient:
    """The atom ``floor(form / divisor)`` with a divisor above one; interned per context."""

    __slots__ = ("divisor", "form")

    def __init__(self, form: Form, divisor: int) -> None:
        self.form = form
        self.divisor = divisor


class Digit:
    """A bounded digit of a form: an unknown of a digit system."""

    __slots__ = ("interval",)

    def __init__(self, interval: Interval) -> None:
        self.interval = interval


Atom = Expr | Quotient
Variable = Expr | Quotient | Digit
Row = dict[Variable, int]


class Form:
    """``const + sum terms[atom] * atom``; never mutated once built."""

    __slots__ = ("_key", "const", "terms")

    def __init__(self, const: int, terms: dict[Atom, int]) -> None:
        self.const = const
        self.terms = terms
        self._key: tuple[Any, ...] | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable identity, valid within one context."""
        if self._key is None:
            self._key = (self.const, frozenset((id(a), c) for a, c in self.terms.items()))
        return self._key

    def add(self, other: Form, scale: int = 1) -> Form:
        """Return ``self + scale * other``."""
        if not other.terms:
            return Form(self.const + scale * other.const, self.terms)
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + scale * coefficient
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Form(self.const + scale * other.const, terms)

    def scaled(self, scale: int) -> Form:
        """Return ``scale * self``."""
        if scale == 0:
            return Form(0, {})
        return Form(self.const * scale, {a: c * scale for a, c in self.terms.items()})

    def shifted(self, delta: int) -> Form:
        """Return ``self + delta``."""
        return Form(self.const + delta, self.terms)


def _collect(forms: Iterable[Form]) -> dict[tuple[Any, ...], list[Quotient]]:
    """Group the quotient atoms, also those inside other quotients, by the form they divide."""
    groups: dict[tuple[Any, ...], list[Quotient]] = {}
    seen: set[int] = set()
    stack = list(forms)
    while stack:
        for atom in stack.pop().terms:
            if isinstance(atom, Quotient) and id(atom) not in seen:
                seen.add(id(atom))
                groups.setdefault(atom.form.key, []).append(atom)
                stack.append(atom.form)
    return groups


def _chain(quotients: list[Quotient]) -> list[Quotient]:
    ordered = sorted(quotients, key=lambda q: q.divisor)
    chain = [ordered[0]]
    for quotient in ordered[1:]:
        if quotient.divisor % chain[-1].divisor == 0:
            chain.append(quotient)
    return chain


class DigitSystem:
    """Rows of several forms over common digits, with the rows that define the digits.

    ``rows`` has one row per form (constants dropped); ``definitions`` are identities ``row = 0``;
    ``exact`` says that the coordinates biject onto the whole box of the variables' intervals.
    """

    def __init__(
        self,
        forms: tuple[Form, ...],
        interval: Callable[[Variable], Interval],
        form_interval: Callable[[Form], Interval],
    ) -> None:
        self._interval = interval
        self._form_interval = form_interval
        self._replaced: dict[Variable, tuple[int, Row]] = {}
        self.coordinate_digits: dict[Expr, tuple[Variable, ...]] = {}
        self.exact = True
        pending: list[tuple[Form, int, Row]] = []
        groups = _collect(forms) if any(_has_quotient(f) for f in forms) else {}
        # Single coordinates first: they are eliminated outright.
        for quotients in sorted(groups.values(), key=lambda g: (len(g[0].form.terms), -len(g))):
            pending.append(self._digits(quotients))
        self.definitions: list[Row] = []
        for form, const, digits in pending:
            self._eliminate(form, const, digits)
        self.rows = [self._row(form)[1] for form in forms]
        self.constants = [self._row(form)[0] for form in forms]

    def _digits(self, quotients: list[Quotient]) -> tuple[Form, int, Row]:
        """Introduce the digits of one form; return the form and its value over the digits."""
        chain = _chain(quotients)
        self.exact = self.exact and len(chain) == len(quotients)
        form = chain[0].form
        low, high = self._form_interval(form)
        digits: Row = {}
        below = 1
        values: list[tuple[Quotient, int]] = []
        for quotient in chain:
            radix = quotient.divisor // below
            top = radix - 1 if low < 0 else min(radix - 1, high // below)
            digits[Digit((0, max(top, 0)))] = below
            values.append((quotient, below))
            below = quotient.divisor
        digits[Digit((low // below, high // below))] = below
        if low % below or (high + 1) % below:
            self.exact = False
        for quotient in chain:
            c = quotient.divisor
            upper = {d: w // c for d, w in digits.items() if w >= c}
            self._replaced[quotient] = (0, upper)
        return form, 0, digits

    def _eliminate(self, form: Form, const: int, digits: Row) -> None:
        """Express a coordinate through the digits where possible, else keep a definition."""
        if len(form.terms) == 1:
            ((atom, coefficient),) = form.terms.items()
            if (
                coefficient in (1, -1)
                and isinstance(atom, Coordinate)
                and atom not in self._replaced
            ):
                scaled = {d: w * coefficient for d, w in digits.items()}
                self._replaced[atom] = (-form.const * coefficient, scaled)
                self.coordinate_digits[atom] = tuple(digits)
                return
        self.exact = False
        _, row = self._row(form)
        for digit, weight in digits.items():
            row[digit] = row.get(digit, 0) - weight
        self.definitions.append({v: c for v, c in row.items() if c})

    def _row(self, form: Form) -> tuple[int, Row]:
        const = form.const
        row: Row = {}
        for atom, coefficient in form.terms.items():
            replaced = self._replaced.get(atom)
            if replaced is None:
                row[atom] = row.get(atom, 0) + coefficient
                continue
            const += coefficient * replaced[0]
            for variable, weight in replaced[1].items():
                row[variable] = row.get(variable, 0) + coefficient * weight
        return const, {v: c for v, c in row.items() if c}

    def variable_interval(self, variable: Variable) -> Interval:
        """Return the inclusive range of an unknown."""
        return variable.interval if isinstance(variable, Digit) else self._interval(variable)

    def row_interval(self, number: int) -> Interval:
        """Return the range of form ``number`` over the box of unknowns."""
        low = high = self.constants[number]
        for variable, coefficient in self.rows[number].items():
            a, b = self.variable_interval(variable)
            low += coefficient * (a if coefficient > 0 else b)
            high += coefficient * (b if coefficient > 0 else a)
        return (low, high)


def _has_quotient(form: Form) -> bool:
    return any(isinstance(atom, Quotient) for atom in form.terms)
