"""Inverses come with a proof, and only for bijections."""

import pytest

from tvm_tilex.layout import (
    DISPROVEN,
    UNKNOWN,
    BitLinear,
    IndexSet,
    index_map,
    lt,
    parse_map,
    try_inverse,
    unflatten,
)

B = IndexSet.box
RAGGED = B(c=2, w=96, v=4).where(lambda c, w, v: lt((96 * c + w) * 4 + v, 700))
BIJECTIONS = {
    "row major": parse_map("(4,8):(8,1)"),
    "nested": parse_map("(4,(2,2)):(2,(1,8))"),
    "reversed": index_map(B(i=9), B(x=9), lambda i: 8 - i),
    "transposed": index_map(B(i=4, j=6), B(j=6, i=4), lambda i, j: (j, i)),
    "unflatten": unflatten(B(a=3, b=7, c=10)),
    "ragged execution": index_map(RAGGED, B(e=700), lambda c, w, v: (96 * c + w) * 4 + v),
    "swizzle": index_map(B(i=8, j=8), B(i=8, j=8), lambda i, j: (i, j ^ i ^ 3)),
    "gray": index_map(B(i=64), B(x=64), lambda i: i ^ (i >> 1)),
    "wide": index_map(B(i=2**40, j=2**40), B(a=2**40, b=2**40), lambda i, j: (i ^ j, j ^ 9)),
}


@pytest.mark.parametrize("name", BIJECTIONS)
def test_inverse_is_proved_and_right_at_points(name):
    map = BIJECTIONS[name]
    answer = try_inverse(map, budget=0)
    assert answer.verdict.proven, answer
    inverse = answer.value
    for k, point in enumerate(map.domain.points()):
        value = map(*point)
        back = inverse(*(value if isinstance(value, tuple) else (value,)))
        assert (back if isinstance(back, tuple) else (back,)) == point
        if k == 800:
            break


def test_no_inverse_is_invented():
    assert try_inverse(parse_map("(4,8):(1,1)")).verdict.kind is DISPROVEN
    assert try_inverse(parse_map("8:2")).verdict.kind is DISPROVEN
    cube = index_map(B(i=5), B(x=5), lambda i: i * i * i % 5)
    assert try_inverse(cube, budget=0).verdict.kind in (UNKNOWN, DISPROVEN)
    lossy = BitLinear(B(x=8), B(y=8), (((1,), (2,), (3,)),))
    assert try_inverse(lossy, budget=0).verdict.kind is DISPROVEN
