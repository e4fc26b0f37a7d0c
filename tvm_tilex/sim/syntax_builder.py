"""Parse tree to abstract syntax."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslSyntaxError, UnsupportedConstructError

__all__ = ["SyntaxBuilder"]

_INT_LIMIT, _UINT_LIMIT, _LONG_LIMIT = 1 << 31, 1 << 32, 1 << 63


class SyntaxBuilder:
    """Builds :mod:`tvm_tilex.sim.syntax` nodes; one method per production of the grammar."""

    def build(self, tree: Tree[Any]) -> ast.TranslationUnit:
        """Return the translation unit of a ``start`` tree."""
        records: dict[str, ast.Record] = {}
        kernels: dict[str, ast.Kernel] = {}
        for item in _parts(tree):
            if item.data == "using":
                self._using(item)
            elif item.data == "record":
                record = self._record(item)
                known = records.setdefault(record.name, record)
                if _shape(known) != _shape(record):
                    raise MslSyntaxError(
                        f"{record.name} is defined twice with different fields",
                        record.line,
                        record.column,
                        "record redefinition",
                    )
            else:
                kernel = self._kernel(item)
                if kernel.name in kernels:
                    raise MslSyntaxError(
                        f"kernel {kernel.name} is defined twice",
                        kernel.line,
                        kernel.column,
                        "kernel redefinition",
                    )
                kernels[kernel.name] = kernel
        return ast.TranslationUnit(1, 1, tuple(records.values()), tuple(kernels.values()))

    def _using(self, tree: Tree[Any]) -> None:
        name = _parts(tree)[0]
        if str(name) != "metal":
            raise UnsupportedConstructError(
                f"using namespace {name} is not supported",
                name.line,
                name.column,
                "using namespace",
            )

    def _record(self, tree: Tree[Any]) -> ast.Record:
        keyword, name, *fields = _parts(tree)
        return ast.Record(
            keyword.line,
            keyword.column,
            str(name),
            str(keyword) == "union",
            tuple(self._field(field) for field in fields),
        )

    def _field(self, tree: Tree[Any]) -> ast.Field:
        type_name, name, length = _parts(tree)
        count = None if length is None else self._integer(length).value
        return ast.Field(name.line, name.column, self._type(type_name), str(name), count)

    def _kernel(self, tree: Tree[Any]) -> ast.Kernel:
        children = [c for c in _parts(tree) if c is not None]
        attributes = [c for c in children if _is(c, "attribute")]
        type_name = next(c for c in children if _is(c, "type_name"))
        name = next(c for c in children if isinstance(c, Token))
        for attribute in attributes:
            word = attribute.children[0]
            if str(word) not in ("max_total_threads_per_threadgroup", "kernel", "host_name"):
                raise UnsupportedConstructError(
                    f"kernel attribute {word} is not supported", word.line, word.column, str(word)
                )
        if self._type(type_name).base != "void":
            raise MslSyntaxError(
                "a kernel returns void", tree.meta.line, tree.meta.column, "kernel return type"
            )
        return ast.Kernel(
            name.line,
            name.column,
            str(name),
            tuple(self._parameter(c) for c in children if _is(c, "parameter")),
            self._block(children[-1]),
        )

    def _parameter(self, tree: Tree[Any]) -> ast.Parameter:
        type_name, name, *attributes = _parts(tree)
        found = []
        for attribute in attributes:
            word, number = attribute.children
            found.append((str(word), None if number is None else self._integer(number).value))
        return ast.Parameter(name.line, name.column, self._type(type_name), str(name), tuple(found))

    def _type(self, tree: Tree[Any]) -> ast.TypeName:
        space, const, base, indirection = "", False, "", ""
        arguments: tuple[Any, ...] = ()
        for child in _parts(tree):
            if child.data == "qualifier":
                word = str(child.children[0])
                const = const or word == "const"
                space = space if word in ("const", "volatile") else word
            elif child.data == "plain_base":
                base = str(child.children[0])
            elif child.data == "matrix_base":
                base = "simdgroup_matrix"
                element, rows, columns = child.children
                arguments = (str(element), int(rows), int(columns))
            else:
                indirection += str(child.children[0])
        line, column = tree.meta.line, tree.meta.column
        if len(indirection) > 1:
            raise UnsupportedConstructError(
                "a pointer to a pointer is not supported", line, column, "pointer to pointer"
            )
        return ast.TypeName(line, column, base, space, const, indirection, arguments)

    # Statements.

    def _block(self, tree: Tree[Any]) -> ast.Block:
        body: list[ast.Node] = []
        for child in _parts(tree):
            body.extend(self._statements(child))
        return ast.Block(*_at(tree), tuple(body))

    def _statement(self, tree: Tree[Any]) -> ast.Node:
        found = self._statements(tree)
        return found[0] if len(found) == 1 else ast.Block(*_at(tree), tuple(found))

    def _statements(self, tree: Tree[Any]) -> list[ast.Node]:
        kind, children = tree.data, _parts(tree)
        line, column = _at(tree)
        if kind == "block":
            return [self._block(tree)]
        if kind == "declaration":
            return self._declaration(tree)
        if kind == "empty":
            return []
        if kind == "expression_statement":
            return [ast.ExpressionStatement(line, column, self._expression(children[0]))]
        if kind in ("if_else", "if_only"):
            condition = self._expression(children[0])
            otherwise = self._statement(children[2]) if kind == "if_else" else None
            return [ast.If(line, column, condition, self._statement(children[1]), otherwise)]
        if kind == "for_loop":
            return [self._for(tree)]
        if kind == "while_loop":
            condition = self._expression(children[0])
            return [ast.While(line, column, condition, self._statement(children[1]))]
        if kind == "do_loop":
            condition = self._expression(children[1])
            return [ast.DoWhile(line, column, self._statement(children[0]), condition)]
        if kind == "break_":
            return [ast.Break(line, column)]
        if kind == "continue_":
            return [ast.Continue(line, column)]
        if children[0] is not None:
            raise UnsupportedConstructError(
                "a kernel returns no value", line, column, "return with a value"
            )
        return [ast.Return(line, column)]

    def _for(self, tree: Tree[Any]) -> ast.Node:
        initializer, condition, step, body = _parts(tree)
        start = self._statements(initializer)
        return ast.For(
            *_at(tree),
            ast.Block(*_at(tree), tuple(start)) if start else None,
            None if condition is None else self._expression(condition),
            None if step is None else self._expression(step),
            self._statement(body),
        )

    def _declaration(self, tree: Tree[Any]) -> list[ast.Node]:
        type_name, *declarators = _parts(tree)
        kind = self._type(type_name)
        found: list[ast.Node] = []
        for declarator in declarators:
            name, length, *initializers = declarator.children
            initializer = initializers[0].children[1] if initializers else None
            found.append(
                ast.Declare(
                    name.line,
                    name.column,
                    kind,
                    str(name),
                    None if length is None else self._expression(length),
                    None if initializer is None else self._expression(initializer),
                )
            )
        return found

    # Expressions.

    def _expression(self, tree: Tree[Any]) -> ast.Node:
        found: ast.Node = getattr(self, f"_on_{tree.data}")(tree, *_at(tree))
        return found

    def _on_assign(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        target, operator, value = _parts(tree)
        return ast.Assign(
            operator.line,
            operator.column,
            str(operator)[:-1],
            self._expression(target),
            self._expression(value),
        )

    def _on_conditional(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        return ast.Ternary(line, column, *(self._expression(c) for c in _parts(tree)))

    def _on_logical(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        left, operator, right = _parts(tree)
        return ast.Logical(
            operator.line,
            operator.column,
            str(operator),
            self._expression(left),
            self._expression(right),
        )

    def _on_binary(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        left, operator, right = _parts(tree)
        return ast.Binary(
            operator.line,
            operator.column,
            str(operator),
            self._expression(left),
            self._expression(right),
        )

    def _on_prefix(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        operator, operand = _parts(tree)
        return ast.Unary(line, column, str(operator), self._expression(operand))

    def _on_step_before(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        operator, operand = _parts(tree)
        return ast.Step(line, column, str(operator), True, self._expression(operand))

    def _on_step_after(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        operand, operator = _parts(tree)
        return ast.Step(line, column, str(operator), False, self._expression(operand))

    def _on_cast(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        type_name, operand = _parts(tree)
        return ast.Cast(line, column, self._type(type_name), self._expression(operand))

    def _on_static_cast(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        return self._on_cast(tree, line, column)

    def _on_as_type(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        type_name, operand = _parts(tree)
        return ast.Cast(line, column, self._type(type_name), self._expression(operand), bits=True)

    def _on_construct(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        name, arguments = _parts(tree)
        kind = ast.TypeName(name.line, name.column, str(name))
        return ast.Construct(line, column, kind, self._arguments(arguments))

    def _on_make_filled(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        name, rows, columns, value = _parts(tree)
        kind = ast.TypeName(name.line, name.column, str(name))
        return ast.MakeFilled(line, column, kind, int(rows), int(columns), self._expression(value))

    def _on_call(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        name, arguments = _parts(tree)
        return ast.Call(line, column, _joined(name), self._arguments(arguments))

    def _on_name(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        return ast.Name(line, column, _joined(tree))

    def _on_index(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        base, index = _parts(tree)
        return ast.Index(line, column, self._expression(base), self._expression(index))

    def _on_member(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        base, name = _parts(tree)
        return ast.Member(name.line, name.column, self._expression(base), str(name))

    def _on_arrow(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        base, name = _parts(tree)
        return ast.Member(name.line, name.column, self._expression(base), str(name), arrow=True)

    def _on_floating(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        text = str(_parts(tree)[0])
        lowered = text.lower()
        for suffix, kind in (("bf", "bfloat"), ("h", "half"), ("f", "float")):
            if lowered.endswith(suffix):
                return ast.Literal(line, column, float(lowered[: -len(suffix)]), kind)
        return ast.Literal(line, column, float(text), "float")

    def _on_integer(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        return self._integer(_parts(tree)[0])

    def _on_boolean(self, tree: Tree[Any], line: int, column: int) -> ast.Node:
        return ast.Literal(line, column, str(_parts(tree)[0]) == "true", "bool")

    def _integer(self, token: Any) -> ast.Literal:
        digits = token.rstrip("uUlL")
        suffix = token[len(digits) :].lower()
        octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
        value = int(digits, 8) if octal else int(digits, 0)
        hexadecimal = octal or digits[:2].lower() == "0x"
        kind = _integer_type(value, suffix, hexadecimal)
        if kind is None:
            raise MslSyntaxError(
                f"integer literal {token} is too large", token.line, token.column, "literal"
            )
        return ast.Literal(token.line, token.column, value, kind)

    def _arguments(self, tree: Tree[Any] | None) -> tuple[ast.Node, ...]:
        return () if tree is None else tuple(self._expression(c) for c in _parts(tree))


def _integer_type(value: int, suffix: str, hexadecimal: bool) -> str | None:
    """Return the first type that holds the literal, in the order of C++14 [lex.icon]."""
    unsigned = "u" in suffix
    candidates = (
        ("int", _INT_LIMIT, not unsigned and "l" not in suffix),
        ("uint", _UINT_LIMIT, (unsigned or hexadecimal) and "l" not in suffix),
        ("long", _LONG_LIMIT, not unsigned),
        ("ulong", 2 * _LONG_LIMIT, unsigned or hexadecimal),
    )
    return next((name for name, limit, allowed in candidates if allowed and value < limit), None)


def _parts(tree: Any) -> list[Any]:
    return list(tree.children)


def _at(tree: Any) -> tuple[int, int]:
    return getattr(tree.meta, "line", 1), getattr(tree.meta, "column", 1)


def _is(child: Any, data: str) -> bool:
    return isinstance(child, Tree) and child.data == data


def _joined(tree: Tree[Any]) -> str:
    return "::".join(str(part) for part in _parts(tree))


def _shape(record: ast.Record) -> tuple[Any, ...]:
    return (
        record.is_union,
        tuple((f.type.base, f.type.indirection, f.name, f.length) for f in record.fields),
    )
