"""Verdicts on one result of one operator, by brute force.

``verdict(op, case, kind, value)`` gives one of

* ``agrees``: the operator's law holds at every point;
* ``refuses``: an error by type, where an answer exists;
* ``none``: a refusal where no answer exists (right);
* ``wrong: ...``: a value that breaks the law, with the kind of the break;
* ``rounded``: no exact answer exists, and the result covers more or less than was asked;
* ``outside``: an input for which the law says nothing (kept out of the other counts);
* ``crashed``: the process died.
"""

from __future__ import annotations

from functools import lru_cache

from scripts.peers import brute

DIVIDES = ("logical_divide", "zipped_divide", "tiled_divide", "flat_divide")
PRODUCTS = (
    "logical_product", "zipped_product", "tiled_product", "flat_product", "blocked_product",
    "raked_product",
)  # fmt: skip
INTERLEAVED = ("blocked_product", "raked_product")
# Two rows for one operator: a composition whose inner values leave A is defined only by CuTe's
# convention that the last mode goes on.
OUTSIDE = "composition (unbounded last mode)"
OPERATORS = ("coalesce", "composition", OUTSIDE, "complement", "right_inverse", "left_inverse")
ALL = (*OPERATORS, *DIVIDES, *PRODUCTS)


def frozen(form):
    """Return a form as nested tuples."""
    return tuple(frozen(x) for x in form) if isinstance(form, (list, tuple)) else form


@lru_cache(maxsize=4096)
def _values(form):
    return tuple(brute.cute_values(form))


def values(form):
    """Values of a form, remembered for plain ones."""
    return brute.cute_values(form) if isinstance(form, dict) else list(_values(frozen(form)))


def extent_of(case):
    """The bound of the complement: four times the size, as in the survey of the peers."""
    return 4 * brute.size(case["A"][0])


def applies(op, case):
    """Whether the operator's row holds this case: a composition is in one of its two rows."""
    if op not in ("composition", OUTSIDE):
        return True
    inside = max(values(case["B"])) < brute.size(case["A"][0])
    return inside == (op == "composition")


def injective(found):
    """Whether no value occurs twice."""
    return len(set(found)) == len(found)


def verdict(op, case, kind, value):
    """Return the verdict of one answer ``(kind, value)`` of a worker or of the package."""
    if kind == "crashed":
        return "crashed"
    if kind == "refused":
        return {True: "refuses", False: "none", None: "outside"}[answer_exists(op, case)]
    if not isinstance(value, dict) and any(n <= 0 for n in brute.leaves(value[0])):
        return "wrong: extent zero or less"
    if op == "left_inverse" and not injective(values(case["A"])):
        return "outside"  # whether one exists is a search, and needed for a refusal only
    if op != "left_inverse" and answer_exists(op, case) is None:
        return "outside"
    if op == "left_inverse":
        points = enumerate(values(case["A"]))
        return "agrees" if all(_at(value, x) == i for i, x in points) else "wrong: value"
    found = values(value)
    broken = _LAWS.get(op, _divide if op in DIVIDES else _product)(op, case, found)
    if broken in ("outside", "rounded"):
        return broken
    return f"wrong: {broken}" if broken else "agrees"


def answer_exists(op, case):
    """True, False, or None where the law does not speak; computed without any operator."""
    a = values(case["A"])
    if op in ("composition", OUTSIDE):
        return True
    if op == "complement":
        return _complement_exists(case["A"], extent_of(case))
    if op == "left_inverse":
        return brute.left_inverse_exists(tuple(a)) if injective(a) else None
    if op in DIVIDES:
        b = values(case["B"])
        if max(b) >= len(a) or not injective(b):
            return None
        return _complement_exists(case["B"], len(a))
    if op in INTERLEAVED:
        apart = injective(a) and injective(values(case["B"]))
        return True if apart and _rank(case["A"]) == _rank(case["B"]) else None
    return True


def _rank(form):
    return len(form[0]) if isinstance(form[0], (list, tuple)) else 1


def _moving(form):
    pairs = zip(brute.leaves(form[0]), brute.leaves(form[1]), strict=True)
    kept = [(n, d) for n, d in pairs if n > 1 and d]
    return [[n for n, _ in kept], [d for _, d in kept]] if kept else [1, 0]


def _complement_exists(form, extent):
    """Whether offsets of some layout tile ``[0, extent)`` with the image (stride 0 left out)."""
    image = values(_moving(form))
    if not injective(image):
        return None
    offsets = brute.tiling(sorted(image), extent)
    return offsets is not None and brute.is_layout_image(offsets)


def _coalesce(op, case, found):
    a = values(case["A"])
    return None if found == a else "size" if len(found) != len(a) else "value"


def _right_inverse(op, case, found):
    a = values(case["A"])
    inside = all(0 <= x < len(a) for x in found)
    return None if inside and [a[x] for x in found] == list(range(len(found))) else "value"


def _composition(op, case, found):
    b = values(case["B"])
    if len(found) != len(b):
        return "size"
    return None if found == [brute.cute_at(*case["A"], x) for x in b] else "value"


def _complement(op, case, found):
    image = values(_moving(case["A"]))
    extent = extent_of(case)
    both = [x + y for y in found for x in image]
    if not injective(both):
        return "overlap"
    if sorted(both) == list(range(extent)):
        return None
    return "partial cover" if _complement_exists(case["A"], extent) else "rounded"


def _divide(op, case, found):
    a, b = values(case["A"]), values(case["B"])
    if len(found) > len(a):
        return "rounded" if not _complement_exists(case["B"], len(a)) else "size"
    if len(found) != len(a):
        return "size"
    if sorted(found) != sorted(a):
        return "set of values"
    return None if found[: len(b)] == [a[x] for x in b] else "tile"


def _product(op, case, found):
    a, b = values(case["A"]), values(case["B"])
    if len(found) != len(a) * len(b):
        return "size"
    apart = injective(a) and injective(b)
    if apart and not injective(found):
        return "aliases"
    if op in INTERLEAVED:
        return None if apart else "outside"
    places = {}
    for j, y in enumerate(b):
        row = found[j * len(a) : (j + 1) * len(a)]
        moved = {v - x for v, x in zip(row, a, strict=True)}
        if len(moved) != 1 or places.setdefault(y, *moved) not in moved:
            return "not the block moved"
    taken = [v for step in places.values() for v in {x + step for x in a}]
    return None if injective(taken) else "aliases"


_LAWS = {
    "coalesce": _coalesce,
    "right_inverse": _right_inverse,
    "composition": _composition,
    OUTSIDE: _composition,
    "complement": _complement,
}


def _at(form, index):
    """Value at any index, the last mode going on (an inverse is read past its size)."""
    if not isinstance(form, dict):
        return brute.cute_at(*form, index)
    inner = form["offset"] + _at(form["layout"], index)
    if "outer" in form:
        return _at(form["outer"], inner)
    return brute.swizzle(*form["swizzle"], inner)
