"""Statements: closures that run under the machine's mask and leave the lanes that go on active."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslTypeError, UnsupportedConstructError
from tvm_tilex.sim.expressions import conditionals
from tvm_tilex.sim.expressions.casts import written_type
from tvm_tilex.sim.expressions.compiler import ExpressionCompiler
from tvm_tilex.sim.expressions.conversions import convert
from tvm_tilex.sim.expressions.matrix_calls import assign_matrix
from tvm_tilex.sim.machine import Loop
from tvm_tilex.sim.matrices import MatrixArray
from tvm_tilex.sim.memory import Pointer
from tvm_tilex.sim.operands import Run
from tvm_tilex.sim.private import ThreadArray
from tvm_tilex.sim.scope import Symbol, resolve
from tvm_tilex.sim.types import (
    ArrayType,
    MatrixType,
    PointerType,
    ScalarType,
    StructType,
    Type,
    VectorType,
    VoidType,
)
from tvm_tilex.sim.values import undefined

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine

__all__ = ["Statement", "StatementCompiler"]

Statement = Callable[["Machine"], None]


class StatementCompiler:
    """Compiles the statements of one kernel.

    Attributes
    ----------
    threadgroup_arrays
        Slot, name and element type of every threadgroup array, wherever it is declared: the
        hardware allocates them once per threadgroup.
    private_bytes
        Bytes of thread arrays and of the thread's share of matrices.
    """

    def __init__(self, expressions: ExpressionCompiler) -> None:
        self.expressions = expressions
        self.symbols = expressions.symbols
        self.threadgroup_arrays: list[Symbol] = []
        self.private_bytes = 0
        self.loops = 0

    def compile(self, node: ast.Node) -> Statement:
        """Return the closure of a statement."""
        method = getattr(self, f"_{type(node).__name__.lower()}")
        return method(node)

    def _block(self, node: ast.Block) -> Statement:
        self.symbols.scopes.append({})
        body = tuple(self.compile(s) for s in node.body)
        self.symbols.scopes.pop()

        def run(machine: Machine) -> None:
            for statement in body:
                statement(machine)
                if machine.active == 0:
                    return

        return run

    def _expressionstatement(self, node: ast.ExpressionStatement) -> Statement:
        return self.expressions.compile(node.expression).run

    # Declarations.

    def _declare(self, node: ast.Declare) -> Statement:
        kind = resolve(node.type, self.expressions.records)
        if node.type.space in ("device", "constant") and not node.type.indirection:
            raise UnsupportedConstructError(
                f"a local variable in the {node.type.space} address space is not supported",
                node.line,
                node.column,
                f"{node.type.space} variable",
            )
        if node.type.indirection:
            return self._declare_pointer(node)
        if isinstance(kind, VoidType | StructType):
            raise UnsupportedConstructError(
                f"a local variable of type {kind} is not supported",
                node.line,
                node.column,
                f"variable of type {kind}",
            )
        if isinstance(kind, MatrixType):
            return self._declare_matrix(node, kind)
        assert isinstance(kind, ScalarType | VectorType)
        if node.length is not None or node.type.space == "threadgroup":
            return self._declare_array(node, kind)
        return self._declare_value(node, kind)

    def _length(self, node: ast.Declare) -> int:
        if node.length is None:
            return 1
        length = self.expressions.compile(node.length)
        if length.constant is None or int(length.constant) < 1:
            raise UnsupportedConstructError(
                "an array whose length is not a positive constant is not supported",
                node.line,
                node.column,
                "array length",
            )
        return int(length.constant)

    def _declare_array(self, node: ast.Declare, element: ScalarType | VectorType) -> Statement:
        if node.initializer is not None:
            raise UnsupportedConstructError(
                "an array initializer is not supported", node.line, node.column, "array initializer"
            )
        length = self._length(node)
        kind = ArrayType(element, length)
        if node.type.space == "threadgroup":
            whole: Any = kind
            symbol = self.symbols.declare(node, node.name, whole, space="threadgroup")
            self.threadgroup_arrays.append(symbol)
            if node.length is None:
                raise UnsupportedConstructError(
                    "a threadgroup variable that is not an array is not supported",
                    node.line,
                    node.column,
                    "threadgroup scalar",
                )
            return lambda machine: None
        symbol = self.symbols.declare(node, node.name, kind, const=node.type.const)
        self.private_bytes += kind.size
        slot, scalar, line = symbol.slot, getattr(element, "element", element), node.line
        count, name = kind.size // scalar.size, node.name

        def run(machine: Machine) -> None:
            machine.frame[slot] = ThreadArray(name, scalar.dtype, count, line, machine.mask)

        return run

    def _declare_matrix(self, node: ast.Declare, kind: MatrixType) -> Statement:
        if node.type.space == "threadgroup":
            raise UnsupportedConstructError(
                "a matrix in threadgroup memory is not supported",
                node.line,
                node.column,
                "threadgroup matrix",
            )
        length = self._length(node)
        declared: Type = kind if node.length is None else ArrayType(kind, length)
        value = None
        if node.initializer is not None:
            value = self.expressions.compile(node.initializer)
        symbol = self.symbols.declare(node, node.name, declared)
        self.private_bytes += kind.size * length
        slot, name, dtype = symbol.slot, node.name, kind.element.dtype
        assign: Run | None = None
        if value is not None:
            target = self.expressions.compile(ast.Name(node.line, node.column, node.name))
            assign = assign_matrix(node, target, value).run

        def run(machine: Machine) -> None:
            machine.frame[slot] = MatrixArray(name, dtype, length, machine.groups, machine.simds)
            if assign is not None:
                assign(machine)

        return run

    def _declare_value(self, node: ast.Declare, kind: ScalarType | VectorType) -> Statement:
        initializer = None
        if node.initializer is not None:
            value = self.expressions.compile(node.initializer)
            initializer = convert(value, kind, node).run
        symbol = self.symbols.declare(node, node.name, kind, const=node.type.const)
        slot = symbol.slot
        if initializer is None:
            dtype = kind.element.dtype if isinstance(kind, VectorType) else kind.dtype
            nothing: Any = undefined(dtype, (node.name, node.line))
            if isinstance(kind, VectorType):
                nothing = (nothing,) * kind.lanes

            def leave(machine: Machine) -> None:
                machine.frame[slot] = nothing
                machine.owner[slot] = machine.mask

            return leave

        def run(machine: Machine) -> None:
            machine.frame[slot] = initializer(machine)
            machine.owner[slot] = machine.mask

        return run

    def _declare_pointer(self, node: ast.Declare) -> Statement:
        kind = written_type(node.type, self.expressions.records)
        assert isinstance(kind, PointerType)
        if node.initializer is None or node.length is not None or node.type.indirection == "&":
            raise UnsupportedConstructError(
                "a local pointer needs an initializer; references and arrays of pointers are not "
                "supported",
                node.line,
                node.column,
                "pointer variable",
            )
        value = self.expressions.compile(node.initializer)
        if not isinstance(value.type, PointerType):
            raise MslTypeError(
                f"no conversion from {value.type} to {kind}", node.line, node.column, "conversion"
            )
        value = convert(value, kind, node)
        symbol = self.symbols.declare(node, node.name, kind, space=kind.space, roots=value.roots)
        slot, initializer = symbol.slot, value.run

        def run(machine: Machine) -> None:
            memory, offset = initializer(machine)
            machine.frame[slot] = Pointer(memory, offset)
            machine.owner[slot] = machine.mask

        return run

    # Control flow.

    def _if(self, node: ast.If) -> Statement:
        condition = conditionals.condition(self.expressions, node.condition, "a branch")
        then = self._scoped(node.then)
        otherwise = None if node.otherwise is None else self._scoped(node.otherwise)

        def run(machine: Machine) -> None:
            chosen = condition(machine)
            if np.ndim(chosen) == 0:
                if chosen:
                    then(machine)
                elif otherwise is not None:
                    otherwise(machine)
                return
            entry = machine.mask
            inside, outside = machine.split(chosen)
            if inside.count == 0:
                if otherwise is not None:
                    otherwise(machine)
                return
            if outside.count == 0:
                then(machine)
                return
            machine.set(inside)
            then(machine)
            after, rest = machine.mask, outside
            if otherwise is not None:
                machine.set(outside)
                otherwise(machine)
                rest = machine.mask
            if after is inside and rest is outside:
                machine.set(entry)
            else:
                machine.set(machine.union(after, rest))

        return run

    def _scoped(self, node: ast.Node) -> Statement:
        self.symbols.scopes.append({})
        statement = self.compile(node)
        self.symbols.scopes.pop()
        return statement

    def _for(self, node: ast.For) -> Statement:
        self.symbols.scopes.append({})
        start = [] if node.initializer is None else node.initializer.body  # type: ignore[attr-defined]
        initializers = tuple(self.compile(s) for s in start)
        condition = None
        if node.condition is not None:
            condition = conditionals.condition(self.expressions, node.condition, "a loop condition")
        step = None if node.step is None else self.expressions.compile(node.step).run
        loop = self._loop(node, condition, step, self._body(node.body))
        self.symbols.scopes.pop()

        def run(machine: Machine) -> None:
            for statement in initializers:
                statement(machine)
            loop(machine)

        return run

    def _while(self, node: ast.While) -> Statement:
        condition = conditionals.condition(self.expressions, node.condition, "a loop condition")
        return self._loop(node, condition, None, self._body(node.body))

    def _dowhile(self, node: ast.DoWhile) -> Statement:
        condition = conditionals.condition(self.expressions, node.condition, "a loop condition")
        return self._loop(node, condition, None, self._body(node.body), last=True)

    def _body(self, node: ast.Node) -> Statement:
        self.loops += 1
        body = self._scoped(node)
        self.loops -= 1
        return body

    def _loop(
        self,
        node: ast.Node,
        condition: Run | None,
        step: Run | None,
        body: Statement,
        *,
        last: bool = False,
    ) -> Statement:
        def run(machine: Machine) -> None:
            entry, returns = machine.mask, machine.returns
            loop = Loop()
            machine.loops.append(loop)
            steps, first = 0, last
            while True:
                if condition is not None and not first:
                    chosen = condition(machine)
                    if np.ndim(chosen):
                        machine.set(machine.split(chosen)[0])
                    elif not chosen:
                        break
                    if machine.active == 0:
                        break
                first = False
                steps += 1
                machine.step(steps, node)
                begin, loop.left = machine.mask, False
                body(machine)
                if loop.continued is not None:
                    if loop.left:
                        machine.set(machine.union(machine.mask, loop.continued))
                    else:
                        machine.set(begin)
                    loop.continued = None
                if machine.active == 0:
                    break
                if step is not None:
                    step(machine)
            machine.loops.pop()
            if machine.returns == returns:
                machine.set(entry)
            else:
                machine.set(machine.without_returned(entry))

        return run

    def _inside_loop(self, node: ast.Node, word: str) -> None:
        if self.loops == 0:
            raise MslTypeError(f"{word} outside a loop", node.line, node.column, word)

    def _break(self, node: ast.Break) -> Statement:
        self._inside_loop(node, "break")

        def run(machine: Machine) -> None:
            machine.loops[-1].left = True
            machine.leave()

        return run

    def _continue(self, node: ast.Continue) -> Statement:
        self._inside_loop(node, "continue")

        def run(machine: Machine) -> None:
            loop = machine.loops[-1]
            mask = machine.mask
            loop.continued = mask if loop.continued is None else machine.union(loop.continued, mask)
            machine.leave()

        return run

    def _return(self, node: ast.Return) -> Statement:
        return lambda machine: machine.do_return()
