"""Structural GF(2) normal forms: ``f(x) = c XOR XOR(bit_i(x) * basis_i)``.

Derived from the DAG only, never from values at zero and unit points (a nonlinear expression can
agree there and still alias). Every subexpression must be safe on the actual domain; the linear
form then equals the function there, and extends it to the enclosing power-of-two box.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tilex.layout.context import Context, Unsafe
from tvm_tilex.layout.expr import Constant, Coordinate, Expr, Op, Operation

__all__ = ["BitForm", "BitMatrix", "bit_matrix"]

_MASK = 2**64 - 1
_LISTED = 4096


def _takes_low_bit(op: Op, right: BitForm) -> bool:
    """Whether ``x op right`` is bit 0 of x: ``x % 2`` or ``x & 1``."""
    return not right.basis and right.const == {Op.MOD: 2, Op.AND: 1}.get(op)


@dataclass(frozen=True)
class BitForm:
    """A 64-bit pattern as an XOR-affine function of the input bits; ``basis`` is sparse."""

    const: int
    basis: tuple[tuple[int, int], ...]  # (input bit number, pattern), ascending, nonzero

    @property
    def support(self) -> int:
        """The bits that can be set at some point of the enclosing box (a superset)."""
        bits = self.const
        for _, pattern in self.basis:
            bits |= pattern
        return bits

    def map(self, const: int, patterns: list[int]) -> BitForm:
        """Return the form with new patterns for the same inputs, zeros dropped."""
        kept = tuple((i, p) for (i, _), p in zip(self.basis, patterns, strict=True) if p)
        return BitForm(const, kept)

    def shifted(self, left: int) -> BitForm:
        """Return the pattern shifted left (negative: logically right), high bits dropped."""
        if left >= 0:
            moved = [p << left & _MASK for _, p in self.basis]
            return self.map(self.const << left & _MASK, moved)
        return self.map(self.const >> -left, [p >> -left for _, p in self.basis])

    def masked(self, mask: int) -> BitForm:
        """Return the pattern AND a constant mask."""
        return self.map(self.const & mask, [p & mask for _, p in self.basis])

    def xor(self, other: BitForm) -> BitForm:
        """Return the XOR of two forms."""
        terms = dict(self.basis)
        for i, p in other.basis:
            terms[i] = terms.get(i, 0) ^ p
        kept = tuple(sorted((i, p) for i, p in terms.items() if p))
        return BitForm(self.const ^ other.const, kept)


class _Derivation:
    """Bottom-up derivation over one context; None where an expression is not proved linear."""

    def __init__(self, context: Context, first_bit: dict[str, tuple[int, int]]) -> None:
        self._context = context
        self._first_bit = first_bit
        self._memo: dict[Expr, BitForm | None] = {}
        self._low: dict[Expr, BitForm | None] = {}

    def form(self, root: Expr) -> BitForm | None:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self._memo:
                stack.pop()
                continue
            if isinstance(node, Operation):
                pending = [n for n in (node.left, node.right) if n not in self._memo]
                if pending:
                    stack.extend(pending)
                    continue
            stack.pop()
            self._memo[node] = self._derive(node)
            self._low[node] = self._low_bit(node)
        return self._memo[root]

    def _derive(self, node: Expr) -> BitForm | None:
        if isinstance(node, Constant):
            return BitForm(node.value & _MASK, ())
        if isinstance(node, Coordinate):
            first, bits = self._first_bit[node.name]
            return BitForm(0, tuple((first + k, 1 << k) for k in range(bits)))
        if not isinstance(node, Operation):
            return None
        low, high = self._context.intervals.interval(node)
        if low == high:
            return BitForm(low & _MASK, ())
        left, right = self._memo[node.left], self._memo[node.right]
        if left is None and right is not None and _takes_low_bit(node.op, right):
            return self._low[node.left]
        if left is None or right is None:
            return None
        return self._combine(node, left, right)

    def _low_bit(self, node: Expr) -> BitForm | None:
        """Return bit 0, also of a sum whose carries are not linear: no carry reaches bit 0."""
        found = self._memo[node]
        if found is not None:
            return found.masked(1)
        if not isinstance(node, Operation) or node.op not in (Op.ADD, Op.SUB):
            return None
        left, right = self._low[node.left], self._low[node.right]
        return None if left is None or right is None else left.xor(right)

    def _combine(self, node: Operation, left: BitForm, right: BitForm) -> BitForm | None:
        op = node.op
        if op is Op.XOR:
            return left.xor(right)
        if op is Op.ADD:
            # Carry-free: no bit can be set in both.
            return left.xor(right) if not left.support & right.support else None
        if op is Op.SUB:
            # Borrow-free: the minuend is constant and covers the subtrahend.
            covered = not left.basis and not right.support & ~left.const
            return left.xor(right) if covered else None
        if op in (Op.AND, Op.MUL) and not left.basis:
            left, right = right, left
        if op is Op.MUL:
            return self._product(left, right)
        if op is Op.AND and not left.support & right.support:
            return BitForm(0, ())
        if right.basis:
            return self._mirrored(node, left, right)
        return self._by_constant(node, left, right.const)

    def _product(self, left: BitForm, right: BitForm) -> BitForm | None:
        if right.basis:
            return None
        factor = right.const
        if factor & (factor - 1) == 0 and factor:
            # The exact product fits signed 64 bits (checked), so no high bit is lost.
            return left.shifted(factor.bit_length() - 1)
        if left.support == 1:
            return left.map(factor * left.const, [factor for _ in left.basis])
        return None

    def _by_constant(self, node: Operation, left: BitForm, value: int) -> BitForm | None:
        op = node.op
        power = value & (value - 1) == 0 and 0 < value < 1 << 63
        if op is Op.AND:
            return left.masked(value)
        if op is Op.SHL:
            return left.shifted(value)
        if op is Op.SHR:
            return left.shifted(-value)
        if op is Op.DIV and power and not left.support >> 63:
            return left.shifted(1 - value.bit_length())
        if op is Op.MOD and power and not left.support >> 63:
            return left.masked(value - 1)
        return _comparison(op, left, value)

    def _mirrored(self, node: Operation, left: BitForm, right: BitForm) -> BitForm | None:
        """Handle ``constant < form`` and ``constant <= form``."""
        if left.basis or left.const >> 63:
            return None
        if node.op is Op.LT:
            return _not(_comparison(Op.LE, right, left.const))
        if node.op is Op.LE:
            return _not(_comparison(Op.LT, right, left.const))
        return _comparison(node.op, right, left.const) if node.op in (Op.EQ, Op.NE) else None


def _not(form: BitForm | None) -> BitForm | None:
    return None if form is None else BitForm(form.const ^ 1, form.basis)


def _comparison(op: Op, form: BitForm, value: int) -> BitForm | None:
    """Return a comparison with a constant as one bit of ``form``, where it is one."""
    support = form.support
    if support >> 63 or value >> 63:
        return None
    if op is Op.LE:
        return _comparison(Op.LT, form, value + 1)
    if op is Op.LT:
        power = value > 0 and value & (value - 1) == 0
        if not power or support >= 2 * value:
            return None
        return _not(form.shifted(1 - value.bit_length()))
    if op not in (Op.EQ, Op.NE) or support & (support - 1) or not support:
        return None
    bit = form.shifted(1 - support.bit_length())
    equal = _not(bit) if value == 0 else bit if value == support else None
    return equal if op is Op.EQ else _not(equal)


class BitMatrix:
    """The matrix of a whole map: one wide column per input bit, 64 bits per output axis."""

    def __init__(self, forms: tuple[BitForm, ...], inputs: list[tuple[int, int]]) -> None:
        self.forms = forms
        self.inputs = inputs  # (axis number, bit)
        self.columns = [0] * len(inputs)
        for row, form in enumerate(forms):
            for i, pattern in form.basis:
                self.columns[i] |= pattern << (64 * row)
        self._reduce()

    def _reduce(self) -> None:
        pivots: dict[int, tuple[int, int]] = {}  # leading bit -> (vector, combination)
        self.kernel: int | None = None
        for i, column in enumerate(self.columns):
            vector, combination = column, 1 << i
            while vector:
                top = vector.bit_length()
                if top not in pivots:
                    pivots[top] = (vector, combination)
                    break
                vector ^= pivots[top][0]
                combination ^= pivots[top][1]
            if not vector and self.kernel is None:
                self.kernel = combination
        self.rank = len(pivots)

    def spans(self, axis: int, extent: int) -> bool:
        """Whether ``[0, extent)`` of one axis reaches all that its whole bits reach.

        Then a ragged axis counts like a full one: the image is the span of the columns.
        """
        columns = [c for c, (a, _) in zip(self.columns, self.inputs, strict=True) if a == axis]
        if extent == 1 << len(columns):
            return True
        if extent > _LISTED:
            return False
        reached = [0]
        for x in range(1, extent):
            reached.append(reached[x & (x - 1)] ^ columns[(x & -x).bit_length() - 1])
        whole = {0}
        for column in columns:
            whole |= {value ^ column for value in whole}
        return set(reached) == whole

    def maximum(self, row: int) -> tuple[int, list[int]]:
        """Return the greatest pattern of output ``row`` on the enclosing box, and a point there.

        Exact: an XOR basis, so bits that cannot occur together are not combined.
        """
        pivots: dict[int, tuple[int, int]] = {}
        for i, pattern in self.forms[row].basis:
            vector, combination = pattern, 1 << i
            while vector:
                top = vector.bit_length()
                if top not in pivots:
                    pivots[top] = (vector, combination)
                    break
                vector ^= pivots[top][0]
                combination ^= pivots[top][1]
        best, chosen = self.forms[row].const, 0
        for top in sorted(pivots, reverse=True):
            if not best >> (top - 1) & 1:
                best ^= pivots[top][0]
                chosen ^= pivots[top][1]
        return best, self.point(chosen)

    def point(self, combination: int) -> list[int]:
        """Return the coordinates whose bits are ``combination``."""
        axes = max((a for a, _ in self.inputs), default=-1) + 1
        coordinates = [0] * axes
        for i, (axis, bit) in enumerate(self.inputs):
            if combination >> i & 1:
                coordinates[axis] |= 1 << bit
        return coordinates


def bit_matrix(context: Context, outputs: tuple[Expr, ...]) -> BitMatrix | None:
    """Return the GF(2) matrix of ``outputs`` on a static zero-based box, or None."""
    space = context.space
    if any(a.lower or not isinstance(a.extent, int) for a in space.axes):
        return None
    inputs: list[tuple[int, int]] = []
    first: dict[str, tuple[int, int]] = {}
    for number, axis in enumerate(space.axes):
        bits = max(axis.bounds()[1], 0).bit_length()
        first[axis.name] = (len(inputs), bits)
        inputs.extend((number, k) for k in range(bits))
    derivation = _Derivation(context, first)
    forms: list[BitForm] = []
    for output in outputs:
        try:
            context.intervals.interval(output)
        except Unsafe:
            return None
        form = derivation.form(output)
        if form is None:
            return None
        forms.append(form)
    return BitMatrix(tuple(forms), inputs)
