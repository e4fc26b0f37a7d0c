"""The defining law of every operator on random layouts, negative strides included, by enumeration.

Nothing here uses a map, a proof or another operator: the judge reads values only.
"""

from itertools import product as cartesian
from math import prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tvm_tilex.layout import (
    CuteLayout,
    OperatorError,
    blocked_product,
    coalesce,
    complement,
    composition,
    filter,
    filter_zeros,
    flat_divide,
    flat_product,
    left_inverse,
    logical_divide,
    logical_product,
    raked_product,
    right_inverse,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)

LAWS = settings(max_examples=60, deadline=None)
EXTENTS = st.sampled_from([1, 2, 2, 3, 4, 5, 6, 8])


@st.composite
def layouts(draw, low=-12, limit=3):
    """Compact, padded, or arbitrary strides; sometimes a nested mode."""
    rank = draw(st.integers(1, limit))
    shape = tuple(draw(EXTENTS) for _ in range(rank))
    if draw(st.booleans()):
        steps, below = [0] * rank, 1
        for k in draw(st.permutations(range(rank))):
            steps[k] = below * (draw(st.sampled_from([1, 1, 1, -1])) if low < 0 else 1)
            below = below * shape[k] + draw(st.sampled_from([0, 0, 0, 1, 2]))
        stride = tuple(steps)
    else:
        stride = tuple(draw(st.integers(low, 12)) for _ in range(rank))
    if rank == 3 and draw(st.booleans()):
        shape, stride = (shape[0], shape[1:]), (stride[0], stride[1:])
    return CuteLayout(shape, stride)


def digit_sum(layout, index):
    """The definition; past the size the last digit goes on."""
    total = 0
    pairs = list(layout.digits)
    for extent, step in pairs[:-1]:
        total += index % extent * step
        index //= extent
    return total + index * pairs[-1][1]


def values(layout):
    if isinstance(layout, CuteLayout):
        return [digit_sum(layout, i) for i in range(layout.size())]
    return list(layout.values())


@LAWS
@given(layouts())
def test_coalesce_and_filter(a):
    whole = values(a)
    short = coalesce(a).layout
    assert values(short) == whole
    extents = [n for n, _ in short.digits]
    assert 1 not in extents or extents == [1]
    assert all(n * s != t for (n, s), (_, t) in zip(short.digits, short.digits[1:], strict=False))
    assert values(coalesce(a, (1,) * a.rank).layout) == whole
    assert set(values(filter(a).layout)) == set(whole) == set(values(filter_zeros(a).layout))


@LAWS
@given(layouts(), layouts(low=0))
def test_composition(a, b):
    inner = values(b)
    result = composition(a, b, unbounded_last_mode=True).layout
    assert values(result) == [digit_sum(a, x) for x in inner]
    if max(inner) < a.size():
        assert values(composition(a, b).layout) == values(result)
    else:
        with pytest.raises(OperatorError, match="past the domain"):
            composition(a, b)


@settings(LAWS, max_examples=150)
@given(layouts(low=0, limit=2), layouts(low=0, limit=2))
def test_a_composition_is_flat_where_any_flat_layout_exists(a, b):
    assume(max(values(b)) < a.size() and b.size() <= 24)
    result = composition(a, b).layout
    wanted = [a(x) for x in values(b)]
    if not isinstance(result, CuteLayout):
        assert not any(_is_layout(wanted, shape) for shape in _refinements(b.shape))


def _refinements(shape):
    """Flat shapes that split each leaf of a shape into ordered factors."""
    leaves = CuteLayout(shape).digits
    for parts in cartesian(*(list(_factorizations(n)) for n, _ in leaves)):
        yield tuple(f for part in parts for f in part)


