"""Worker for NVIDIA's pycute (package nvidia-cutlass; PyPI's pycute is another project)."""

from functools import partial
from importlib.metadata import version

import pycute

from scripts.peers.protocol import lists, serve, timed, tuples


def build(form):
    if isinstance(form, dict):
        inner = build(form["layout"])
        return pycute.ComposedLayout(pycute.Swizzle(*form["swizzle"]), form["offset"], inner)
    return pycute.Layout(*tuples(form))


def show(layout):
    return [lists(layout.shape), lists(layout.stride)]


def plain(name, *names):
    function = getattr(pycute, name, None)
    if function is None:
        return None
    return lambda A, **rest: show(function(build(A), *(_operand(rest[n]) for n in names)))


def _operand(value):
    return build(value) if isinstance(value, (list, dict)) else value


def evaluate(form):
    layout = build(form)
    return [layout(i) for i in range(layout.size())]


def cosize(form):
    return build(form).cosize()


def roundtrip(form):
    from tvm_tilex.layout.bridges.cute import from_cute, to_pycute

    ours = from_cute(build(form))
    again = to_pycute(ours, pycute)
    return {"text": str(ours), "values": [again(i) for i in range(again.size())]}


HANDLERS = {
    "version": lambda: {"nvidia-cutlass": version("nvidia-cutlass")},
    "evaluate": evaluate,
    "cosize": cosize,
    "roundtrip": roundtrip,
    "time": partial(timed, build, lambda x, i: x(i), lambda x: x.size()),
    "coalesce": plain("coalesce"),
    "composition": plain("composition", "B"),
    "complement": plain("complement", "extent"),
    "right_inverse": plain("right_inverse"),
    "left_inverse": plain("left_inverse"),
    "logical_divide": plain("logical_divide", "B"),
    "zipped_divide": plain("zipped_divide", "B"),
    "tiled_divide": plain("tiled_divide", "B"),
    "logical_product": plain("logical_product", "B"),
    "zipped_product": plain("zipped_product", "B"),
    "tiled_product": plain("tiled_product", "B"),
}

if __name__ == "__main__":
    serve({name: handler for name, handler in HANDLERS.items() if handler})
