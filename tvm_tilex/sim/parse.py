"""MSL text to abstract syntax: comments and directives first, then a LALR grammar.

The text that TVM's ``inspect_source`` gives is a concatenation of one translation unit per kernel,
so an identical redefinition of a record is accepted; a different one is not.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from tvm_tilex.sim import syntax as ast
from tvm_tilex.sim.errors import MslSyntaxError, SourceError, UnsupportedConstructError
from tvm_tilex.sim.syntax_builder import SyntaxBuilder
from tvm_tilex.sim.types import named_type

__all__ = ["parse"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_RECORD = re.compile(r"\b(?:struct|union)\s+([A-Za-z_]\w*)")
_ACCEPTED_DIRECTIVE = re.compile(
    r"#\s*(?:include\s*<(?:metal_stdlib|metal_simdgroup|metal_simdgroup_matrix|metal_math)>"
    r"|pragma\s+unroll(?:\s*\(?\s*\d+\s*\)?)?"
    r"|pragma\s+clang\s+loop\s+unroll\(\w+\))\s*$"
)
# Words whose construct the error names; the grammar has no production for any of them.
_UNSUPPORTED_WORDS = {
    "switch": "switch statement",
    "case": "switch statement",
    "goto": "goto statement",
    "template": "template",
    "typedef": "typedef",
    "enum": "enumeration",
    "class": "class",
    "constexpr": "constexpr declaration",
    "static": "static declaration",
    "inline": "inline function",
    "asm": "inline assembly",
    "__asm__": "inline assembly",
    "vertex": "vertex function",
    "fragment": "fragment function",
    "double": "type double",
    "auto": "auto declaration",
    "sizeof": "sizeof expression",
    "reinterpret_cast": "reinterpret_cast expression",
    "const_cast": "const_cast expression",
    "threadgroup_imageblock": "imageblock address space",
    "ray_data": "ray data address space",
    "texture1d": "texture",
    "texture2d": "texture",
    "texture3d": "texture",
    "sampler": "sampler",
    "atomic": "atomic type",
    "atomic_int": "atomic type",
    "atomic_uint": "atomic type",
    "atomic_float": "atomic type",
    "array": "array template",
    "vec": "vec template",
    "matrix": "matrix template",
    "assert": "assertion",
    "NULL": "null pointer",
    "nullptr": "null pointer",
    "uintptr_t": "pointer to integer conversion",
}


@lru_cache(maxsize=1)
def _grammar() -> str:
    return Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")


@lru_cache(maxsize=32)
def _parser(records: frozenset[str]) -> Lark:
    def classify(token: Token) -> Token:
        if named_type(token.value) is not None or token.value in records:
            return Token.new_borrow_pos("TYPE", token.value, token)
        return token

    return Lark(
        _grammar(),
        parser="lalr",
        lexer="basic",
        propagate_positions=True,
        maybe_placeholders=True,
        lexer_callbacks={"IDENT": classify},
    )


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _without_directives(text: str) -> str:
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped.startswith("#"):
            continue
        if not _ACCEPTED_DIRECTIVE.match(stripped):
            word = stripped[1:].split(None, 1)[0] if stripped[1:].split() else ""
            raise UnsupportedConstructError(
                f"preprocessor directive #{word} is not supported: {stripped}",
                number,
                line.index("#") + 1,
                f"directive #{word}",
            )
        lines[number - 1] = ""
    return "\n".join(lines)


def _first_unsupported(text: str, line: int, column: int) -> tuple[str, int, int] | None:
    """Return the named construct at or just before the position where the grammar stopped."""
    row = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    best = None
    for match in re.finditer(r"[A-Za-z_]\w*", row):
        if match.start() + 1 > column:
            break
        name = _UNSUPPORTED_WORDS.get(match.group())
        if name is not None:
            best = (name, line, match.start() + 1)
    return best


def _syntax_error(error: UnexpectedInput, text: str) -> SourceError:
    if isinstance(error, UnexpectedCharacters):
        line, column = error.line, error.column
        got = f"character {text.splitlines()[line - 1][column - 1]!r}"
    elif isinstance(error, UnexpectedToken) and error.token.type != "$END":
        line, column = error.line, error.column
        got = f"{error.token.value!r}"
    else:
        line = text.count("\n") + 1
        column = len(text) - (text.rfind("\n") + 1) + 1
        got = "end of text"
    named = _first_unsupported(text, line, column)
    if named is not None:
        return UnsupportedConstructError(
            f"{named[0]} is not supported", named[1], named[2], named[0]
        )
    if isinstance(error, UnexpectedToken) and "KERNEL" in error.accepts:
        rest = text.split("\n")[line - 1][column - 1 :]
        function = re.match(r"(?:\w+[\s*&]+)+\w+\s*\(", rest)
        construct = "function definition" if function else "program-scope declaration"
        what = rest.split("(" if function else "=")[0].strip()
        return UnsupportedConstructError(
            f"a {construct} other than a kernel ({what}) is not supported", line, column, construct
        )
    return MslSyntaxError(f"unexpected {got}", line, column, got)


def parse(text: str) -> ast.TranslationUnit:
    """Parse MSL text.

    Raises
    ------
    MslSyntaxError, UnsupportedConstructError
        With line, column and the name of the construct.
    """
    plain = _without_directives(_COMMENT.sub(_blank, text))
    records = frozenset(_RECORD.findall(plain))
    try:
        tree: Tree[Any] = _parser(records).parse(plain)
    except UnexpectedEOF as error:
        raise _syntax_error(error, plain) from None
    except UnexpectedInput as error:
        raise _syntax_error(error, plain) from None
    return SyntaxBuilder().build(tree)
