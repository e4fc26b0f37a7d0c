"""Inverses come with a proof, and only for bijections."""

import pytest

from tvm_tilex.layout import (
    DISPROVEN,
    UNKNOWN,
    BitLinear,
    FiniteTable,
    IndexSet,
    choose,
    index_map,
    lt,
    ne,
    parse_cute_layout,
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


@pytest.mark.parametrize("budget", [0, 1 << 12])
def test_injective_bit_linear_maps_are_inverted_on_their_image(budget):
    for map in (
        BitLinear(B(x=16), B(y=64), (((3,), (12,), (48,), (21,)),)),
        index_map(B(i=8, j=8), B(x=16, y=128), lambda i, j: (i ^ j, (j << 4) ^ j ^ 5)),
        index_map(B(i=6, j=8), B(x=256), lambda i, j: i * 32 + (i ^ j)),
    ):
        assert try_inverse(map, budget).verdict.kind is DISPROVEN
        _check_on_image(map, try_inverse(map, budget, on_image=True))


def test_small_maps_without_digits_are_inverted_by_a_table():
    for map in (
        index_map(B(i=8), B(x=8), lambda i: i * 3 % 8),
        index_map(B(i=5), B(x=5), lambda i: i * i * i % 5),
        index_map(B(i=5), B(x=50), lambda i: i * i * 2),
        FiniteTable(B(a=2, b=2), B(x=9), ((3,), (1,), (8,), (0,))),
        index_map(B(i=8), B(x=20), lambda i: choose(lt(i, 4), i * 2 + 1, i * 2 + 4)),
        index_map(B(i=8).where(lambda i: ne(i, 3)), B(x=8), lambda i: i ^ 1),
        parse_cute_layout("S<3,0,3> o 0 o (6,10):(10,1)").to_map(),
    ):
        answer = try_inverse(map, on_image=True)
        assert isinstance(answer.value, FiniteTable)
        _check_on_image(map, answer)
        small = try_inverse(map, 4, on_image=True)
        assert small.verdict.kind is UNKNOWN and small.value is None


def _check_on_image(map, answer):
    assert answer.verdict.proven
    image = set()
    for point in map.domain.points():
        value = map(*point)
        image.add(value if isinstance(value, tuple) else (value,))
        back = answer.value(*(value if isinstance(value, tuple) else (value,)))
        assert (back if isinstance(back, tuple) else (back,)) == point
    assert set(answer.value.domain.points()) == image
