"""Texts of Triton, TileLang and TVM: read, printed, read again; refusals name the rule."""

import pytest

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import LayoutTextError
from tvm_tilex.layout.bridges import (
    TileLangFragment,
    parse_tilelang,
    parse_triton,
    parse_tvm,
)

READ = [
    (parse_tvm, "S[(8,4,2):(4@laneid,1@laneid,1)] + R[4:1@warpid] + 2@warpid"),
    (
        parse_tvm,
        "T.TileLayout(T.S[(8, 4):(4 @ Axis.laneid, 1)] + T.R[4:1 @ Axis.warpid]"
        " + (5 + 2 @ Axis.warpid))",
    ),
    (
        parse_tvm,
        "T.ComposeLayout(0, 3, 3, T.TileLayout(T.S[(8, 8):(8, 1)]), swizzle_inner=False)",
    ),
    (parse_tvm, "T.TileLayout(T.S[T.int64(4):T.int64(1099511627776)])"),
    (parse_tvm, "T.TileLayout.from_iters()"),
    (parse_tvm, 'T.TileLayout.from_iters(offset={"laneid": 5, "m": 2})'),
    (parse_tvm, "S[8,4]"),
    (parse_tvm, "S[2:-3]"),
    (parse_tvm, "S[():()]+R[2:1@laneid]"),
    (parse_tvm, "T.TileLayout(T.R[(4, 2):(16 @ Axis.laneid, 16 @ Axis.F)] + 32 @ Axis.F)"),
    (parse_triton, '{"register": [[0,1],[8,0]], "lane": [[0,2],[1,0]]}'),
    (parse_triton, "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2]], block = []}>"),
    (parse_triton, "{'thread': [1,2], 'block': [0]} -> {'o': 4}"),
    (
        parse_triton,
        "DistributedLinearLayout(reg_bases=[[0,1]], lane_bases=[[1,0]], block_bases=[],"
        " shape=[2,4])",
    ),
    (
        parse_triton,
        "\n - register=1 -> (0, 1)\n   register=2 -> (8, 0)\n - block is a size 1 dimension\n"
        "where out dims are: [dim0 (size 32), dim1 (size 16)]\n",
    ),
    (parse_tilelang, "[16,16] -> (i%8*4+j%8//2, (i//8)*4+(j//8)*2+j%2)"),
    (
        parse_tilelang,
        "Fragment((16, 16) -> (8,), replicate: 1, thread: 32, forward_thread: _i % 8 * 4 +"
        " _j % 8 // 2, forward_index: (_i // 8 * 4 + _j // 8 * 2 + _j % 2,))",
    ),
    (
        parse_tilelang,
        "Fragment((8,) -> (1,), replicate: 4, thread: 32, forward_thread: _i * 4 + _rep,"
        " forward_index: (0,))",
    ),
    (
        parse_tilelang,
        "Layout((8, 16) -> (128,), transform: (_i, _j) -> (_i * 16 + T.bitwise_xor(_j, _i),))",
    ),
    (
        parse_tilelang,
        "Layout((8, 16) -> (4, 32), transform: (_i, _j) -> (_i // 2, _j * 2 + _i % 2))",
    ),
    (parse_tilelang, "Layout([8,16], lambda i,j: i*16+(j^i))"),
    (parse_tilelang, "[8] * 4 -> (i*4+rep, 0)"),
    (
        parse_tilelang,
        "Fragment([8], forward_thread_fn=lambda a,b: a*4+b, replicate=4,"
        " forward_index_fn=lambda c: c%2)",
    ),
]


@pytest.mark.parametrize(("parse", "text"), READ, ids=[text[:32] for _, text in READ])
def test_text_round_trip(parse, text):
    layout = parse(text)
    again = parse(str(layout))
    assert again == layout
    assert again.placement.same_as(layout.placement)


