"""``parse_triton``: the spellings in which Triton and its users write a linear layout."""

from __future__ import annotations

import ast
import re
from typing import Any

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.bridges.literal import callee, literal, parse_expression, refuse
from tvm_tilex.layout.bridges.triton import TritonLayout
from tvm_tilex.layout.errors import LayoutTextError

__all__ = ["parse_triton"]

_PEER = "triton"
_ATTRIBUTE = re.compile(r"^#\w+(?:\.\w+)?\s*<\s*\{(.*)\}\s*>$", re.DOTALL)
_LINE = re.compile(r"^\s*(?:-\s*)?(\w+)=(\d+) -> \(([-\d, ]*)\)\s*$")
_SINGLE = re.compile(r"^\s*-\s*(\w+) is a size 1 dimension\s*$")
_OUTS = re.compile(r"^\s*where out dims are: \[(.*)\]\s*$")
_SIZE = re.compile(r"(\w+) \(size (\d+)\)")
_GLUON = {"reg": "register", "lane": "lane", "warp": "warp", "block": "block"}


def parse_triton(text: str) -> TritonLayout:
    """Return the layout of a text in one of Triton's spellings.

    Read are ``{"register": [[0, 1], [8, 0]], "lane": [...]}`` (bare integers for one output), the
    same followed by ``-> {"dim0": 32, "dim1": 16}``, a call ``LinearLayout(bases, out_dims)``,
    the print of a ``LinearLayout``, the attribute ``#ttg.linear<{register = [[0, 1]], ...}>``
    and Gluon's ``DistributedLinearLayout(reg_bases=..., shape=[...])``. Output sizes that are not
    written are the least powers of two that hold the vectors.

    Raises
    ------
    LayoutTextError
        Where the text is none of these, or breaks a rule of :class:`TritonLayout`.
    """
    try:
        if "where out dims are" in text:
            return _printed(text)
        attribute = _ATTRIBUTE.match(text.strip())
        if attribute is not None:
            text = f"dict({attribute.group(1)})"
        head, arrow, tail = text.partition("->")
        outs = literal(_PEER, parse_expression(_PEER, tail)) if arrow else None
        return _from_tree(parse_expression(_PEER, head), outs)
    except LayoutTextError:
        raise
    except (LayoutError, TypeError, ValueError, IndexError) as error:
        raise LayoutTextError(str(error)) from None


def _from_tree(tree: ast.expr, outs: Any) -> TritonLayout:
    if not isinstance(tree, ast.Call):
        value = literal(_PEER, tree)
        if isinstance(value, tuple) and len(value) == 2 and outs is None:
            return _checked(*value)
        return _checked(value, outs)
    keywords = {k.arg: literal(_PEER, k.value) for k in tree.keywords if k.arg}
    kind = callee(tree)
    if kind == "dict":
        return _checked(keywords, outs)
    if kind == "DistributedLinearLayout":
        return _gluon(keywords)
    if kind not in ("LinearLayout", "from_bases"):
        refuse(_PEER, f"'{kind or ast.unparse(tree)[:40]}' is not a linear layout")
    given = [literal(_PEER, a) for a in tree.args]
    bases = keywords.get("bases", given[0] if given else None)
    names = keywords.get("out_dims", given[1] if len(given) > 1 else outs)
    sizes = keywords.get("out_dim_sizes", given[2] if len(given) > 2 else None)
    if sizes is not None and names is not None:
        names = list(zip(names, sizes, strict=True))
    return _checked(bases, names)


def _gluon(keywords: dict[str, Any]) -> TritonLayout:
    bases = {_GLUON[n[:-6]]: v for n, v in keywords.items() if n[:-6] in _GLUON}
    if "shape" not in keywords or not bases:
        refuse(_PEER, "DistributedLinearLayout needs bases and a shape")
    return _checked(bases, [(f"dim{k}", n) for k, n in enumerate(keywords["shape"])])


def _checked(bases: Any, outs: Any) -> TritonLayout:
    if not isinstance(bases, (dict, list)) or not bases:
        refuse(_PEER, "a dict of bases per input dimension is expected")
    pairs = list(bases.items()) if isinstance(bases, dict) else bases
    for pair in pairs:
        named = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
        if not named or not isinstance(pair[1], (list, tuple)):
            refuse(_PEER, f"{pair!r} is not an input dimension with its basis vectors")
        for vector in pair[1]:
            items = vector if isinstance(vector, (list, tuple)) else (vector,)
            if any(type(x) is not int for x in items):
                refuse(_PEER, f"the basis {vector!r} of '{pair[0]}' is not a vector of integers")
    return TritonLayout.from_bases(pairs, outs)


def _printed(text: str) -> TritonLayout:
    """Read what ``print(LinearLayout)`` shows."""
    bases: dict[str, list[tuple[int, ...]]] = {}
    outs: list[tuple[str, int]] = []
    for line in text.splitlines():
        entry, single, last = _LINE.match(line), _SINGLE.match(line), _OUTS.match(line)
        if entry is not None:
            name, weight, vector = entry.groups()
            known = bases.setdefault(name, [])
            if int(weight) != 1 << len(known):
                refuse(_PEER, f"basis {name}={weight} is out of order")
            known.append(tuple(int(x) for x in vector.split(",") if x.strip()))
        elif single is not None:
            bases[single.group(1)] = []
        elif last is not None:
            outs = [(name, int(size)) for name, size in _SIZE.findall(last.group(1))]
        elif line.strip():
            refuse(_PEER, f"unexpected line {line.strip()[:60]!r}")
    return TritonLayout.from_bases(list(bases.items()), outs)