def _factorizations(n):
    yield (n,)
    for first in range(2, n):
        if n % first == 0:
            for rest in _factorizations(n // first):
                yield (first, *rest)


def _is_layout(wanted, shape):
    steps, below = [], 1
    for extent in shape:
        steps.append(wanted[below] if extent > 1 else 0)
        below *= extent
    return values(CuteLayout(shape, tuple(steps))) == wanted


@LAWS
@given(layouts(), st.integers(1, 6), st.booleans())
def test_complement(a, factor, round_up):
    image = set(values(a))
    target = len(image) * factor
    injective = len(image) == prod(n for n, step in a.digits if step)
    try:
        result = complement(a, target, round_up=round_up).layout
    except OperatorError:
        assert not injective or round_up or not _has_complement(image, target)
        return
    assert injective
    free = values(result)
    assert free == sorted(set(free)) and 0 not in [n for n, _ in result.digits]
    covered = sorted(x + y for x in image for y in free)
    assert covered == list(range(len(covered)))
    assert len(covered) >= target and (round_up or len(covered) == target)


def _has_complement(image, target):
    """Whether some set of translates tiles [0, target): greedy, since the least gap is forced."""
    if min(image) < 0 or target % len(image):
        return False
    taken: set[int] = set()
    shifts = []
    for x in range(target):
        if x in taken:
            continue
        moved = {x + v for v in image}
        if moved & taken or max(moved) >= target:
            return False
        taken |= moved
        shifts.append(x)
    return any(_is_layout(shifts, shape) for shape in _factorizations(len(shifts)))


DIVIDES = (logical_divide, zipped_divide, tiled_divide, flat_divide)
PRODUCTS = (logical_product, zipped_product, tiled_product, flat_product)


@LAWS
@given(layouts(), layouts(low=0, limit=2), st.booleans())
def test_divide_by_a_layout(a, b, round_up):
    tile = values(b)
    for divide in DIVIDES:
        try:
            result = divide(a, b, round_up=round_up).layout
        except OperatorError:
            assert len(set(tile)) < len(tile) or not _has_complement(set(tile), a.size())
            continue
        found = values(result)
        assert found[: len(tile)] == [digit_sum(a, x) for x in tile]
        if not round_up:
            assert sorted(found) == sorted(values(a))
        assert set(values(a)) <= set(found)


@LAWS
@given(layouts(), st.lists(st.sampled_from([1, 2, 3, 4, None]), min_size=1, max_size=3))
def test_divide_by_modes(a, tiler):
    tiler = tuple(tiler)[: a.rank]
    sizes = [mode.size() for mode in a.modes]
    fits = all(t is None or n % t == 0 for t, n in zip(tiler, sizes, strict=False))
    if not fits:
        with pytest.raises(OperatorError):
            zipped_divide(a, tiler)
        result = zipped_divide(a, tiler, round_up=True).layout
        assert set(values(a)) <= set(values(result))
        return
    result = zipped_divide(a, tiler).layout
    inside = [n if t is None else t for t, n in zip(tiler, sizes, strict=False)]
    for point in cartesian(*(range(n) for n in sizes)):
        tile = tuple(x % t for x, t in zip(point, inside, strict=False))
        rest = tuple(x // t for x, t in zip(point, inside, strict=False)) + point[len(tiler) :]
        assert result(tile, rest) == a(point)
    same = flat_divide(a, tiler).layout
    assert values(same) == values(result) == values(tiled_divide(a, tiler).layout)


@LAWS
@given(layouts(), layouts(low=0, limit=2))
def test_product(a, b):
    block, order = values(a), values(b)
    for multiply in PRODUCTS:
        found = values(multiply(a, b).layout)
        assert len(found) == len(block) * len(order)
        _check_copies(block, order, found)
    rank = max(a.rank, b.rank)
    for multiply in (blocked_product, raked_product):
        paired = multiply(a, b).layout
        assert sorted(values(paired)) == sorted(found)
        assert len(paired.shape) == rank


def _check_copies(block, order, found):
    """Each tile is the block moved; equal places coincide, different ones are disjoint."""
    moves = {}
    for k, place in enumerate(order):
        tile = found[k * len(block) : (k + 1) * len(block)]
        moved = tile[0] - block[0]
        assert [x - moved for x in tile] == block
        assert moves.setdefault(place, moved) == moved
    copies = [{x + moved for x in block} for moved in moves.values()]
    assert sum(map(len, copies)) == len(set().union(*copies))


@LAWS
@given(layouts())
def test_inverses(a):
    right = right_inverse(a).layout
    assert [a(x) for x in values(right)] == list(range(right.size()))
    injective = len(set(values(a))) == a.size()
    try:
        left = left_inverse(a).layout
    except OperatorError as error:
        assert not injective or min(values(a)) < 0 or "no digit system" in str(error)
        return
    assert injective
    assert [digit_sum(left, x) for x in values(a)] == list(range(a.size()))


@LAWS
@given(layouts(low=0, limit=2))
def test_a_right_inverse_is_as_long_as_any_layout(a):
    found = right_inverse(a).layout
    lookup = {}
    for index, value in enumerate(values(a)):
        lookup.setdefault(value, index)
    reach = next(n for n in range(a.size() + 2) if n not in lookup)
    assume(len(set(values(a))) == a.size() and reach <= 40)
    for size in range(found.size() + 1, reach + 1):
        wanted = [lookup[k] for k in range(size)]
        assert not any(_is_layout(wanted, s) and prod(s) == size for s in _factorizations(size))
