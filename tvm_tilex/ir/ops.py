"""The closed sets of tile operations: elementwise operators, combiners and their policies."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from tvm_tilex.errors import DTypeError
from tvm_tilex.ir.types import DTYPES, DType

__all__ = ["Combiner", "ElementOp", "NanPolicy", "OpClass", "ReductionPolicy", "result_dtype"]


class OpClass(enum.Enum):
    """Which element types an operator takes and what it gives."""

    FLOAT = "float"  # float operands, same result
    NUMERIC = "numeric"  # float or integer operands, same result
    INTEGER = "integer"  # integer operands, same result
    LOGICAL = "logical"  # bool or integer operands, same result
    COMPARE = "compare"  # operands of one type, bool result
    SELECT = "select"  # bool, then two operands of one type
    CAST = "cast"  # any operand; the result type is an attribute


@dataclass(frozen=True)
class _Info:
    arity: int
    op_class: OpClass
    transcendental: bool = False


class ElementOp(enum.Enum):
    """Elementwise operators. ``value`` is the name used in the text form.

    Division is true division on floats; ``floor_divide`` and ``floor_modulo`` round toward minus
    infinity on integers. ``maximum`` and ``minimum`` propagate NaN as NumPy's do.
    """

    exp = "exp"
    exp2 = "exp2"
    log = "log"
    log2 = "log2"
    sqrt = "sqrt"
    rsqrt = "rsqrt"
    tanh = "tanh"
    sigmoid = "sigmoid"
    erf = "erf"
    floor = "floor"
    ceil = "ceil"
    absolute = "absolute"
    negative = "negative"
    add = "add"
    subtract = "subtract"
    multiply = "multiply"
    divide = "divide"
    floor_divide = "floor_divide"
    floor_modulo = "floor_modulo"
    power = "power"
    maximum = "maximum"
    minimum = "minimum"
    equal = "equal"
    not_equal = "not_equal"
    less = "less"
    less_equal = "less_equal"
    greater = "greater"
    greater_equal = "greater_equal"
    bitwise_and = "bitwise_and"
    bitwise_or = "bitwise_or"
    bitwise_xor = "bitwise_xor"
    invert = "invert"
    where = "where"
    fma = "fma"
    cast = "cast"

    @property
    def arity(self) -> int:
        """Number of operands."""
        return _INFO[self].arity

    @property
    def op_class(self) -> OpClass:
        """Which element types the operator takes."""
        return _INFO[self].op_class

    @property
    def transcendental(self) -> bool:
        """Whether recomputing the operator is expensive (EXPENSIVE_ONLY keeps its shared tiles)."""
        return _INFO[self].transcendental


_INFO: dict[ElementOp, _Info] = {}
for _name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf"):
    _INFO[ElementOp(_name)] = _Info(1, OpClass.FLOAT, transcendental=True)
for _name in ("floor", "ceil"):
    _INFO[ElementOp(_name)] = _Info(1, OpClass.FLOAT)
for _name in ("absolute", "negative"):
    _INFO[ElementOp(_name)] = _Info(1, OpClass.NUMERIC)
for _name in ("add", "subtract", "multiply", "maximum", "minimum"):
    _INFO[ElementOp(_name)] = _Info(2, OpClass.NUMERIC)
_INFO[ElementOp.divide] = _Info(2, OpClass.FLOAT)
_INFO[ElementOp.power] = _Info(2, OpClass.FLOAT, transcendental=True)
for _name in ("floor_divide", "floor_modulo"):
    _INFO[ElementOp(_name)] = _Info(2, OpClass.INTEGER)
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    _INFO[ElementOp(_name)] = _Info(2, OpClass.COMPARE)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _INFO[ElementOp(_name)] = _Info(2, OpClass.LOGICAL)
_INFO[ElementOp.invert] = _Info(1, OpClass.LOGICAL)
_INFO[ElementOp.where] = _Info(3, OpClass.SELECT)
_INFO[ElementOp.fma] = _Info(3, OpClass.FLOAT)
_INFO[ElementOp.cast] = _Info(1, OpClass.CAST)


def result_dtype(op: ElementOp, operands: tuple[DType, ...]) -> DType:
    """Element type of ``op`` applied to operands of these types (not defined for ``cast``).

    Raises
    ------
    DTypeError
        If the operands differ in type or the operator does not take their type.
    """
    boolean = DTYPES["bool"]
    if op.op_class is OpClass.SELECT:
        if operands[0] != boolean:
            raise DTypeError(f"where: the condition is {operands[0]}, not bool")
        operands = operands[1:]
    first = operands[0]
    if any(dtype != first for dtype in operands):
        raise DTypeError(f"{op.value}: operands are {', '.join(map(str, operands))}; cast one")
    allowed = {
        OpClass.FLOAT: first.is_float,
        OpClass.NUMERIC: first.is_float or first.is_integer,
        OpClass.INTEGER: first.is_integer,
        OpClass.LOGICAL: first == boolean or first.is_integer,
        OpClass.COMPARE: True,
        OpClass.SELECT: True,
    }[op.op_class]
    if not allowed:
        raise DTypeError(f"{op.value}: takes {op.op_class.value} operands, not {first}")
    return boolean if op.op_class is OpClass.COMPARE else first


class Combiner(enum.Enum):
    """The associative, commutative operation of a reduction, with its exact identity."""

    add = "add"
    maximum = "maximum"
    minimum = "minimum"

    def identity(self, dtype: DType) -> float | int:
        """+0, -inf or +inf on floats; 0 or the extreme value on integers (spec section 3)."""
        if self is Combiner.add:
            return 0.0 if dtype.is_float else 0
        if dtype.is_float:
            return -math.inf if self is Combiner.maximum else math.inf
        low = 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
        high = (1 << (dtype.bits if dtype.kind == "uint" else dtype.bits - 1)) - 1
        return low if self is Combiner.maximum else high


class ReductionPolicy(enum.Enum):
    """Which orders a reduction of x[0..N) may be computed in. ``z`` is the identity.

    ``unordered_tree``
        Any order and any association.
    ``rescaled_tree``
        Of a float sum: what ``unordered_tree`` permits, and besides, where the elements are
        exponentials f(e[i] - c), that a part of them is summed relative to its own maximum m:
        f(m - c) * (f(e[a] - m) + f(e[b] - m) + ...), which is no reordering (a few units in the
        last place more; no overflow or underflow that the sum itself does not have).
    ``ordered_tree``
        The fixed tree: level l combines t[i] with t[i + 2**l] for every i that is a multiple of
        2**(l+1) with i + 2**l < N, starting from t = x; the result is t[0]. Equivalently, split
        at the largest power of two below the length. ``z`` does not take part (N >= 1).
    ``fold_left``
        op(... op(op(z, x[0]), x[1]) ..., x[N-1]).
    ``fold_right``
        op(x[0], op(x[1], ... op(x[N-1], z) ...)).
    """

    unordered_tree = "unordered_tree"
    rescaled_tree = "rescaled_tree"
    ordered_tree = "ordered_tree"
    fold_left = "fold_left"
    fold_right = "fold_right"

    @property
    def ordered(self) -> bool:
        """Whether the result is fixed bit for bit by the policy."""
        return self not in (ReductionPolicy.unordered_tree, ReductionPolicy.rescaled_tree)


class NanPolicy(enum.Enum):
    """What a NaN contribution does to ``maximum`` and ``minimum``.

    ``target``
        ``propagate`` on LLVM and CUDA, ``unspecified`` on Metal (whose default is fast math).
    ``propagate``
        The result is NaN wherever the NaN stands; on Metal this requires precise math.
    ``unspecified``
        The result of a row that holds a NaN may be anything.
    """

    target = "target"
    propagate = "propagate"
    unspecified = "unspecified"
