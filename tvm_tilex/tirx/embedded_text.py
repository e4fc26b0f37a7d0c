"""Text inside a compiled library, as two functions that need nothing but the runtime.

``NAME_words()`` returns how many 64-bit words hold the UTF-8 text, padded with zero bytes;
``NAME(words)`` writes them to an int64 array of that length. TVM functions return no text.
"""

from __future__ import annotations

import struct

from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRBuilder, PrimFunc, tirx
from tvm_tilex.tirx.compat import builder as T

__all__ = ["text_functions"]


def text_functions(name: str, text: str) -> dict[str, PrimFunc]:
    """The two functions, by their symbols; they run on the host."""
    content = text.encode()
    content += b"\0" * (-len(content) % 8)
    words = struct.unpack(f"<{len(content) // 8}q", content)
    with IRBuilder() as counting, T.prim_func(s_tir=True):
        _head(f"{name}_words")
        T.evaluate(tirx.IntImm("int32", 0))
    count = counting.get().with_body(tirx.Return(tirx.IntImm("int64", len(words))))
    with IRBuilder() as filling, T.prim_func(s_tir=True):
        _head(name)
        out = T.arg("words", T.buffer((tirx.IntImm("int64", len(words)),), "int64", align=8))
        for position, word in enumerate(words):
            T.buffer_store(out, tirx.IntImm("int64", word), [tirx.IntImm("int64", position)])
    return {f"{name}_words": count, name: filling.get()}


def _head(symbol: str) -> None:
    T.func_name(symbol)
    T.func_attr({"global_symbol": symbol, attrs.STAGE: "scheduled"})
