"""Products: a block repeated as another layout says, each copy in a place of its own."""

from __future__ import annotations

from typing import Any

from tvm_tilex.layout.cute_layout import AnyCuteLayout, CuteLayout
from tvm_tilex.layout.errors import OperatorError
from tvm_tilex.layout.operators import tiling
from tvm_tilex.layout.operators.coalesce import merged
from tvm_tilex.layout.operators.composition import composed, require_modes, tiler_layout
from tvm_tilex.layout.operators.derived import (
    Derived,
    LayoutLike,
    compact,
    concatenated,
    discharge,
    innermost,
    is_empty,
    of_digits,
    scaled,
    unwrap,
    with_innermost,
)
from tvm_tilex.layout.proof import DEFAULT_BUDGET, prove
from tvm_tilex.layout.verdict import Verdict, disproven

__all__ = [
    "blocked_product",
    "flat_product",
    "logical_product",
    "raked_product",
    "tiled_product",
    "zipped_product",
]

Digits = list[tuple[int, int]]


def logical_product(block: LayoutLike, tiler: Any, *, budget: int = DEFAULT_BUDGET) -> Derived[Any]:
    """Return ``(A, R o B)``: first mode the block A, second its copies in the order of B.

    R are the places that A leaves free: the gaps below each of its strides, then steps past its
    end. Where the gaps overlap the block, copies are a whole width of A apart.

    Parameters
    ----------
    block
        A: strides of any sign, zero included, injective or not. Of a composed layout the inner
        layout is repeated; the outer one, for instance a swizzle, acts on the whole.
    tiler
        B: a layout of nonnegative values, an integer ``n`` for ``n:1``, or a tuple of these, None
        and tuples for nested modes, one entry per leading mode of A. A stride of 0 repeats a copy
        in place.

    Returns
    -------
    Derived
        A ``CuteLayout`` where a flat one has these values, else a ``ComposedLayout``. Obligations:
        copies at different values of B are disjoint, and the composition is exact.

    Raises
    ------
    OperatorError
        For a negative value of B, an empty side, or (tuple tilers) copies of different modes that
        overlap, with the colliding points.
    """
    return _product("logical_product", block, tiler, tiling.logical, budget)


def zipped_product(block: LayoutLike, tiler: Any, *, budget: int = DEFAULT_BUDGET) -> Derived[Any]:
    """Return the product as ``((block0, block1, ...), (copies0, copies1, ...))``.

    Parameters, obligations and errors as of :func:`logical_product`.
    """
    return _product("zipped_product", block, tiler, tiling.zipped, budget)


def tiled_product(block: LayoutLike, tiler: Any, *, budget: int = DEFAULT_BUDGET) -> Derived[Any]:
    """Return the product as ``((block0, block1, ...), copies0, copies1, ...)``.

    Parameters, obligations and errors as of :func:`logical_product`.
    """
    return _product("tiled_product", block, tiler, tiling.tiled, budget)


def flat_product(block: LayoutLike, tiler: Any, *, budget: int = DEFAULT_BUDGET) -> Derived[Any]:
    """Return the product as ``(block0, block1, ..., copies0, copies1, ...)``.

    Parameters, obligations and errors as of :func:`logical_product`.
    """
    return _product("flat_product", block, tiler, tiling.flat, budget)


def blocked_product(
    block: LayoutLike, tiler: LayoutLike, *, budget: int = DEFAULT_BUDGET
) -> Derived[Any]:
    """Return ``((block0, copies0), (block1, copies1), ...)``: whole blocks side by side.

    The shorter of the two is filled up with modes of extent 1. Other parameters, obligations and
    errors as of :func:`logical_product`.
    """
    return _paired("blocked_product", block, tiler, tiling.blocked, budget)


def raked_product(
    block: LayoutLike, tiler: LayoutLike, *, budget: int = DEFAULT_BUDGET
) -> Derived[Any]:
    """Return ``((copies0, block0), (copies1, block1), ...)``: blocks interleaved.

    Otherwise as :func:`blocked_product`.
    """
    return _paired("raked_product", block, tiler, tiling.raked, budget)


def _paired(
    operator: str,
    block: LayoutLike,
    tiler: LayoutLike,
    arrange: tiling.Arrangement,
    budget: int,
) -> Derived[Any]:
    source, repeats = unwrap(block), unwrap(tiler)
    plain = innermost(source)
    if not isinstance(repeats, CuteLayout):
        raise OperatorError(f"{operator}: the tiler {repeats} is composed")
    rank = max(plain.rank, repeats.rank)
    ranked = with_innermost(source, _ranked(plain, rank))
    return _product(operator, ranked, _ranked(repeats, rank), arrange, budget)


def _ranked(layout: CuteLayout, rank: int) -> CuteLayout:
    modes = layout.modes
    return concatenated((*modes, *(CuteLayout(1, 0) for _ in range(rank - len(modes)))))


