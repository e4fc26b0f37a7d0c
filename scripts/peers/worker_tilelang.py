"""Worker for TileLang: Layout, Fragment, and its own CuTe module (a third implementation)."""

import itertools
from functools import partial
from importlib.metadata import version

import tilelang  # noqa: F401  (puts its own tvm on the path)
import tilelang.layout.cute as cute
import tvm
import tvm_ffi
from tilelang.layout import Fragment, Layout

from scripts.peers.protocol import lists, serve, timed, tuples

ANALYZER = tvm.arith.Analyzer()


def integer(expr):
    return int(ANALYZER.simplify(expr)) if not isinstance(expr, int) else expr


def function(names, body):
    return eval(f"lambda {', '.join(names)}: {body}", {"__builtins__": {}})


def build(case):
    axes, values = case["axes"], case["values"]
    if case["kind"] == "layout":
        return Layout(case["shape"], function(axes, f"({', '.join(values)},)"))
    rep = ["rep"] if case["replicate"] > 1 else []
    return fragment(
        case["shape"],
        forward_thread_fn=function([*axes, *rep], values[0]),
        replicate=case["replicate"],
        forward_index_fn=function(axes, f"({', '.join(values[1:])},)"),
    )


def forward(shape, function):
    """Build a Layout; TileLang refuses a Python integer as a forward value."""

    def index(*point):
        values = function(*point)
        row = values if isinstance(values, tuple) else (values,)
        return tuple(tvm.tirx.IntImm("int32", v) if isinstance(v, int) else v for v in row)

    return Layout(shape, index)


def fragment(shape, *, forward_thread_fn, replicate=1, forward_index_fn):
    """Build a Fragment; several local indices must come as an ffi Array, a tuple is nested."""

    def index(*point):
        values = forward_index_fn(*point)
        return tvm_ffi.convert(list(values) if isinstance(values, tuple) else [values])

    return Fragment(
        shape,
        forward_thread_fn=forward_thread_fn,
        replicate=replicate,
        forward_index_fn=index,
    )


def values_of(native, case):
    """Rows in the order of (coordinates, rep), rep fastest; TileLang takes the replica first."""
    extents = case["shape"] + ([case["replicate"]] if case["replicate"] > 1 else [])
    rank = len(case["shape"])
    found = []
    for point in itertools.product(*map(range, extents)):
        first = list(point[rank:]) + list(point[:rank])
        index = [integer(e) for e in native.map_forward_index(first)]
        if case["kind"] == "layout":
            found.append(index)
            continue
        found.append([integer(native.map_forward_thread(first)[0]), *index])
    return found


def roundtrip(case):
    from tvm_tilex.layout.bridges import TileLangFragment, TileLangLayout, parse_tilelang

    native = build(case)
    kind = TileLangLayout if case["kind"] == "layout" else TileLangFragment
    ours = kind.from_native(native)
    printed = parse_tilelang(str(native))
    again = eval(str(ours), {"Layout": forward, "Fragment": fragment})
    return {
        "text": str(ours),
        "printed": str(printed),
        "values": values_of(again, case),
    }


def layout(form):
    return cute.make_layout(*tuples(form))


def evaluate_cute(form):
    made = layout(form)
    return [integer(made(i)) for i in range(integer(cute.size(made)))]


def show(made):
    return [lists(made.shape), lists(made.stride)]


def apply(name, **forms):
    return show(getattr(cute, name)(*(layout(form) for form in forms.values())))


def roundtrip_cute(form):
    from tvm_tilex.layout.bridges.cute import from_cute

    ours = from_cute(layout(form))
    return {"text": str(ours), "values": list(ours.values())}


ONE = ["coalesce", "right_inverse", "left_inverse"]
TWO = ["composition", "logical_divide", "logical_product", "tiled_product", "blocked_product"]
HANDLERS = {
    "version": lambda: {"tilelang": version("tilelang"), "torch": version("torch")},
    "evaluate_forward": lambda case: values_of(build(case), case),
    "roundtrip_forward": roundtrip,
    "evaluate": evaluate_cute,
    "cosize": lambda form: integer(cute.cosize(layout(form))),
    "roundtrip": roundtrip_cute,
    "time": partial(timed, layout, lambda x, i: x(i), lambda x: integer(cute.size(x))),
    "complement": lambda A, extent: show(cute.complement(layout(A), extent)),
    **{n: partial(apply, n) for n in (*ONE, *TWO)},
}

if __name__ == "__main__":
    serve(HANDLERS)
