"""Colours of a picture, light enough for dark text; each is (red, green, blue) in [0, 1]."""

from __future__ import annotations

import colorsys

__all__ = ["around", "blend", "ramp", "slot"]

Colour = tuple[float, float, float]

# A ramp from pale yellow over green to blue, in the spirit of ColorBrewer's YlGnBu.
_RAMP: tuple[Colour, ...] = (
    (1.00, 1.00, 0.90),
    (0.87, 0.95, 0.78),
    (0.70, 0.88, 0.77),
    (0.55, 0.79, 0.82),
    (0.52, 0.68, 0.86),
)
_SLOTS: tuple[Colour, Colour] = ((0.93, 0.93, 0.95), (0.24, 0.27, 0.42))


def blend(a: Colour, b: Colour, t: float) -> Colour:
    """Return the colour at ``t`` between ``a`` (0) and ``b`` (1)."""
    red, green, blue = (x + (y - x) * t for x, y in zip(a, b, strict=True))
    return (red, green, blue)


def ramp(t: float) -> Colour:
    """Return a sequential colour for ``t`` in [0, 1]."""
    place = min(max(t, 0.0), 1.0) * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    return blend(_RAMP[low], _RAMP[low + 1], place - low)


def around(number: int, count: int) -> Colour:
    """Return the colour of one of ``count`` equals: hues in order, neighbours also by lightness."""
    hue = number % max(count, 1) / max(count, 1)
    lightness = (0.86, 0.76)[number % 2] if count > 6 else 0.82
    return colorsys.hls_to_rgb((hue + 0.55) % 1.0, lightness, 0.62)


def slot(number: int, count: int) -> Colour:
    """Return the colour of a value's slot, from light to dark."""
    light, dark = _SLOTS
    return blend(light, dark, number / max(count - 1, 1))