def _product(
    operator: str, block: LayoutLike, tiler: Any, arrange: tiling.Arrangement, budget: int
) -> Derived[Any]:
    source = unwrap(block)
    plain = innermost(source)
    if is_empty(plain):
        raise OperatorError(f"{operator}: the block {plain} is empty")
    law = "copies at different places are disjoint"
    if not isinstance(tiler, tuple):
        whole, parts, verdict = _by_layout(operator, plain, tiler)
        disjoint = discharge(operator, law, verdict)
        result = composed(with_innermost(source, whole), arrange(parts), False, budget)
        return Derived(result.layout, (disjoint, *result.obligations))
    whole, parts = _by_mode(operator, plain, tiler)
    inner = composed(whole, arrange(parts), False, budget)
    disjoint = discharge(operator, law, _injective(inner.layout, budget))
    return Derived(with_innermost(source, inner.layout), (disjoint, *inner.obligations))


def _by_layout(
    operator: str, plain: CuteLayout, tiler: Any
) -> tuple[CuteLayout, tiling.Tiling, Verdict]:
    repeats = _repeats(operator, tiler, "")
    places = _places(plain, repeats.index_range()[1] + 1)
    inside = compact(plain.shape)
    over = scaled(repeats, plain.size())
    parts = tiling.Tiling((inside,), (over,))
    return concatenated((plain, places)), parts, _apart(plain, places)


def _by_mode(
    operator: str, plain: CuteLayout, tiler: tuple[Any, ...], below: int = 1
) -> tuple[CuteLayout, tiling.Tiling]:
    """Return block and places per mode, and the tiling as multiples of ``below``."""
    require_modes(operator, plain, tiler)
    modes: list[CuteLayout] = []
    inside, over, rest, nested = [], [], [], []
    for number, mode in enumerate(plain.modes):
        entry = tiler[number] if number < len(tiler) else None
        if number >= len(tiler):
            rest.append(scaled(compact(mode.shape), below))
            modes.append(mode)
        elif isinstance(entry, tuple):
            whole, parts = _by_mode(operator, mode, entry, below)
            nested.append((number, parts))
            inside.append(parts.nested_inside)
            over.append(parts.nested_over)
            modes.append(whole)
        else:
            repeats = _repeats(operator, 1 if entry is None else entry, f" of mode {number}")
            places = _places(mode, repeats.index_range()[1] + 1)
            inside.append(scaled(compact(mode.shape), below))
            over.append(scaled(repeats, below * mode.size()))
            modes.append(concatenated((mode, places)))
        below *= modes[-1].size()
    built = tiling.Tiling(tuple(inside), tuple(over), tuple(rest), True, tuple(nested))
    return concatenated(modes), built


def _repeats(operator: str, tiler: Any, where: str) -> CuteLayout:
    found = tiler_layout(operator, tiler)
    if not isinstance(found, CuteLayout):
        raise OperatorError(f"{operator}: the tiler {found}{where} is composed")
    if is_empty(found):
        raise OperatorError(f"{operator}: the tiler {found}{where} is empty")
    if found.index_range()[0] < 0:
        raise OperatorError(
            f"{operator}: the tiler {found}{where} has negative values; places count from 0"
        )
    return found


def _places(block: CuteLayout, count: int) -> CuteLayout:
    """Return an injective layout of at least ``count`` places for copies of ``block``."""
    gaps = _gaps(block)
    if gaps is None:
        return CuteLayout(1, block.cosize()).extended(count)
    free, reach = gaps
    return of_digits([*free, (1, reach)]).extended(count)


def _gaps(block: CuteLayout) -> tuple[Digits, int] | None:
    """Return the free digits between the strides of the block, or None where strides overlap."""
    free: Digits = []
    reach = 1
    for extent, step in sorted(_widths(block), key=lambda digit: digit[1]):
        if step < reach:
            return None
        if step // reach > 1:
            free.append((step // reach, reach))
        reach = extent * step
    return free, reach


def _widths(block: CuteLayout) -> Digits:
    """Return the digits that move, with positive strides: the image up to a translation."""
    return [(n, abs(step)) for n, step in merged(block) if step]


def _moving(block: CuteLayout) -> CuteLayout:
    return of_digits([(n, step) for n, step in merged(block) if step])


def _injective(layout: AnyCuteLayout, budget: int) -> Verdict:
    """Whether the modes that move give different values, for a product of several modes."""
    kept = _moving(layout) if isinstance(layout, CuteLayout) else layout
    return prove(kept.to_map(linear=True), budget).injectivity


def _apart(block: CuteLayout, places: CuteLayout) -> Verdict:
    """Whether translates of the block's image by different places are disjoint.

    Where the block itself is not injective, the interval that contains its image stands for it.
    """
    for image in (_moving(block), CuteLayout(block.cosize(), 1)):
        both = concatenated((image, places))
        verdict = prove(both.to_map(linear=True)).injectivity
        if verdict.proven:
            return verdict
    return disproven(f"{verdict.reason}") if verdict.disproven else verdict
