"""Expressions: type rules and closures that evaluate all lanes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.calls import CallCompiler
from tvm_tilex.sim.errors import MslTypeError, UnsupportedConstructError
from tvm_tilex.sim.memory import Pointer
from tvm_tilex.sim.operands import (
    ComponentPlace,
    Expr,
    MemoryPlace,
    Place,
    Run,
    VariablePlace,
    access_of,
    pick,
)
from tvm_tilex.sim.operators import RELATIONS, binary_run, convert_value
from tvm_tilex.sim.scope import Symbol, Symbols, resolve
from tvm_tilex.sim.types import (
    BOOL,
    INT,
    ArrayType,
    MatrixType,
    PointerType,
    ScalarType,
    StructType,
    Type,
    VectorType,
    arithmetic_type,
    named_type,
    promoted,
)
from tvm_tilex.sim.values import Tainted, apply, merge

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["ExpressionCompiler"]

_SWIZZLES = ({c: k for k, c in enumerate("xyzw")}, {c: k for k, c in enumerate("rgba")})
_INTEGER_ONLY = ("%", "&", "|", "^", "<<", ">>")
_CONSTANTS = {"INFINITY": np.inf, "NAN": np.nan, "HUGE_VALF": np.inf, "M_PI_F": np.pi}


class ExpressionCompiler(CallCompiler):
    """Compiles expressions of one kernel.

    Attributes
    ----------
    stored
        Names of the buffer parameters that some store may reach.
    moved_pointers
        Whether a pointer variable is assigned after its declaration, so that ``stored`` may miss
        a buffer.
    """

    def __init__(self, symbols: Symbols, records: dict[str, StructType]) -> None:
        self.symbols, self.records = symbols, records
        self.stored: set[str] = set()
        self.moved_pointers = False
        self.sites = 0

    def compile(self, node: ast.Node) -> Expr:
        """Return the compiled expression."""
        method = getattr(self, f"_{type(node).__name__.lower()}")
        return method(node)

    # Leaves.

    def _literal(self, node: ast.Literal) -> Expr:
        kind = named_type(node.type_name)
        assert isinstance(kind, ScalarType)
        return _constant(kind, kind.dtype.type(node.value))

    def _name(self, node: ast.Name) -> Expr:
        symbol = self.symbols.find(node.name)
        if symbol is not None:
            return self._symbol(symbol, node)
        if node.name in _CONSTANTS:
            kind = named_type("float")
            assert isinstance(kind, ScalarType)
            return _constant(kind, kind.dtype.type(_CONSTANTS[node.name]))
        raise MslTypeError(f"{node.name} is not declared", node.line, node.column, "name")

    def _symbol(self, symbol: Symbol, node: ast.Node) -> Expr:
        slot, kind = symbol.slot, symbol.type

        def value(machine: Machine) -> Any:
            return machine.frame[slot]

        if isinstance(kind, ArrayType):
            if isinstance(kind.element, MatrixType):
                return Expr(kind, value, slot=slot)

            def start(machine: Machine) -> Any:
                return Pointer(machine.frame[slot], 0)

            pointer = PointerType(kind.element, symbol.space, symbol.const)
            return Expr(pointer, start, roots=symbol.roots)
        if isinstance(kind, MatrixType):
            return Expr(kind, lambda machine: (machine.frame[slot], np.int32(0)), slot=slot)
        if isinstance(kind, StructType):
            return Expr(kind, value, roots=symbol.roots)
        if symbol.builtin:
            return Expr(kind, value, pure=True)
        place = VariablePlace(slot, symbol.const)
        return Expr(kind, value, pure=True, place=place, roots=symbol.roots, slot=slot)

    # Conversions.

    def convert(self, value: Expr, target: Type, node: ast.Node, *, explicit: bool = False) -> Expr:
        """Return the expression converted to ``target`` by the rules of an initialization.

        Raises
        ------
        MslTypeError
            Where the language has no such conversion.
        """
        source = value.type
        if source == target:
            return value
        if isinstance(source, ScalarType) and isinstance(target, ScalarType):
            if {source.name, target.name} == {"half", "bfloat"} and not explicit:
                self._no_conversion(source, target, node)
            return self._map(value, target, source, target)
        if isinstance(source, ScalarType) and isinstance(target, VectorType):
            part = self.convert(value, target.element, node, explicit=explicit)
            run, lanes = part.run, target.lanes

            def splat(machine: Machine) -> Any:
                return (run(machine),) * lanes

            return Expr(target, splat, pure=part.pure)
        if isinstance(source, VectorType) and isinstance(target, VectorType):
            if source.lanes != target.lanes or not (explicit or source.element == target.element):
                self._no_conversion(source, target, node)
            return self._map(value, target, source.element, target.element)
        if isinstance(source, PointerType) and isinstance(target, PointerType):
            return self._convert_pointer(value, source, target, node, explicit)
        self._no_conversion(source, target, node)
        raise AssertionError

    def _map(self, value: Expr, target: Type, source: ScalarType, element: ScalarType) -> Expr:
        if value.constant is not None and isinstance(target, ScalarType):
            return _constant(target, convert_value(source, element, value.constant))
        run = value.run
        if source == element:
            return Expr(target, run, pure=value.pure)
        return Expr(
            target, lambda machine: convert_value(source, element, run(machine)), pure=value.pure
        )

    def _convert_pointer(
        self, value: Expr, source: PointerType, target: PointerType, node: ast.Node, explicit: bool
    ) -> Expr:
        same = source.pointee == target.pointee or (str(target.pointee) == "void")
        if source.space != target.space:
            raise MslTypeError(
                f"a {source.space} pointer does not convert to the {target.space} address space",
                node.line,
                node.column,
                "address space conversion",
            )
        if not explicit and (not same or (source.const and not target.const)):
            self._no_conversion(source, target, node)
        return Expr(target, value.run, roots=value.roots)

    def _no_conversion(self, source: Type, target: Type, node: ast.Node) -> None:
        raise MslTypeError(
            f"no conversion from {source} to {target}", node.line, node.column, "conversion"
        )

    def condition(self, node: ast.Node, what: str) -> Run:
        """Return the closure of a condition: a defined boolean component."""
        return self.truth(self.compile(node), node, what)

    def truth(self, value: Expr, node: ast.Node, what: str) -> Run:
        """Return the closure of a compiled expression as a defined boolean component."""
        run = self.convert(value, BOOL, node).run

        def check(machine: Machine) -> Any:
            found = run(machine)
            if found.__class__ is Tainted:
                return machine.defined(found, node, what)
            return found

        return check

    def _cast(self, node: ast.Cast) -> Expr:
        target = self.written_type(node.type)
        value = self.compile(node.operand)
        if node.bits:
            return self._as_type(value, target, node)
        return self.convert(value, target, node, explicit=True)

    def written_type(self, name: ast.TypeName) -> Type:
        """Return the type of a written type name, its pointer included."""
        kind = resolve(name, self.records)
        if not name.indirection:
            return kind
        space = name.space or "thread"
        return PointerType(kind, space, name.const or space == "constant")  # type: ignore[arg-type]

    def _as_type(self, value: Expr, target: Type, node: ast.Node) -> Expr:
        if not isinstance(value.type, ScalarType | VectorType) or not isinstance(
            target, ScalarType | VectorType
        ):
            self._no_conversion(value.type, target, node)
        source: Any = value.type
        wanted: Any = target
        if source.size != wanted.size:
            raise MslTypeError(
                f"as_type<{target}> of {source}: {source.size} and {wanted.size} bytes",
                node.line,
                node.column,
                "as_type",
            )
        run, dtype = value.run, getattr(wanted, "element", wanted).dtype
        if isinstance(source, ScalarType) and isinstance(wanted, ScalarType):
            return Expr(
                target,
                lambda machine: apply(lambda x: np.asarray(x).view(dtype)[()], run(machine)),
                pure=value.pure,
            )

        def bits(machine: Machine) -> Any:
            found = machine.all_defined(run(machine), node, "as_type")
            return _rebits(found, dtype, isinstance(wanted, VectorType))

        return Expr(target, bits)

    def _construct(self, node: ast.Construct) -> Expr:
        target = resolve(node.type, self.records)
        arguments = [self.compile(a) for a in node.arguments]
        if isinstance(target, ScalarType) and len(arguments) == 1:
            return self.convert(arguments[0], target, node, explicit=True)
        if not isinstance(target, VectorType) or not arguments:
            raise UnsupportedConstructError(
                f"construction of {target} is not supported", node.line, node.column, "constructor"
            )
        if len(arguments) == 1:
            return self.convert(arguments[0], target, node, explicit=True)
        runs: list[Run] = []
        count = 0
        for argument in arguments:
            width = argument.type.lanes if isinstance(argument.type, VectorType) else 1
            kind: Type = target.element
            if width > 1:
                kind = VectorType(target.element, width)
            runs.append(self.convert(argument, kind, node, explicit=True).run)
            count += width
        if count != target.lanes:
            raise MslTypeError(
                f"{target} of {count} components", node.line, node.column, "constructor"
            )

        def build(machine: Machine) -> Any:
            parts: list[Any] = []
            for run in runs:
                found = run(machine)
                parts.extend(found if isinstance(found, tuple) else (found,))
            return tuple(parts)

        return Expr(target, build, pure=all(a.pure for a in arguments))

    # Operators.

    def _binary(self, node: ast.Binary) -> Expr:
        return self.binary(node, node.operator, self.compile(node.left), self.compile(node.right))

    def binary(self, node: ast.Node, operator: str, left: Expr, right: Expr) -> Expr:
        """Return ``left operator right`` after the usual arithmetic conversions."""
        if isinstance(left.type, PointerType) and operator in ("+", "-"):
            return self._pointer_sum(node, operator, left, right)
        if isinstance(right.type, PointerType) and operator == "+":
            return self._pointer_sum(node, operator, right, left)
        element, lanes = self._common(node, operator, left, right)
        if operator in _INTEGER_ONLY and element.kind == "f":
            raise MslTypeError(
                f"operator {operator} on {element}", node.line, node.column, f"operator {operator}"
            )
        kind: Type = element if lanes == 1 else VectorType(element, lanes)
        a = self.convert(left, kind, node, explicit=True)
        if operator in ("<<", ">>"):
            amount = promoted(_element(right.type))
            right_kind: Type = amount if lanes == 1 else VectorType(amount, lanes)
            b = self.convert(right, right_kind, node, explicit=True)
        else:
            b = self.convert(right, kind, node, explicit=True)
        result: Type = kind
        if operator in RELATIONS:
            result = BOOL if lanes == 1 else VectorType(BOOL, lanes)
        run = binary_run(operator, element, a.run, b.run, node)
        faulting = operator in ("<<", ">>") or (operator in "/%" and element.kind != "f")
        return Expr(result, run, pure=a.pure and b.pure and not faulting)

    def _common(
        self, node: ast.Node, operator: str, left: Expr, right: Expr
    ) -> tuple[ScalarType, int]:
        if not all(isinstance(e.type, ScalarType | VectorType) for e in (left, right)):
            raise MslTypeError(
                f"operator {operator} on {left.type} and {right.type}",
                node.line,
                node.column,
                f"operator {operator}",
            )
        one, two = _element(left.type), _element(right.type)
        lanes = [t.lanes for t in (left.type, right.type) if isinstance(t, VectorType)]
        if not lanes:
            if operator in ("<<", ">>"):
                return promoted(one), 1
            element = arithmetic_type(one, two)
        elif len(lanes) == 2:
            element = one if one == two and lanes[0] == lanes[1] else None
        else:
            element = one if isinstance(left.type, VectorType) else two
        if element is None:
            raise MslTypeError(
                f"operator {operator} on {left.type} and {right.type} has no common type",
                node.line,
                node.column,
                f"operator {operator}",
            )
        return element, lanes[0] if lanes else 1

    def _pointer_sum(self, node: ast.Node, operator: str, base: Expr, index: Expr) -> Expr:
        if not isinstance(index.type, ScalarType) or index.type.kind not in "iu":
            raise MslTypeError(
                f"operator {operator} on {base.type} and {index.type}",
                node.line,
                node.column,
                f"operator {operator}",
            )
        assert isinstance(base.type, PointerType)
        size = base.type.pointee.size
        return Expr(
            base.type,
            _offset_run(base.run, index.run, size if operator == "+" else -size, node),
            roots=base.roots,
        )

    def _logical(self, node: ast.Logical) -> Expr:
        first, value = self.compile(node.left), self.compile(node.right)
        left = self.truth(first, node.left, f"the left side of {node.operator}")
        right = self.truth(value, node.right, f"the right side of {node.operator}")
        wants = node.operator == "&&"
        combine = np.logical_and if wants else np.logical_or
        pure = value.pure

        def run(machine: Machine) -> Any:
            a = left(machine)
            machine.arithmetic["bool.logical"] += machine.active
            if np.ndim(a) == 0:
                return right(machine) if bool(a) == wants else a
            if pure:
                return combine(a, right(machine))
            outer = machine.mask
            then, other = machine.split(a)
            inner = then if wants else other
            if inner.count == 0:
                return a
            machine.set(inner)
            b = right(machine)
            machine.set(outer)
            return combine(a, b)

        return Expr(BOOL, run, pure=first.pure and pure)

    def _ternary(self, node: ast.Ternary) -> Expr:
        condition = self.condition(node.condition, "a condition")
        then, otherwise = self.compile(node.then), self.compile(node.otherwise)
        kind = self._branch_type(node, then, otherwise)
        then = self.convert(then, kind, node)
        otherwise = self.convert(otherwise, kind, node)
        first, second = then.run, otherwise.run

        def run(machine: Machine) -> Any:
            chosen = condition(machine)
            if np.ndim(chosen) == 0:
                return first(machine) if chosen else second(machine)
            outer = machine.mask
            inside, outside = machine.split(chosen)
            if outside.count == 0:
                return first(machine)
            if inside.count == 0:
                return second(machine)
            machine.set(inside)
            a = first(machine)
            machine.set(outside)
            b = second(machine)
            machine.set(outer)
            return merge(chosen, a, b)

        return Expr(kind, run)

    def _branch_type(self, node: ast.Node, then: Expr, otherwise: Expr) -> Type:
        if then.type == otherwise.type and isinstance(then.type, ScalarType | VectorType):
            return then.type
        if isinstance(then.type, ScalarType) and isinstance(otherwise.type, ScalarType):
            found = arithmetic_type(then.type, otherwise.type)
            if found is not None:
                return found
        raise MslTypeError(
            f"?: on {then.type} and {otherwise.type}", node.line, node.column, "conditional"
        )

    def _unary(self, node: ast.Unary) -> Expr:
        if node.operator == "*":
            return self.dereference(self.compile(node.operand), node, cast=True)
        if node.operator == "&":
            return self._address_of(node)
        value = self.compile(node.operand)
        if node.operator == "!":
            run = self.truth(value, node.operand, "an operand of !")
            return Expr(BOOL, lambda machine: np.logical_not(run(machine)), pure=value.pure)
        if not isinstance(value.type, ScalarType | VectorType):
            raise MslTypeError(
                f"operator {node.operator} on {value.type}", node.line, node.column, "operator"
            )
        element = promoted(_element(value.type))
        kind: Type = element
        if isinstance(value.type, VectorType):
            element, kind = value.type.element, value.type
        value = self.convert(value, kind, node)
        if node.operator == "~" and element.kind == "f":
            raise MslTypeError(f"operator ~ on {kind}", node.line, node.column, "operator ~")
        function = {"-": np.negative, "~": np.invert, "+": np.positive}[node.operator]
        if value.constant is not None:
            return _constant(element, function(value.constant))
        return Expr(kind, self.mapped(function, [value.run], f"{element}.negate"), pure=value.pure)

    def _step(self, node: ast.Step) -> Expr:
        target = self.compile(node.operand)
        one = _constant(INT, np.int32(1))
        place = self.place(target, node)
        kind = target.type
        old = Expr(kind, lambda machine: machine.frame[-1])
        if isinstance(kind, PointerType):
            new = self._pointer_sum(node, node.operator[0], old, one)
        else:
            new = self.convert(
                self.binary(node, node.operator[0], old, one), kind, node, explicit=True
            )
        return self._update(place, new.run, kind, prefix=node.prefix)

    def _update(self, place: Place, compute: Run, kind: Type, *, prefix: bool) -> Expr:
        """Return load, compute (which finds the old value on top of the frame), store."""

        def run(machine: Machine) -> Any:
            address = place.address(machine)
            old = place.load(machine, address)
            machine.frame.append(old)
            new = compute(machine)
            machine.frame.pop()
            place.store(machine, address, new)
            return new if prefix else old

        return Expr(kind, run)

    def _assign(self, node: ast.Assign) -> Expr:
        target = self.compile(node.target)
        value = self.compile(node.value)
        if isinstance(target.type, MatrixType):
            return self.assign_matrix(node, target, value)
        place = self.place(target, node)
        kind = target.type
        if not node.operator:
            run = self.convert(value, kind, node).run

            def assign(machine: Machine) -> Any:
                found = run(machine)
                place.store(machine, place.address(machine), found)
                return found

            return Expr(kind, assign)
        slot = value.run

        def right(machine: Machine) -> Any:
            # The operand may itself use the top of the frame; hide the old value meanwhile.
            old = machine.frame.pop()
            found = slot(machine)
            machine.frame.append(old)
            return found

        operand = Expr(value.type, right, pure=value.pure, constant=value.constant)
        old = Expr(kind, lambda machine: machine.frame[-1])
        new = self.binary(node, node.operator, old, operand)
        converted = self.convert(new, kind, node, explicit=True)
        return self._update(place, converted.run, kind, prefix=True)

    # Places.

    def place(self, target: Expr, node: ast.Node) -> Place:
        """Return the place of an assignable expression, and note which buffers it can reach."""
        if target.place is None:
            raise MslTypeError(
                f"an expression of type {target.type} is not assignable",
                node.line,
                node.column,
                "assignment",
            )
        self.stored.update(target.roots)
        if isinstance(target.type, PointerType):
            self.moved_pointers = True
        constant = target.place.const and isinstance(_root_place(target.place), VariablePlace)
        if constant:
            raise MslTypeError("assignment to a const variable", node.line, node.column, "const")
        return target.place

    def dereference(self, pointer: Expr, node: ast.Node, *, cast: bool = False) -> Expr:
        """Return what a pointer points at."""
        kind = pointer.type
        if not isinstance(kind, PointerType):
            raise MslTypeError(f"* of {kind}", node.line, node.column, "operator *")
        if isinstance(kind.pointee, StructType):
            return Expr(kind.pointee, pointer.run, roots=pointer.roots)
        if not isinstance(kind.pointee, ScalarType | VectorType):
            raise MslTypeError(f"access through {kind}", node.line, node.column, "operator *")
        access = access_of(kind.pointee, node, const=kind.const, cast=cast)
        place = MemoryPlace(pointer.run, access, node)

        def load(machine: Machine) -> Any:
            return place.load(machine, place.address(machine))

        return Expr(kind.pointee, load, place=place, roots=pointer.roots)

    def _address_of(self, node: ast.Unary) -> Expr:
        target = self.compile(node.operand)
        if not isinstance(target.place, MemoryPlace):
            raise UnsupportedConstructError(
                "the address of something outside memory is not supported",
                node.line,
                node.column,
                "address-of a local variable",
            )
        return Expr(target.memory, target.place.pointer, roots=target.roots)

    def _index(self, node: ast.Index) -> Expr:
        base, index = self.compile(node.base), self.compile(node.index)
        if not isinstance(index.type, ScalarType) or index.type.kind not in "iub":
            raise MslTypeError(f"index of type {index.type}", node.line, node.column, "index")
        if isinstance(base.type, VectorType):
            return self._component(base, index, node)
        if isinstance(base.type, ArrayType):  # of matrices
            array, at = base.run, index.run
            return Expr(base.type.element, lambda machine: (array(machine), at(machine)))
        if not isinstance(base.type, PointerType):
            raise MslTypeError(f"index into {base.type}", node.line, node.column, "index")
        size = base.type.pointee.size
        pointer = Expr(base.type, _offset_run(base.run, index.run, size, node), roots=base.roots)
        found = self.dereference(pointer, node, cast=isinstance(base.type.pointee, VectorType))
        return Expr(found.type, found.run, place=found.place, roots=found.roots, memory=base.type)

    def _component(self, base: Expr, index: Expr, node: ast.Index) -> Expr:
        assert isinstance(base.type, VectorType)
        lanes = base.type.lanes
        run, at = base.run, index.run
        if index.constant is not None:
            position = int(index.constant)
            if not 0 <= position < lanes:
                raise MslTypeError(
                    f"component {position} of {base.type}", node.line, node.column, "index"
                )
            place = base.place and ComponentPlace(base.place, lanes, (position,))
            return Expr(
                base.type.element,
                lambda machine: run(machine)[position],
                pure=base.pure,
                place=place,
                roots=base.roots,
            )

        def checked(machine: Machine) -> Any:
            found = machine.defined(at(machine), node, "a component index")
            bad = np.logical_or(np.less(found, 0), np.greater_equal(found, lanes))
            bad = np.logical_and(bad, machine.active_array())
            if bad.any():
                self.fault_component(machine, bad, node, lanes)
            return found

        place = base.place and ComponentPlace(base.place, lanes, checked)
        return Expr(
            base.type.element,
            lambda machine: pick(run(machine), checked(machine)),
            place=place,
            roots=base.roots,
        )

    def _member(self, node: ast.Member) -> Expr:
        base = self.compile(node.base)
        if node.arrow:
            base = self.dereference(base, node)
        if isinstance(base.type, VectorType):
            return self._swizzle(base, node)
        if not isinstance(base.type, StructType):
            raise MslTypeError(
                f"member {node.name} of {base.type}", node.line, node.column, "member"
            )
        field = next((f for f in base.type.fields if f[0] == node.name), None)
        if field is None:
            raise MslTypeError(
                f"{base.type} has no member {node.name}", node.line, node.column, "member"
            )
        _, kind, offset = field
        run = base.run

        def pointer(machine: Machine) -> Any:
            memory, start = run(machine)
            return Pointer(memory, start + offset)

        if isinstance(kind, StructType):
            return Expr(kind, pointer, roots=base.roots)
        element = kind.element if isinstance(kind, ArrayType) else kind
        found = Expr(
            PointerType(element, "constant", const=True),  # type: ignore[arg-type]
            pointer,
            roots=base.roots,
        )
        return found if isinstance(kind, ArrayType) else self.dereference(found, node)

    def _swizzle(self, base: Expr, node: ast.Member) -> Expr:
        assert isinstance(base.type, VectorType)
        letters = next((s for s in _SWIZZLES if all(c in s for c in node.name)), None)
        positions = () if letters is None else tuple(letters[c] for c in node.name)
        if not 1 <= len(positions) <= 4 or max(positions) >= base.type.lanes:
            raise MslTypeError(
                f"{base.type} has no component {node.name}", node.line, node.column, "swizzle"
            )
        run = base.run
        kind: Type = base.type.element
        if len(positions) > 1:
            kind = VectorType(base.type.element, len(positions))
        place = None
        if base.place is not None and len(set(positions)) == len(positions):
            place = ComponentPlace(base.place, base.type.lanes, positions)
        return Expr(
            kind,
            lambda machine: pick(run(machine), positions),
            pure=base.pure,
            place=place,
            roots=base.roots,
        )


def _root_place(place: Place) -> Place:
    while isinstance(place, ComponentPlace):
        place = place.base
    return place


def _constant(kind: ScalarType, value: Any) -> Expr:
    return Expr(kind, lambda machine: value, pure=True, constant=value)


def _element(kind: Type) -> ScalarType:
    return kind.element if isinstance(kind, VectorType) else kind  # type: ignore[return-value]


def _offset_run(base: Run, index: Run, size: int, node: ast.Node) -> Run:
    def run(machine: Machine) -> Any:
        memory, offset = base(machine)
        at = index(machine)
        if at.__class__ is Tainted:
            at = machine.defined(at, node, "an address")
        if np.ndim(at) == 0:
            return Pointer(memory, offset + int(at) * size)
        step = at.astype(np.int64)
        if size != 1:
            step *= size
        if np.ndim(offset) or offset:
            step = step + offset
        return Pointer(memory, step)

    return run


def _rebits(value: Any, dtype: np.dtype, vector: bool) -> Any:
    """Reinterpret the concatenated bytes of the components."""
    parts = value if isinstance(value, tuple) else (value,)
    arrays = np.broadcast_arrays(*(np.asarray(p) for p in parts))
    packed = np.stack(arrays, axis=-1)
    found = np.ascontiguousarray(packed).view(dtype)
    if vector:
        return tuple(found[..., k][()] for k in range(found.shape[-1]))
    return found[..., 0][()]
