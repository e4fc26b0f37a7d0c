"""What is known on an index set: ranges, constraints, and the linear form of each expression.

A form is only built for an expression all of whose subexpressions are safe (signed 64-bit range,
no zero divisor): simplification never hides an unsafe intermediate.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tvm_tilex.layout.expr import (
    Constant,
    Coordinate,
    Expr,
    Op,
    Operation,
    Parameter,
)
from tvm_tilex.layout.forms import Atom, DigitSystem, Form, Quotient
from tvm_tilex.layout.index_set import IndexSet
from tvm_tilex.layout.interval import Interval, IntervalAnalysis, Unsafe
from tvm_tilex.layout.visitor import leaves

__all__ = ["Context", "Unsafe"]

_ROUNDS = 4


class Context:
    """Facts on the points of ``space`` that satisfy ``guards`` as well."""

    def __init__(self, space: IndexSet, guards: tuple[Expr, ...] = ()) -> None:
        self.space = space
        self.guards = space.guards + guards
        self.bounds = space.leaf_bounds()
        self.constraints: list[Form] = []
        self.contradiction = False
        self._quotients: dict[tuple[Any, ...], Quotient] = {}
        self._keep_alive: list[Form] = []
        self._reset()
        if self.guards or space.parameters:
            self._assume_all(space)

    def _reset(self) -> None:
        self.intervals = IntervalAnalysis(self.bounds)
        self._forms: dict[Expr, Form] = {}
        self._ranges: dict[tuple[Any, ...], Interval] = {}

    @property
    def empty(self) -> bool:
        """Whether no point is left (proved)."""
        return self.contradiction or any(low > high for low, high in self.bounds.values())

    def extended(self, *guards: Expr) -> Context:
        """Return the context with more guards."""
        return Context(self.space, self.guards[len(self.space.guards) :] + guards)

    # -- assumptions -----------------------------------------------------------------------

    def _assume_all(self, space: IndexSet) -> None:
        for c, axis in zip(space.coordinates, space.axes, strict=True):
            if isinstance(axis.extent, Expr):
                size = self.form(axis.extent)
                self.constraints.append(self.form(c).add(size, -1).shifted(1 - axis.lower))
        if not self.empty:
            for guard in self.guards:
                self._assume(guard)
        for _ in range(_ROUNDS):
            if self.empty or not self._tighten():
                break

    def _assume(self, guard: Expr) -> None:
        if isinstance(guard, Constant):
            self.contradiction |= guard.value == 0
            return
        if not isinstance(guard, Operation):
            return
        try:
            if self.intervals.interval(guard) == (0, 0):
                self.contradiction = True
                return
            if guard.op is Op.AND and self._boolean(guard.left) and self._boolean(guard.right):
                self._assume(guard.left)
                self._assume(guard.right)
                return
            if guard.op not in (Op.LT, Op.LE, Op.EQ):
                return
            difference = self.form(guard.left).add(self.form(guard.right), -1)
        except Unsafe:
            return
        if guard.op is Op.LT:
            self.constraints.append(difference.shifted(1))
            return
        self.constraints.append(difference)
        if guard.op is Op.EQ:
            self.constraints.append(difference.scaled(-1))

    def _boolean(self, expr: Expr) -> bool:
        low, high = self.intervals.interval(expr)
        return low >= 0 and high <= 1

    def _tighten(self) -> bool:
        """Narrow leaf ranges by each constraint ``form <= 0``; return whether one changed."""
        changed = False
        for form in tuple(self.constraints):
            spans = {a: self._scaled(a, c) for a, c in form.terms.items()}
            least = form.const + sum(low for low, _ in spans.values())
            if least > 0:
                self.contradiction = True
                return False
            for atom, coefficient in form.terms.items():
                room = -(least - spans[atom][0])
                if isinstance(atom, Quotient):
                    changed |= self._limit_quotient(atom, coefficient, room)
                    continue
                if not isinstance(atom, (Coordinate, Parameter)):
                    continue
                low, high = self.bounds.get(atom, self.intervals.interval(atom))
                if coefficient > 0:
                    new = (low, min(high, room // coefficient))
                else:
                    new = (max(low, -(room // -coefficient)), high)
                if new != (low, high):
                    self.bounds[atom] = new
                    changed = True
        if changed:
            self._reset()
        return changed

    def _limit_quotient(self, atom: Quotient, coefficient: int, room: int) -> bool:
        """Pass ``coefficient * floor(form / divisor) <= room`` on to the form; whether it is news.

        ``q <= k`` is ``form < (k + 1) * divisor``, and ``q >= k`` is ``form >= k * divisor``.
        """
        low, high = self.atom_interval(atom)
        if coefficient > 0:
            limit = room // coefficient
            news = atom.form.shifted(1 - (limit + 1) * atom.divisor) if limit < high else None
        else:
            limit = -(room // -coefficient)
            bound = limit * atom.divisor
            news = atom.form.scaled(-1).shifted(bound) if limit > low else None
        if news is None or any(news.key == known.key for known in self.constraints):
            return False
        self.constraints.append(news)
        return True

    def _scaled(self, atom: Atom, coefficient: int) -> Interval:
        low, high = self.atom_interval(atom)
        a, b = coefficient * low, coefficient * high
        return (a, b) if a <= b else (b, a)

    # -- forms -----------------------------------------------------------------------------

    def form(self, expr: Expr) -> Form:
        """Return the linear form of ``expr``; raise Unsafe where a subexpression is not safe."""
        found = self._forms.get(expr)
        if found is not None:
            return found
        self.intervals.interval(expr)
        stack = [expr]
        while stack:
            node = stack[-1]
            if node in self._forms:
                stack.pop()
                continue
            if isinstance(node, Operation):
                pending = [n for n in (node.left, node.right) if n not in self._forms]
                if pending:
                    stack.extend(pending)
                    continue
            stack.pop()
            self._forms[node] = self._build(node)
        return self._forms[expr]

    def _build(self, node: Expr) -> Form:
        if type(node) is Constant:
            return Form(node.value, {})
        low, high = self.intervals.interval(node)
        if low == high:
            return Form(low, {})
        if type(node) is not Operation:
            return Form(0, {node: 1})
        left, right = self._forms[node.left], self._forms[node.right]
        built = self._combine(node, left, right)
        return built if built is not None else Form(0, {node: 1})

    def _combine(self, node: Operation, left: Form, right: Form) -> Form | None:
        op = node.op
        if op is Op.ADD:
            return left.add(right)
        if op is Op.SUB:
            return left.add(right, -1)
        if op is Op.MUL:
            if not right.terms:
                return left.scaled(right.const)
            return right.scaled(left.const) if not left.terms else None
        if right.terms:
            return self._compare(op, left, right) if op in _COMPARISONS else None
        value = right.const
        if op is Op.DIV:
            return (
                self.quotient(left, value) if value > 0 else self.quotient(left.scaled(-1), -value)
            )
        if op is Op.MOD:
            whole = (
                self.quotient(left, value) if value > 0 else self.quotient(left.scaled(-1), -value)
            )
            return left.add(whole, -value)
        if op is Op.SHR and self.form_interval(left)[0] >= 0:
            return self.quotient(left, 1 << value)
        if op is Op.SHL:
            low, high = self.intervals.interval(node.left)
            if low << value >= -(2**63) and high << value < 2**63:
                return left.scaled(1 << value)
        if op is Op.AND and value >= 0 and value & (value + 1) == 0:
            return left.add(self.quotient(left, value + 1), -(value + 1))
        return self._compare(op, left, right) if op in _COMPARISONS else None

    def _compare(self, op: Op, left: Form, right: Form) -> Form | None:
        held = self._decide(op, left.add(right, -1))
        return None if held is None else Form(int(held), {})

    def quotient(self, form: Form, divisor: int) -> Form:
        """Return the form of ``floor(form / divisor)`` for a positive divisor."""
        if divisor == 1:
            return form
        whole: dict[Atom, int] = {}
        rest: dict[Atom, int] = {}
        for atom, coefficient in form.terms.items():
            if coefficient % divisor == 0:
                whole[atom] = coefficient // divisor
            else:
                rest[atom] = coefficient
        base, low_const = divmod(form.const, divisor)
        part = Form(low_const, rest)
        low, high = self.form_interval(part) if rest else (low_const, low_const)
        if low // divisor == high // divisor:
            return Form(base + low // divisor, whole)
        return Form(base, whole).add(self._quotient_atom(part, divisor))

    def _quotient_atom(self, form: Form, divisor: int) -> Form:
        common = gcd(divisor, *form.terms.values())
        if common > 1:
            # floor((g f + r) / (g c)) = floor(f / c) for 0 <= r < g
            terms = {a: c // common for a, c in form.terms.items()}
            return self.quotient(Form(form.const // common, terms), divisor // common)
        split = self._without_low_part(form, divisor)
        if split is not None:
            return self.quotient(split[0], divisor // split[1])
        if len(form.terms) == 1:
            ((atom, coefficient),) = form.terms.items()
            if isinstance(atom, Quotient) and coefficient == 1:
                # floor((floor(L / c) + b) / d) = floor((L + b c) / (c d))
                inner = atom.form.shifted(form.const * atom.divisor)
                return self.quotient(inner, atom.divisor * divisor)
        key = (form.key, divisor)
        interned = self._quotients.get(key)
        if interned is None:
            interned = self._quotients[key] = Quotient(form, divisor)
        return Form(0, {interned: 1})

    def _without_low_part(self, form: Form, divisor: int) -> tuple[Form, int] | None:
        """Return f and g with ``floor(form / (g c)) = floor(f / c)``: form = g f + r, 0 <= r < g.

        The r may be a sum of terms, as the lower digits of a linear index are.
        """
        if len(form.terms) < 2:
            return None
        for unit in sorted({gcd(divisor, c) for c in form.terms.values()}, reverse=True):
            if unit == 1:
                break
            upper = {a: c // unit for a, c in form.terms.items() if c % unit == 0}
            lower = {a: c for a, c in form.terms.items() if c % unit}
            low, high = self.form_interval(Form(form.const % unit, lower))
            if low // unit == high // unit:
                return Form(form.const // unit + low // unit, upper), unit
        return None

    # -- ranges ----------------------------------------------------------------------------

    def atom_interval(self, atom: Any) -> Interval:
        """Return the inclusive range of an atom."""
        if isinstance(atom, Quotient):
            low, high = self.form_interval(atom.form)
            return (low // atom.divisor, high // atom.divisor)
        return self.intervals.interval(atom)

    def form_interval(self, form: Form, depth: int = 2) -> Interval:
        """Return a sound inclusive range of ``form``, constraints used."""
        if not form.terms:
            return (form.const, form.const)
        key = (form.key, depth)
        found = self._ranges.get(key)
        if found is None:
            self._keep_alive.append(form)
            found = self._ranges[key] = self._form_interval(form, depth)
        return found

    def _form_interval(self, form: Form, depth: int) -> Interval:
        low = high = form.const
        quotients = False
        for atom, coefficient in form.terms.items():
            quotients |= isinstance(atom, Quotient)
            a, b = self._scaled(atom, coefficient)
            low, high = low + a, high + b
        if quotients:
            system = DigitSystem((form,), self.atom_interval, self.form_interval)
            a, b = system.row_interval(0)
            low, high = max(low, a), min(high, b)
        if depth == 0:
            return (low, high)
        # A constraint may hold a quotient of this very form: it then sees the range without it.
        self._ranges[form.key, depth] = (low, high)
        if quotients and self.space.parameters:
            for atom, coefficient in form.terms.items():
                if isinstance(atom, Quotient):
                    a, b = self._multiplied_out(form, atom, coefficient, depth - 1)
                    low, high = max(low, a), min(high, b)
        for constraint in self.constraints:
            for scale in self._multipliers(form, constraint):
                # constraint <= 0: form <= form - scale * constraint for scale > 0, and dually.
                other = self.form_interval(form.add(constraint, -scale), depth - 1)
                if scale > 0:
                    high = min(high, other[1])
                else:
                    low = max(low, other[0])
        return (low, high)

    def _multiplied_out(self, form: Form, atom: Quotient, coefficient: int, depth: int) -> Interval:
        """Bound ``form`` by ``atom.form - (d - 1) <= d * atom <= atom.form``, d its divisor.

        So ``(n - 1) // 2 < n`` for every n >= 1, which the range of n alone does not say.
        """
        divisor = atom.divisor
        rest = form.add(Form(0, {atom: 1}), -coefficient).scaled(divisor)
        low, high = self.form_interval(rest.add(atom.form, coefficient), depth)
        slack = coefficient * (divisor - 1)
        low, high = (low - slack, high) if coefficient > 0 else (low, high - slack)
        return -(-low // divisor), high // divisor

    @staticmethod
    def _multipliers(form: Form, constraint: Form) -> set[int]:
        found = set()
        for atom, coefficient in constraint.terms.items():
            mine = form.terms.get(atom, 0)
            if mine and mine % coefficient == 0:
                found.add(mine // coefficient)
        return found

    def interval(self, expr: Expr) -> Interval:
        """Return the best known range of ``expr``; raise Unsafe where it is not safe."""
        low, high = self.intervals.interval(expr)
        if low == high:
            return (low, high)
        a, b = self.form_interval(self.form(expr))
        return (max(low, a), min(high, b))

    def decide(self, guard: Expr) -> bool | None:
        """Return whether ``guard`` holds (or fails) on every point; None if not decided."""
        if any(guard is known for known in self.guards):
            return True
        try:
            low, high = self.interval(guard)
        except Unsafe:
            return None
        if low > 0 or high < 0:
            return True
        if low == high == 0:
            return False
        if isinstance(guard, Operation) and guard.op in _COMPARISONS:
            difference = self.form(guard.left).add(self.form(guard.right), -1)
            return self._decide(guard.op, difference)
        if not isinstance(guard, Operation) or guard.op is not Op.AND:
            return None
        if not (self._boolean(guard.left) and self._boolean(guard.right)):
            return None
        sides = (self.decide(guard.left), self.decide(guard.right))
        return False if False in sides else (None if None in sides else True)

    def _decide(self, op: Op, difference: Form) -> bool | None:
        low, high = self.form_interval(difference)
        if op is Op.LT:
            return True if high < 0 else False if low >= 0 else None
        if op is Op.LE:
            return True if high <= 0 else False if low > 0 else None
        equal = False if low > 0 or high < 0 else True if low == high == 0 else None
        if op is Op.EQ or equal is None:
            return equal
        return not equal

    def is_constant(self, atom: Any) -> bool:
        """Whether an atom depends on parameters only (fixed during one use of the map)."""
        if isinstance(atom, Quotient):
            return all(self.is_constant(inner) for inner in atom.form.terms)
        if isinstance(atom, Coordinate):
            low, high = self.bounds[atom]
            return low == high
        return isinstance(atom, Expr) and not any(
            isinstance(leaf, Coordinate) for leaf in leaves((atom,))
        )


_COMPARISONS = (Op.LT, Op.LE, Op.EQ, Op.NE)
