"""The package's own answers, in the protocol's plain data."""

from __future__ import annotations

import itertools

from scripts.peers.protocol import lists, tuples
from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import operators, try_inverse
from tvm_tilex.layout.bridges import (
    ComposeLayout,
    Iter,
    TileLangFragment,
    TileLangLayout,
    TileLayout,
    TritonLayout,
    parse_tilelang,
    parse_triton,
    parse_tvm,
    recast_cute,
)
from tvm_tilex.layout.bridges.placement import tabulate
from tvm_tilex.layout.composite import Compose
from tvm_tilex.layout.cute_layout import ComposedLayout, CuteLayout, Swizzle, parse_cute_layout

NAME = "tvm_tilex"


def answer(function, *arguments, **named):
    """Return ``("value", v)`` or ``("refused", why)``; any other exception is a defect."""
    try:
        return "value", function(*arguments, **named)
    except LayoutError as error:
        return "refused", f"{type(error).__name__}: {error}"


# -- CuTe -------------------------------------------------------------------------------------


def cute(form):
    """Return the layout of a form."""
    if isinstance(form, dict):
        outer = Swizzle(*form["swizzle"]) if "swizzle" in form else cute(form["outer"])
        return ComposedLayout(outer, form["offset"], cute(form["layout"]))
    return CuteLayout(*tuples(form))


def form_of(layout):
    """Return the form of a layout."""
    if isinstance(layout, CuteLayout):
        return [lists(layout.shape), lists(layout.stride)]
    rest = {"offset": layout.offset, "layout": form_of(layout.layout)}
    if isinstance(layout.outer, Swizzle):
        return {"swizzle": list(layout.outer.arguments), **rest}
    return {"outer": form_of(layout.outer), **rest}


def cute_operator(op, case, extent):
    """Return the answer of one operator."""
    function = getattr(operators, op, None)
    if op == "complement":
        return answer(lambda: form_of(function(cute(case["A"]), extent).layout))
    if op == "composition (unbounded last mode)":
        function = operators.composition
        return answer(
            lambda: form_of(
                function(cute(case["A"]), cute(case["B"]), unbounded_last_mode=True).layout
            )
        )
    if op in ("coalesce", "right_inverse", "left_inverse"):
        return answer(lambda: form_of(function(cute(case["A"])).layout))
    return answer(lambda: form_of(function(cute(case["A"]), cute(case["B"])).layout))


def cute_values(form):
    """Import, print, read and evaluate through the map of the layout."""
    layout = parse_cute_layout(str(cute(form)))
    direct = list(layout.values())
    try:
        map = layout.to_map(linear=True)
    except LayoutError:
        return direct  # a swizzle of a negative index has values, but no map
    assert [value for _, (value,) in tabulate(map)] == direct
    return direct


def recast_values(form, old_bits, new_bits):
    """Return the values in other units."""
    return list(recast_cute(cute(form), old_bits, new_bits).values())


def cute_map_roundtrip(form):
    """``semantics(export(import(L))) = semantics(L)`` through the map and back."""
    return list(CuteLayout.from_map(cute(form).to_map()).values())


# -- Triton -----------------------------------------------------------------------------------


def triton(layout):
    """Return the layout of a case."""
    return TritonLayout.from_bases(
        [(n, tuples(v)) for n, v in layout["bases"]], [tuple(o) for o in layout["outs"]]
    )


def triton_values(layout):
    """Values at every input, row-major over the input dimensions."""
    return [list(values) for _, values in tabulate(layout.map)]


def triton_operator(op, case):
    """Return the resulting layout of ``invert``, ``compose`` or ``invert_and_compose``."""
    if op == "invert":
        return answer(lambda: _inverse(triton(case["B"])))
    first = triton(case["A"])
    if op == "compose":
        return answer(
            lambda: TritonLayout.from_map(Compose(_named(case["C"], first).map, first.map))
        )
    return answer(lambda: first.invert_and_compose(triton(case["B"])))


def _named(case, first):
    second = triton(case)
    if [n for n, _ in second.in_dims] != [n for n, _ in first.out_dims]:
        raise LayoutError(f"inputs {second.in_dims} are not the outputs {first.out_dims}")
    return second


def _inverse(layout):
    found = try_inverse(layout.map)
    if found.value is None:
        raise LayoutError(str(found.verdict))
    return TritonLayout.from_map(found.value)


# -- TileLang ---------------------------------------------------------------------------------


def tilelang(case):
    """Return the layout of a case, read from the text in which TileLang is called."""
    axes, values = ", ".join(case["axes"]), case["values"]
    if case["kind"] == "layout":
        return parse_tilelang(f"Layout({case['shape']}, lambda {axes}: ({', '.join(values)},))")
    rep = ", rep" if case["replicate"] > 1 else ""
    return parse_tilelang(
        f"Fragment({case['shape']}, forward_thread_fn=lambda {axes}{rep}: {values[0]},"
        f" replicate={case['replicate']},"
        f" forward_index_fn=lambda {axes}: ({', '.join(values[1:])},))"
    )


def tilelang_values(layout):
    """Rows in the order of (coordinates, rep), rep fastest."""
    return [list(values) for _, values in tabulate(layout.map)]


def tilelang_case_values(case):
    """Return the values of a case's own layout."""
    return tilelang_values(tilelang(case))


def tilelang_map_roundtrip(case):
    """Return the values after an export of the map and an import of it."""
    layout = tilelang(case)
    if isinstance(layout, TileLangLayout):
        return tilelang_values(TileLangLayout.from_map(layout.map))
    replica = layout.placement.replica
    again = TileLangFragment.from_map(layout.map, replica[0] if replica else None)
    return tilelang_values(again)


# -- TVM --------------------------------------------------------------------------------------


def tvm(case):
    """Return the layout of a case."""
    iters = {k: tuple(Iter(*it) for it in case[k]) for k in ("shard", "replica")}
    tile = TileLayout(iters["shard"], iters["replica"], tuple(map(tuple, case["offset"])))
    if not case.get("swizzle"):
        return tile
    bits, base, shift = case["swizzle"]
    return ComposeLayout(base, bits, abs(shift), tile, shift >= 0)


def tvm_locations(placement):
    """Per element the sorted locations of all copies, zeros left out."""
    keep = [placement.map.domain.names.index(n) for n in placement.logical]
    shape = [placement.map.domain.shape[k] for k in keep]
    elements = itertools.product(*map(range, shape))
    copies = (placement.copies(*element).elements() for element in elements)
    return [sorted(lists(where) for where in places) for places in copies]


def tvm_map_roundtrip(layout):
    """Return the locations after an export of the map and an import of it."""
    if isinstance(layout, ComposeLayout):
        if layout.swizzle_len == 0:
            return tvm_locations(TileLayout.from_map(layout.map).placement)
        return tvm_locations(ComposeLayout.from_map(layout.map).placement)
    return tvm_locations(TileLayout.from_map(layout.map, layout.placement.replica).placement)


READERS = {"triton": parse_triton, "tilelang": parse_tilelang, "tvm": parse_tvm}
