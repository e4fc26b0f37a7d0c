"""Reads the text form of :mod:`tvm_tilex.ir.print` back to a program.

The grammar is context-free except for two look-ups: ``%3`` as an operand takes its type from its
definition above, and ``over columns`` takes the axis from the source's type. Comments run from
``#`` to the end of the line. The parser checks what it needs to build nodes; whether the program
is well formed is :func:`tvm_tilex.ir.verify.verify`'s question.
"""

from __future__ import annotations

import enum
import functools
import math
from typing import TYPE_CHECKING, Any, TypeVar

from tvm_tilex.errors import CaptureError, ParseError
from tvm_tilex.ir.index import (
    Dimension,
    Extent,
    Index,
    IndexBinary,
    IndexConstant,
    ProgramCoordinate,
)
from tvm_tilex.ir.ops import Combiner, ElementOp, NanPolicy, ReductionPolicy
from tvm_tilex.ir.program import (
    Binding,
    Constant,
    Coordinate,
    Dot,
    Elementwise,
    Full,
    Gather,
    Group,
    Load,
    Memory,
    MemoryScope,
    Operand,
    Parallel,
    Pipeline,
    Program,
    Read,
    Reduce,
    Repartition,
    Statement,
    Store,
    Value,
    View,
    ViewAccess,
    Write,
)
from tvm_tilex.ir.types import Axis, BoundsPolicy, DType, TileType, dtype_of
from tvm_tilex.support.srcloc import SourceLocation

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

__all__ = ["GRAMMAR", "parse_program"]

GRAMMAR = r"""
start: "kernel" NAME "(" views ")" ranges body
ranges: ("dynamic" "(" range ("," range)* ")")?
range: NAME ":" RANGE
views: (view ("," view)*)?
view: NAME ":" NAME NAME "[" shape "]" NAME?
shape: (extent ("," extent)*)?
?extent: INT | NAME
body: "{" statement* "}"

?statement: parallel | group | pipeline | memory | write | store | definition
parallel: "parallel" NEST "(" axes ")" words body
store: "store" access "=" operand words
group: "group" "(" axes ")" body
pipeline: "pipeline" NEST "(" axis ")" stop carried "{" statement* step "}" results
stop: ("stop" atom)?
carried: ("with" initial ("," initial)*)?
initial: typed "=" operand
step: "next" (operand ("," operand)*)?
results: ("->" typed ("," typed)*)?
typed: VALUE ":" NAME "[" axes "]"
memory: "memory" MEMORY ":" NAME "[" axes "]" NAME
write: "write" MEMORY "=" operand
definition: VALUE ":" NAME "[" axes "]" "=" expression

?expression: "load" access words                                        -> load
    | "coordinate" "(" dimension ")" "+" atom                           -> coordinate
    | "reduce" NAME VALUE "over" NAME words                             -> reduce
    | "gather" VALUE "over" NAME "at" VALUE "fill" LITERAL              -> gather
    | "repartition" VALUE                                               -> repartition
    | "full" LITERAL                                                    -> full
    | "read" MEMORY                                                     -> read
    | "dot" VALUE "," VALUE "over" NAME "plus" VALUE                    -> dot
    | NAME operand ("," operand)*                                       -> elementwise

words: NAME*
access: NAME "[" indices "]" "(" dimensions ")"
indices: (index ("," index)*)?
dimensions: (dimension ("," dimension)*)?
axes: (axis ("," axis)*)?
axis: (NAME | HOLE) ":" extent
dimension: HOLE | axis

operand: VALUE | NAME "(" LITERAL ")"
?index: binary | atom
binary: atom OPERATOR atom
?atom: INT -> integer | COORDINATE -> program_coordinate | NAME -> extent_of
    | "(" index ")"

HOLE: "_"
VALUE: /%\d+/
NEST: /n\d+/
MEMORY: /m\d+/
COORDINATE.2: /n\d+\.\d+/
OPERATOR: /\/\/|[-+*%]/
RANGE.2: /\d+\.\.\d+/
INT: /-?\d+/
LITERAL: /-?(inf|nan|\d+(\.\d+)?(e[+-]?\d+)?)|true|false/
NAME: /[^\s\d\[\](){}:,.=%+*\/#-][^\s\[\](){}:,.=%+*\/#-]*/
%ignore /\s+/
%ignore /#[^\n]*/
"""

E = TypeVar("E", bound=enum.Enum)
# Lark's own type parameter says nothing more: every child is a token or a tree.
Node = Any


def parse_program(text: str, *, file: str | None = None) -> Program:
    """Return the program that ``text`` describes.

    Parameters
    ----------
    text
        What :func:`tvm_tilex.ir.print.format_program` gives, or hand-written in that form.
    file
        When given, every statement gets the source location (``file``, its line in ``text``).

    Raises
    ------
    ParseError
        If the text breaks the grammar, uses an unknown word, or reads a value or an axis that
        nothing above defines. The message starts with the line and the column.
    """
    from lark.exceptions import UnexpectedInput

    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(error) from None
    return _Builder(file).program(tree)


