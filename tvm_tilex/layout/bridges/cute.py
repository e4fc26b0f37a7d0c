"""CuTe layouts: real objects in and out, and swizzles in element or byte units.

The plain data is :class:`~tvm_tilex.layout.cute_layout.CuteLayout` and ``ComposedLayout``; no
CuTe package is needed. Real objects are known by their attributes: ``shape`` and ``stride``
(pycute, the CuTe DSL, TileLang's CuTe module), and for a swizzled layout ``layoutB``/``layoutA``
(pycute), ``inner``/``outer`` (DSL) or ``swizzle``/``layout`` (TileLang).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap
from tvm_tilex.layout.bridges.literal import refuse
from tvm_tilex.layout.cute_layout import AnyCuteLayout, ComposedLayout, CuteLayout, Swizzle
from tvm_tilex.layout.int_tuple import IntTuple, with_leaves
from tvm_tilex.layout.nodes import BitLinear
from tvm_tilex.layout.normalize import normalize

__all__ = ["cute_of_map", "from_cute", "recast_cute", "to_cute_dsl", "to_pycute"]

_PEER = "cute"
_CHECKED = 65536  # points to compare where a swizzle reaches into a unit
_SWIZZLES = (
    ("bits", "base", "shift"),
    ("num_bits", "num_base", "num_shift"),
    ("b_bits", "m_base", "s_shift"),
)
_COMPOSED = (("layoutB", "layoutA"), ("inner", "outer"), ("swizzle", "layout"))


def _nest(value: Any, what: str) -> IntTuple:
    if isinstance(value, bool):
        refuse(_PEER, f"the {what} {value!r} is not an integer")
    if isinstance(value, int):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_nest(v, what) for v in value)
    if type(value).__name__ == "IntImm":
        return int(value.value)
    refuse(_PEER, f"the {what} '{value}' is not a static integer")


def from_cute(native: Any) -> AnyCuteLayout:
    """Return the layout of a real object.

    Raises
    ------
    LayoutError
        For a dynamic shape or stride, a stride that is not an integer, a swizzle outside the
        family (``|shift| < bits``, which CuTe DSL evaluates as the identity), or anything that is
        not a layout.
    """
    for outer, inner in _COMPOSED:
        if hasattr(native, outer) and hasattr(native, inner):
            moved = _nest(getattr(native, "offset", 0), "offset")
            if not isinstance(moved, int):
                refuse(_PEER, f"the offset {moved} is not an integer")
            layout = from_cute(getattr(native, inner))
            return ComposedLayout(_outer(getattr(native, outer)), moved, layout)
    if not hasattr(native, "shape") or not hasattr(native, "stride"):
        refuse(_PEER, f"'{type(native).__name__}' has no shape and stride")
    return CuteLayout(_nest(native.shape, "shape"), _nest(native.stride, "stride"))


def _outer(native: Any) -> Swizzle | CuteLayout:
    for names in _SWIZZLES:
        if all(hasattr(native, n) for n in names):
            bits, base, shift = (int(getattr(native, n)) for n in names)
            return Swizzle(bits, base, shift)
    layout = from_cute(native)
    if not isinstance(layout, CuteLayout):
        refuse(_PEER, f"the outer part '{layout}' is neither a swizzle nor shape:stride")
    return layout


def cute_of_map(map: LayoutMap) -> AnyCuteLayout:
    """Return the CuTe layout of a map with one output, a swizzle being looked for.

    As :meth:`CuteLayout.from_map`; in addition a map that is linear over GF(2) is written as
    ``S<bits, base, shift> o shape:stride`` where undoing one swizzle leaves shape:stride. So
    ``i*8 + (j ^ i)`` on 8 x 8 is ``S<3,0,3> o 0 o (8,8):(8,1)``.

    Raises
    ------
    LayoutError
        Where the map is neither.
    """
    try:
        return CuteLayout.from_map(map)
    except LayoutError as error:
        linear = normalize(map)
        found = _swizzled(linear) if isinstance(linear, BitLinear) else None
        if found is None:
            raise error
        return found


def _swizzled(map: BitLinear) -> AnyCuteLayout | None:
    """Try the swizzles from few bits to many; undoing one must leave one bit per basis vector."""
    if map.codomain.rank != 1 or any(map.translation):
        return None
    sizes = map.domain.shape
    if any(n != 1 << len(basis) for n, basis in zip(sizes, map.basis, strict=True)):
        return None
    columns = [[vector[0] for vector in basis] for basis in map.basis]
    top = max((c.bit_length() for basis in columns for c in basis), default=0)
    for swizzle in _family(top):
        undone = [[swizzle(c) for c in basis] for basis in columns]
        bits = [c for basis in undone for c in basis]
        if len(set(bits)) == len(bits) and all(c and not c & (c - 1) for c in bits):
            shape, stride = zip(*(_mode(basis) for basis in undone), strict=True)
            return ComposedLayout(swizzle, 0, CuteLayout(shape, stride))
    return None


def _family(top: int) -> Iterator[Swizzle]:
    for bits in range(1, top // 2 + 1):
        for shift in range(bits, top - bits + 1):
            for base in range(top - bits - shift + 1):
                yield Swizzle(bits, base, shift)
                yield Swizzle(bits, base, -shift)


def _mode(basis: list[int]) -> tuple[IntTuple, IntTuple]:
    """Return shape and stride of one axis: runs of doubling bits are one digit."""
    digits: list[list[int]] = []
    for step in basis:
        if digits and step == digits[-1][0] * digits[-1][1]:
            digits[-1][0] *= 2
        else:
            digits.append([2, step])
    if len(digits) < 2:
        return tuple(digits[0]) if digits else (1, 0)  # type: ignore[return-value]
    return tuple(n for n, _ in digits), tuple(d for _, d in digits)


def to_pycute(layout: AnyCuteLayout, pycute: Any) -> Any:
    """Build the object of NVIDIA's ``pycute`` module.

    Parameters
    ----------
    layout
        The layout.
    pycute
        The imported module (package ``nvidia-cutlass``, not PyPI's ``pycute``).
    """
    if isinstance(layout, CuteLayout):
        return pycute.Layout(layout.shape, layout.stride)
    inner = to_pycute(layout.layout, pycute)
    if isinstance(layout.outer, Swizzle):
        outer = pycute.Swizzle(*layout.outer.arguments)
    else:
        outer = to_pycute(layout.outer, pycute)
    return pycute.ComposedLayout(outer, layout.offset, inner)


def to_cute_dsl(layout: AnyCuteLayout, cute: Any) -> Any:
    """Build the object of ``cutlass.cute``; call it inside a ``@cute.jit`` function.

    Parameters
    ----------
    layout
        The layout.
    cute
        The imported module ``cutlass.cute``.
    """
    if isinstance(layout, CuteLayout):
        return cute.make_layout(layout.shape, stride=layout.stride)
    inner = to_cute_dsl(layout.layout, cute)
    if isinstance(layout.outer, Swizzle):
        outer = cute.make_swizzle(*layout.outer.arguments)
    else:
        outer = to_cute_dsl(layout.outer, cute)
    return cute.make_composed_layout(outer, layout.offset, inner)


def recast_cute(layout: AnyCuteLayout, old_bits: int, new_bits: int) -> AnyCuteLayout:
    """Return the same storage counted in units of ``new_bits`` in place of ``old_bits``.

    A swizzle over bytes becomes one over elements with ``recast_cute(layout, 8, element_bits)``,
    and back. Wider units shrink the digits that fill a unit; narrower ones grow the digit of
    stride 1. Every case is exact: with r old units per new one, the new value is the old one at the
    first coordinate of the unit, divided by r; with r new units per old one it is
    ``r * old(x // r) + x % r`` along the digit of stride 1.

    Raises
    ------
    LayoutError
        Where the widths do not divide each other, a unit is not filled by whole digits, an offset
        cuts a unit, a swizzle moves parts of one (unless it is found not to on any point of a
        layout of up to 65,536), or no digit of stride 1 can hold the narrower parts. (CuTe's
        ``recast_layout`` rounds in some of these cases.)
    """
    if old_bits < 1 or new_bits < 1 or (old_bits % new_bits and new_bits % old_bits):
        raise LayoutError(f"recast: units of {old_bits} and {new_bits} bits do not divide")
    if new_bits >= old_bits:
        return _wider(layout, new_bits // old_bits)
    return _narrower(layout, old_bits // new_bits)


def _wider(layout: AnyCuteLayout, ratio: int) -> AnyCuteLayout:
    if ratio == 1:
        return layout
    if isinstance(layout, CuteLayout):
        return _wider_digits(layout, ratio)
    if layout.offset % ratio:
        raise LayoutError(f"recast: the offset {layout.offset} cuts a unit of {ratio}")
    inner = _wider(layout.layout, ratio)
    outer = _moved_swizzle(layout, -_log2(ratio))
    built = ComposedLayout(outer, layout.offset // ratio, inner)
    if outer.bits < getattr(layout.outer, "bits", 0) and not _same_storage(built, layout, ratio):
        raise LayoutError(f"recast: {layout.outer} moves parts of a unit of {ratio}")
    return built


def _same_storage(wide: ComposedLayout, narrow: ComposedLayout, ratio: int) -> bool:
    """Whether each value of ``wide`` is the unit of its parts in ``narrow``, by enumeration.

    Part k must come at the same distance from part 0 in every unit: no order inside is lost.
    """
    if narrow.size() > _CHECKED:
        return False
    new = list(wide.values())
    places: list[list[int]] = [[] for _ in range(ratio)]
    for index, value in enumerate(narrow.values()):
        part = places[value % ratio]
        if len(part) >= len(new) or value // ratio != new[len(part)]:
            return False
        part.append(index)
    distances = ({b - a for a, b in zip(places[0], part, strict=True)} for part in places)
    return all(len(p) == len(new) for p in places) and all(len(d) == 1 for d in distances)


def _wider_digits(layout: CuteLayout, ratio: int) -> CuteLayout:
    digits = [list(d) for d in layout.digits]
    filled = 1
    while filled < ratio:
        found = [d for d in digits if d[1] == filled and d[0] > 1]
        if not found:
            raise LayoutError(f"recast: no digit of {layout} continues a unit at {filled}")
        digit = found[0]
        take = min(digit[0], ratio // filled)
        if digit[0] % take or (ratio // filled) % take:
            raise LayoutError(f"recast: {digit[0]}:{digit[1]} does not fill units of {ratio}")
        digit[0], digit[1] = digit[0] // take, digit[1] * take
        filled *= take
    for digit in digits:
        if digit[0] == 1:
            digit[1] = 0 if digit[1] % ratio else digit[1]
        elif digit[1] % ratio:
            raise LayoutError(f"recast: stride {digit[1]} of {layout} cuts a unit of {ratio}")
    return CuteLayout(
        with_leaves(layout.shape, tuple(d[0] for d in digits)),
        with_leaves(layout.stride, tuple(d[1] // ratio for d in digits)),
    )


def _narrower(layout: AnyCuteLayout, ratio: int) -> AnyCuteLayout:
    if isinstance(layout, ComposedLayout):
        outer = _moved_swizzle(layout, _log2(ratio))
        return ComposedLayout(outer, layout.offset * ratio, _narrower(layout.layout, ratio))
    units = [k for k, (n, step) in enumerate(layout.digits) if step == 1 and n > 1]
    units = units or [k for k, (_, step) in enumerate(layout.digits) if step == 1]
    if not units:
        raise LayoutError(f"recast: no digit of stride 1 in {layout} holds the {ratio} parts")
    digits = [
        (n * ratio, 1) if k == units[0] else (n, step * ratio)
        for k, (n, step) in enumerate(layout.digits)
    ]
    return CuteLayout(
        with_leaves(layout.shape, tuple(n for n, _ in digits)),
        with_leaves(layout.stride, tuple(step for _, step in digits)),
    )


def _log2(ratio: int) -> int:
    if ratio & (ratio - 1):
        raise LayoutError(f"recast: a swizzle in units of {ratio}, which is not a power of two")
    return ratio.bit_length() - 1


def _moved_swizzle(layout: ComposedLayout, bits: int) -> Swizzle:
    swizzle = layout.outer
    if not isinstance(swizzle, Swizzle):
        raise LayoutError(f"recast: the outer part '{swizzle}' is not a swizzle")
    base = swizzle.base + bits
    return Swizzle(max(swizzle.bits + min(base, 0), 0), max(base, 0), swizzle.shift)