REFUSED = [
    (parse_tvm, "S[4:1", "unexpected input"),
    (parse_tvm, "S[n:1]", "'n' is not an integer constant"),
    (parse_tvm, "S[4:1] + S[2:4]", "two S"),
    (parse_tvm, "5@laneid", "no S"),
    (parse_tvm, "S[0:1]", "extent 0 is not positive"),
    (parse_tvm, "S[(4,2):1]", "2 extents and 1 strides"),
    (parse_tvm, "ComposeLayout(0,3,3,S[4:1]+R[2:4])", "how a replica under a ComposeLayout"),
    (parse_tvm, "ComposeLayout(0,3,3,S[4:1@laneid])", "moves axis m, not 'laneid'"),
    (parse_tvm, "ComposeLayout(1,3,2,S[64:1])", "atom_len >= swizzle_len"),
    (parse_tvm, "ComposeLayout(0,3,3,S[64:-1])", "negative offset"),
    (parse_triton, "{}", "a dict of bases"),
    (parse_triton, "5", "a dict of bases"),
    (parse_triton, "{'a': [[1, 'x']]}", "not a vector of integers"),
    (parse_triton, "{'a': [1, 2]} -> {'o': 3}", "'o' has size 3, which is not a power of two"),
    (parse_triton, "{'a': [1, 4]} -> {'o': 4}", "4 is outside 'o' of size 4"),
    (parse_triton, "{'a': [[1, 0], [2]]}", "1 values for 2 outputs"),
    (parse_triton, "(" * 300, "unexpected input"),
    (parse_tilelang, "[8] -> i / 2", "'i / 2' is not integer index arithmetic"),
    (parse_tilelang, "[8] -> q", "'q' is not an index variable"),
    (parse_tilelang, "[8] -> buffer[i]", "not integer index arithmetic"),
    (parse_tilelang, "[8] -> i // (i - i)", "may be zero"),
    (parse_tilelang, "[8] -> i * 4611686018427387904", "64-bit"),
    (parse_tilelang, "[8] -> ()", "no forward value"),
    (parse_tilelang, "[0] -> i", "has no elements"),
    (parse_tilelang, "[16 16] -> i", "the extent '16 16' is not an integer constant"),
    (parse_tilelang, "PartialFragment([8], replicate=2)", "addends, not equal copies"),
    (
        parse_tilelang,
        "PartialFragment((8,) -> (1,), replicate: 4 (combine 2 x copy 2), thread: 32,"
        " forward_thread: _i * 4 + _rep, forward_index: (0,))",
        "addends, not equal copies",
    ),
    (parse_tilelang, "import os", "unexpected input"),
    (parse_tilelang, "__import__('os')", "not a Layout or a Fragment"),
]


@pytest.mark.parametrize(("parse", "text", "rule"), REFUSED, ids=[t[:28] for _, t, _ in REFUSED])
def test_text_refused(parse, text, rule):
    with pytest.raises(LayoutTextError, match=rule.replace("(", r"\(").replace("*", r"\*")):
        parse(text)


def test_values_of_known_texts():
    layout = parse_tvm("S[(8,4,2):(4@laneid,1@laneid,1)]")
    assert layout.map.codomain.names == ("laneid", "m")
    assert layout.map(5, 3, 1) == (23, 1)
    fragment = parse_tilelang("[16,16] -> (i%8*4+j%8//2, (i//8)*4+(j//8)*2+j%2)")
    assert isinstance(fragment, TileLangFragment)
    assert fragment.map(9, 5) == (6, 5)
    held = fragment.placement.contents()
    assert len(held) == 256 and all(len(elements) == 1 for elements in held.values())
    linear = parse_triton(
        '{"register":[[0,1],[8,0]],"lane":[[0,2],[0,4],[1,0],[2,0],[4,0]],"warp":[[0,8],[16,0]]}'
    )
    assert linear.apply({"register": 3, "lane": 31, "warp": 2}) == {"dim0": 31, "dim1": 7}
    with pytest.raises(LayoutError, match="inputs"):
        linear.apply({"register": 3, "lane": 31})


def test_operations_of_the_texts_are_the_peers():
    """OR, minimum, maximum, selection and the arithmetic shift, against Python on every point."""
    text = (
        "[16] -> ((i | 5), min(i, 7), max(i, 7), Select(i < 4, i * 3, i), (i - 8) >> 1, i << 2,"
        " i if i < 9 else 2)"
    )
    layout = parse_tilelang(text)
    for i in range(16):
        select = i * 3 if i < 4 else i
        expected = (i | 5, min(i, 7), max(i, 7), select, (i - 8) >> 1, i << 2, i if i < 9 else 2)
        assert layout.map(i) == expected
