"""Reads the body of a group's root loop as phases; trusts no marker.

    Allocate    a tile of the group, or a scalar of one thread
    Elements    perfectly nested loops over one store: independent elements
    Outputs     a nest of outputs around a canonical reduction and the store of its result
    WholeOutputs the same nest where the order is fixed or the body is not canonical: one thread
                computes an output whole
    Product     a perfect nest that adds products to the element of a tile
    Steps       a serial loop over phases

Anything else is declined with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm_tilex.analysis.purity import impure_call, loads, mentions
from tvm_tilex.analysis.reduction import ReductionUpdate, match_update
from tvm_tilex.analysis.state import is_identity
from tvm_tilex.analysis.statements import Decline, other_statement
from tvm_tilex.analysis.structure import Allocate, Domain, statements_of
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import TensorLoad, Var, structural_equal, structural_walk, tirx

__all__ = [
    "Elements",
    "GroupProgram",
    "Outputs",
    "Phase",
    "Product",
    "Steps",
    "WholeOutputs",
    "permits_any_order",
    "permits_collective",
    "phases",
    "read_group_program",
]

Elements = Domain


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs over ``loops``, each a recognized reduction whose result ``publish`` stores."""

    loops: tuple[Any, ...]
    update: ReductionUpdate
    initial: Any
    publish: Any

    @property
    def count(self) -> int:
        """Number of outputs."""
        return math.prod(int(loop.extent.value) for loop in self.loops)


@dataclass(frozen=True, eq=False)
class WholeOutputs:
    """Outputs over ``loops`` whose ``body`` one thread runs; ``reason`` says why."""

    loops: tuple[Any, ...]
    body: Any
    publish: Any
    reason: str

    @property
    def count(self) -> int:
        """Number of outputs."""
        return math.prod(int(loop.extent.value) for loop in self.loops)


@dataclass(frozen=True, eq=False)
class Product:
    """``tile[kept loops] = tile[kept loops] + a * b`` over ``kept`` and ``contracted`` loops."""

    kept: tuple[Any, ...]
    contracted: Any
    store: Any
    a: Any
    b: Any

    @property
    def count(self) -> int:
        """Elements of the result."""
        return math.prod(int(loop.extent.value) for loop in self.kept)

    @property
    def depth(self) -> int:
        """Products summed for each element."""
        return 1 if self.contracted is None else int(self.contracted.extent.value)


@dataclass(frozen=True, eq=False)
class Steps:
    """A serial loop around phases."""

    loop: Any
    body: tuple[Phase, ...]


Phase = Allocate | Elements | Outputs | WholeOutputs | Product | Steps


@dataclass(frozen=True, eq=False)
class GroupProgram:
    """A root loop whose programs are cooperative groups."""

    root: Any
    body: tuple[Phase, ...]

    @property
    def programs(self) -> int:
        """Number of groups."""
        return int(self.root.extent.value)

    @property
    def index_dtype(self) -> str:
        """Integer type of the program coordinate."""
        return str(self.root.loop_var.ty.dtype)


def phases(body: tuple[Phase, ...]) -> Iterator[Phase]:
    """Every phase in order, those of a loop after the loop itself."""
    for phase in body:
        yield phase
        if isinstance(phase, Steps):
            yield from phases(phase.body)


def read_group_program(root: Any) -> GroupProgram | Decline:
    """Read a marked root loop, or say what stands there that no group holds."""
    if not isinstance(root.extent, tirx.IntImm):
        return Decline("execution nesting", f"the number of programs {root.extent} is not static")
    body = _read(root.body)
    return body if isinstance(body, Decline) else GroupProgram(root, body)


def permits_any_order(update: ReductionUpdate) -> str | None:
    """Why the elements of a recognized reduction have an order, or None where they have none."""
    if not update.reorders:
        return f"the policy is {update.policy}"
    if update.dtype != "float32":
        return f"the state is {update.dtype}, not float32"
    return None


def permits_collective(update: ReductionUpdate, kind: str) -> str | None:
    """Why a recognized reduction may not be combined across lanes, or None where it may."""
    ordered = permits_any_order(update)
    if ordered is not None:
        return ordered
    if kind == "metal" and update.operator.endswith("_propagate"):
        return "it propagates NaN, and Metal's collectives do not"
    return None


def _read(body: Any) -> tuple[Phase, ...] | Decline:
    found: list[Phase] = []
    for statement in statements_of(body):
        phase = _phase(statement)
        if isinstance(phase, Decline):
            return phase
        found.append(phase)
    return tuple(found)


def _phase(statement: Any) -> Phase | Decline:
    if isinstance(statement, tirx.AllocBuffer):
        return Allocate(statement)
    if isinstance(statement, (tirx.BufferStore, tirx.IfThenElse)):
        return _pure(_elements(statement))
    if not isinstance(statement, tirx.For):
        return other_statement(statement)
    if statement.kind != tirx.ForKind.SERIAL:
        return Decline("execution nesting", f"loop {statement.loop_var.name} is not serial")
    if attrs.annotation(statement, attrs.PIPELINE) is not None:
        body = _read(statement.body)
        return body if isinstance(body, Decline) else Steps(statement, body)
    if attrs.annotation(statement, attrs.OUTPUTS) is not None:
        return _outputs(statement)
    if attrs.annotation(statement, attrs.DOT) is not None:
        return _product(statement)
    return _pure(_elements(statement))