@functools.cache
def _parser() -> Lark:
    from lark import Lark  # not needed to compile a kernel, so not imported with the package

    return Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _syntax_error(error: Any) -> ParseError:
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        return ParseError("the text ends before the kernel's closing brace")
    found = str(token) if token is not None else error.char
    expected = sorted(getattr(error, "accepts", None) or getattr(error, "expected", None) or ())
    if token is None:
        expected = sorted(error.allowed or ())
    return ParseError(
        f"line {error.line}, column {error.column}: {found!r} is not expected here; "
        f"allowed: {', '.join(name.lower() for name in expected)}"
    )


class _Builder:
    """Turns the tree into nodes, in textual order, with the values defined so far."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._values: dict[int, Value] = {}
        self._dimensions: dict[str, Dimension] = {}

    def program(self, tree: Tree[Token]) -> Program:
        name, views, ranges, body = _children(tree)
        self._dimensions = dict(map(_dimension_range, _children(ranges)))
        return Program(
            _identifier(name),
            tuple(self._view(view) for view in _children(views)),
            self._body(body),
        )

    def _view(self, tree: Node) -> View:
        name, access, dtype, shape, *bounds = _children(tree)
        return View(
            _identifier(name),
            _dtype(dtype),
            tuple(map(self._extent, _children(shape))),
            _word(access, ViewAccess),
            _word(bounds[0], BoundsPolicy) if bounds else BoundsPolicy.checked,
        )

    def _body(self, tree: Node) -> tuple[Statement, ...]:
        return tuple(self._statement(child) for child in _children(tree))

    def _statement(self, tree: Node) -> Statement:
        if tree.data == "parallel":
            nest, axes, words, body = _children(tree)
            (binding,) = _words(words, Binding.auto)
            location = self._location(tree)
            return Parallel(int(nest[1:]), self._axes(axes), self._body(body), binding, location)
        if tree.data == "group":
            axes, body = _children(tree)
            return Group(self._axes(axes), self._body(body), self._location(tree))
        if tree.data == "pipeline":
            return self._pipeline(tree)
        if tree.data == "memory":
            memory, dtype, axes, scope = _children(tree)
            type_ = _tile_type(memory, _dtype(dtype), self._axes(axes))
            number = int(memory[1:])
            return Memory(number, type_, _word(scope, MemoryScope), self._location(tree))
        if tree.data == "write":
            memory, operand = _children(tree)
            return Write(int(memory[1:]), self._operand(operand), self._location(tree))
        if tree.data == "store":
            access, operand, words = _children(tree)
            view, origin, dimensions = self._access(access)
            (bounds,) = _words(words, BoundsPolicy.checked)
            value = self._operand(operand)
            return Store(view, origin, dimensions, value, bounds, self._location(tree))
        number, dtype, axes, expression = _children(tree)
        result = Value(int(number[1:]), _tile_type(number, _dtype(dtype), self._axes(axes)))
        statement = self._definition(result, expression, self._location(tree))
        self._values[result.number] = result
        return statement

    def _pipeline(self, tree: Node) -> Pipeline:
        nest, axis, stop, carried, *body, step, results = _children(tree)
        pairs = [_children(child) for child in _children(carried)]
        initial = tuple(self._operand(operand) for _, operand in pairs)
        state = tuple(self._typed(typed) for typed, _ in pairs)
        inner = tuple(self._statement(child) for child in body)
        following = tuple(self._operand(child) for child in _children(step))
        return Pipeline(
            int(nest[1:]),
            self._axis(axis),
            state,
            initial,
            inner,
            following,
            tuple(self._typed(child) for child in _children(results)),
            next(map(self._index, _children(stop)), None),
            self._location(tree),
        )

    def _typed(self, tree: Node) -> Value:
        number, dtype, axes = _children(tree)
        value = Value(int(number[1:]), _tile_type(number, _dtype(dtype), self._axes(axes)))
        self._values[value.number] = value
        return value

    def _definition(self, result: Value, tree: Node, location: SourceLocation | None) -> Statement:
        children = _children(tree)
        if tree.data == "load":
            view, origin, dimensions = self._access(children[0])
            (bounds,) = _words(children[1], BoundsPolicy.checked)
            return Load(result, view, origin, dimensions, bounds, location)
        if tree.data == "coordinate":
            dimension, offset = children
            return Coordinate(result, self._dimension(dimension), self._index(offset), location)
        if tree.data == "reduce":
            combiner, number, axis, words = children
            source = self._value(number)
            policy, nan = _words(words, ReductionPolicy.unordered_tree, NanPolicy.target)
            over, how = _axis_of(source, axis), _word(combiner, Combiner)
            return Reduce(result, source, over, how, policy, nan, location)
        if tree.data == "gather":
            number, axis, at, fill = children
            source, index = self._value(number), self._value(at)
            return Gather(result, source, index, _axis_of(source, axis), _literal(fill), location)
        if tree.data == "repartition":
            return Repartition(result, self._value(children[0]), location)
        if tree.data == "full":
            return Full(result, _literal(children[0]), location)
        if tree.data == "read":
            return Read(result, int(children[0][1:]), location)
        if tree.data == "dot":
            a, b, axis, accumulator = children
            first, second = self._value(a), self._value(b)
            third = self._value(accumulator)
            return Dot(result, first, second, _axis_of(first, axis), third, location)
        operands = tuple(self._operand(child) for child in children[1:])
        return Elementwise(result, _word(children[0], ElementOp), operands, location)

    def _operand(self, tree: Node) -> Operand:
        children = _children(tree)
        if len(children) == 1:
            return self._value(children[0])
        return Constant(_literal(children[1]), _dtype(children[0]))

    def _value(self, token: Token) -> Value:
        value = self._values.get(int(token[1:]))
        if value is None:
            raise _error(token, f"{token} is not defined above")
        return value

    def _extent(self, token: Token) -> Extent:
        if token.type == "INT":
            return int(token)
        found = self._dimensions.get(str(token))
        if found is None:
            raise _error(token, f"the dynamic extent {str(token)!r} has no range")
        return found

    def _axis(self, tree: Node) -> Axis:
        name, extent = _children(tree)
        try:
            return Axis(str(name), self._extent(extent))
        except CaptureError as error:
            raise _error(name, str(error)) from None

    def _axes(self, tree: Node) -> tuple[Axis, ...]:
        return tuple(self._axis(child) for child in _children(tree))

    def _dimension(self, tree: Node) -> Axis | None:
        (child,) = _children(tree)
        return self._axis(child) if hasattr(child, "data") else None

    def _access(self, tree: Node) -> tuple[str, tuple[Index, ...], tuple[Axis | None, ...]]:
        view, indices, dimensions = _children(tree)
        return (
            str(view),
            tuple(self._index(child) for child in _children(indices)),
            tuple(self._dimension(child) for child in _children(dimensions)),
        )

    def _index(self, tree: Node) -> Index:
        children = _children(tree)
        if tree.data == "binary":
            return IndexBinary(str(children[1]), self._index(children[0]), self._index(children[2]))
        if tree.data == "program_coordinate":
            nest, dimension = children[0][1:].split(".")
            return ProgramCoordinate(int(nest), int(dimension))
        if tree.data == "extent_of":
            found = self._extent(children[0])
            assert isinstance(found, Dimension)
            return found
        return IndexConstant(int(children[0]))

    def _location(self, tree: Node) -> SourceLocation | None:
        return None if self._file is None else SourceLocation(self._file, tree.meta.line)


def _children(tree: Node) -> list[Node]:
    children: list[Node] = tree.children
    return children


def _error(token: Token, message: str) -> ParseError:
    return ParseError(f"line {token.line}, column {token.column}: {message}")


def _dimension_range(tree: Node) -> tuple[str, Dimension]:
    name, span = _children(tree)
    low, high = map(int, span.split(".."))
    try:
        return str(name), Dimension(str(name), low, high)
    except CaptureError as error:
        raise _error(name, str(error)) from None


def _identifier(token: Token) -> str:
    if not token.isidentifier():
        raise _error(token, f"{str(token)!r} is not an identifier")
    return str(token)


def _dtype(token: Token) -> DType:
    try:
        return dtype_of(str(token))
    except CaptureError as error:
        raise _error(token, str(error)) from None


def _word(token: Token, kind: type[E]) -> E:
    try:
        return kind(str(token))
    except ValueError:
        words = ", ".join(str(member.value) for member in kind)
        raise _error(token, f"{str(token)!r} is none of {words}") from None


def _words(tree: Node, *defaults: Any) -> list[Any]:
    """Read trailing words, each a member of one default's enumeration, in the defaults' order."""
    found = list(defaults)
    start = 0
    for token in _children(tree):
        kinds = [type(default) for default in defaults[start:]]
        fits = [n for n, kind in enumerate(kinds) if str(token) in {m.value for m in kind}]
        if not fits:
            words = ", ".join(str(member.value) for kind in kinds for member in kind)
            raise _error(token, f"{str(token)!r} is none of {words or 'the words allowed here'}")
        found[start + fits[0]] = kinds[fits[0]](str(token))
        start += fits[0] + 1
    return found


def _tile_type(token: Token, dtype: DType, axes: tuple[Axis, ...]) -> TileType:
    try:
        return TileType(dtype, axes)
    except CaptureError as error:
        raise _error(token, str(error)) from None


def _axis_of(source: Value, token: Token) -> Axis:
    axis = source.type.axis(str(token))
    if axis is None:
        raise _error(token, f"{source} has no axis {str(token)!r}; its type is {source.type}")
    return axis


def _literal(token: Token) -> bool | int | float:
    text = str(token)
    if text in ("true", "false"):
        return text == "true"
    if text.lstrip("-").isdecimal():
        return int(text)
    value = float(text)
    # One NaN object, so that tuples (compared by identity first) that hold it can be equal.
    return math.nan if math.isnan(value) else value
