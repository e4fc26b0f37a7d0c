"""Reads a layout in any of the spellings that are known here, as a map."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import LayoutMap, parse_map

__all__ = ["SYSTEMS", "ReadLayout", "read_layout", "system_of"]

SYSTEMS = ("tilex", "cute", "triton", "tilelang", "tvm", "atom")

_SIGNS = (
    ("atom", re.compile(r"^\s*[A-Za-z]\w*\.\w+\s*$")),
    ("tvm", re.compile(r"^\s*(?:T\.)?(?:TileLayout|ComposeLayout|S\s*\[|R\s*\[)")),
    ("cute", re.compile(r"^\s*Sw?\s*<|\bo\s+-?\d+\s+o\b|_\d")),
    (
        "triton",
        re.compile(r"where out dims are|^\s*#\w|LinearLayout|^\s*\{\s*[\"']|^\s*\(\s*\{\s*[\"']"),
    ),
    ("tilelang", re.compile(r"^\s*(?:T\.)?(?:Layout|Fragment)\b|^\s*\[")),
)
# "S<3,0,3> o layout": the offset between the swizzle and the layout is often left out.
_BARE_SWIZZLE = re.compile(r"(Sw?\s*<[^>]*>)\s*o\s*(?=\(|S|_?\d+\s*(?::|$))")


@dataclass(frozen=True)
class ReadLayout:
    """A layout's map, the system whose spelling it had, and the axes that number copies."""

    map: LayoutMap
    system: str
    replica: tuple[str, ...] = ()


def system_of(text: str) -> str:
    """Return whose spelling ``text`` looks like; ``tilex`` where nothing says otherwise."""
    return next((name for name, sign in _SIGNS if sign.search(text)), "tilex")


def read_layout(text: str, system: str = "auto") -> ReadLayout:
    """Return the layout of ``text``.

    Parameters
    ----------
    text
        Our own text form, or CuTe's, Triton's, TileLang's or TVM's, or an operand of an
        instruction atom, ``mma_m16n8k16_f16_f32.A``.
    system
        Whose spelling it is, or ``auto`` to go by its look.

    Raises
    ------
    LayoutError
        Where the text is not a layout of that system.
    """
    chosen = system_of(text) if system == "auto" else system
    if chosen == "tilex":
        return ReadLayout(parse_map(text), chosen)
    if chosen == "atom":
        return ReadLayout(_operand(text.strip()), chosen)
    if chosen == "cute":
        from tvm_tilex.layout.cute_layout import parse_cute_layout

        layout = parse_cute_layout(_BARE_SWIZZLE.sub(r"\1 o 0 o ", text))
        return ReadLayout(layout.to_map(), chosen)
    from tvm_tilex.layout import bridges

    parsers: dict[str, Any] = {
        "triton": bridges.parse_triton,
        "tilelang": bridges.parse_tilelang,
        "tvm": bridges.parse_tvm,
    }
    found = parsers[chosen](text)
    return ReadLayout(found.map, chosen, found.placement.replica)


def _operand(text: str) -> LayoutMap:
    from tvm_tilex.layout.atoms import ATOMS

    name, _, operand = text.rpartition(".")
    found = ATOMS.get(name)
    if found is None or operand not in found.operands:
        known = ", ".join(f"{a.name}.{{{','.join(a.operands)}}}" for a in ATOMS.values())
        raise LayoutError(f"no instruction atom's operand {text!r}; there are {known}")
    return found.operands[operand].map