def _pure(domain: Domain | Decline) -> Domain | Decline:
    if isinstance(domain, Decline):
        return domain
    parts = [domain.store.value, *domain.store.indices]
    parts += [] if domain.condition is None else [domain.condition]
    for part in parts:
        impure = impure_call(part)
        if impure is not None:
            return Decline("contribution", f"{impure} is not known to be pure")
    return domain


def _elements(statement: Any) -> Domain | Decline:
    loops: list[Any] = []
    while isinstance(statement, tirx.For):
        nest = _nest(statement, 1)
        if isinstance(nest, Decline):
            return nest
        loops.append(statement)
        statement = nest[1]
    condition = None
    if isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
        condition, statement = statement.condition, statement.then_case
    if not isinstance(statement, tirx.BufferStore):
        return Decline("global effects", "an element phase is not one store")
    if condition is not None and statement.buffer.scope() != "global":
        return Decline("canonical state", f"{statement.buffer.name} is stored conditionally")
    return Domain(tuple(loops), statement, condition)


def _nest(loop: Any, depth: int) -> tuple[tuple[Any, ...], Any] | Decline:
    """The ``depth`` loops of a perfect nest, and what the innermost one holds."""
    loops: list[Any] = []
    body: Any = loop
    for _ in range(depth):
        static = isinstance(body, tirx.For) and isinstance(body.extent, tirx.IntImm)
        if not static or getattr(body.min, "value", 1) != 0 or body.kind != tirx.ForKind.SERIAL:
            return Decline("control", f"loop {loop.loop_var.name} is not a static nest of {depth}")
        loops.append(body)
        body = body.body
    return tuple(loops), body


def _outputs(loop: Any) -> Outputs | WholeOutputs | Decline:
    nest = _nest(loop, int(attrs.annotation(loop, attrs.OUTPUTS) or 0))
    if isinstance(nest, Decline):
        return nest
    loops, inner = nest
    body = statements_of(inner)
    publish = body[-1]
    if not isinstance(publish, tirx.BufferStore) or publish.buffer.scope() == "global":
        return Decline("global effects", "the outputs of a reduction are not stored to a tile")
    impure = _impure(inner)
    if impure is not None:
        return Decline("contribution", f"{impure} is not known to be pure")
    reason = "its body is not an initialization, one marked loop and a store"
    if len(body) == 3 and isinstance(body[0], tirx.BufferStore) and isinstance(body[1], tirx.For):
        marked = attrs.annotation(body[1], attrs.REDUCTION) is not None
        update = match_update(body[1]) if marked else None
        if isinstance(update, ReductionUpdate):
            problem = _not_canonical(update, body[0], publish)
            if problem is None:
                return Outputs(loops, update, body[0], publish)
            reason = problem
        elif isinstance(update, Decline):
            reason = update.reason
    return WholeOutputs(loops, inner, publish, reason)


def _not_canonical(update: ReductionUpdate, initial: Any, publish: Any) -> str | None:
    """Why a carry is not set to the identity, folded and then only read, or None."""
    carry = update.carry
    if not initial.buffer.same_as(carry):
        return f"{initial.buffer.name} is set before the loop over {carry.name}"
    if not is_identity(initial.value, update.combiner, update.dtype):
        return f"{carry.name} starts from {initial.value}, not from the identity"
    if not mentions(publish.value, carry):
        return f"the result is not read from {carry.name}"
    if any(mentions(index, carry) for index in publish.indices):
        return f"{carry.name} decides where the result is stored"
    return None


def _impure(node: Any) -> str | None:
    found: list[str] = []

    def visit(store: Any) -> None:
        called = impure_call(store.value)
        if called is not None:
            found.append(called)
        if store.buffer.scope() == "global":
            found.append(f"a store to {store.buffer.name}")

    structural_walk(node, (tirx.BufferStore, visit))
    return found[0] if found else None


def _product(loop: Any) -> Product | Decline:
    nest = _nest(loop, int(attrs.annotation(loop, attrs.DOT) or 0))
    if isinstance(nest, Decline):
        return nest
    loops, store = nest
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return Decline("control", "a product is not one sum")
    total, product = store.value.a, store.value.b
    same = isinstance(total, TensorLoad) and total.source.same_as(store.buffer)
    if not same or not all(map(structural_equal, total.indices, store.indices)):
        return Decline("canonical state", f"{store.buffer.name} is not its own accumulator")
    if not isinstance(product, tirx.Mul):
        return Decline("contribution", "what is added is not a product")
    factors = [_factor(part) for part in (product.a, product.b)]
    if any(factor is None for factor in factors):
        return Decline("contribution", "a factor is not an element of a tile")
    if any(factor.source.same_as(store.buffer) for factor in factors if factor is not None):
        return Decline("contribution", "the accumulator is a factor too")
    wide = [found for found in loops if int(found.extent.value) > 1]
    kept = tuple(found for found in wide if _indexes(store.indices, found.loop_var))
    rest = [found for found in wide if not any(found is other for other in kept)]
    if len(rest) > 1:
        return Decline("control", "more than one axis is contracted")
    return Product(kept, rest[0] if rest else None, store, factors[0], factors[1])


def _factor(value: Any) -> Any | None:
    while isinstance(value, tirx.Cast):
        value = value.value
    simple = isinstance(value, TensorLoad) and not any(loads(index) for index in value.indices)
    return value if simple else None


def _indexes(indices: Any, var: Any) -> bool:
    return any(isinstance(index, Var) and index.same_as(var) for index in indices)
