"""Worker for the CuTe DSL (nvidia-cutlass-dsl): the loop runs inside ``@cute.jit``, on the host."""

from functools import partial
from importlib.metadata import version

import cutlass.cute as cute

from scripts.peers.protocol import lists, serve, timed, tuples

ONE = ["coalesce", "right_inverse", "left_inverse"]
TWO = [
    "composition", "logical_divide", "zipped_divide", "tiled_divide", "flat_divide",
    "logical_product", "zipped_product", "tiled_product", "flat_product", "blocked_product",
    "raked_product",
]  # fmt: skip


def build(form):
    if isinstance(form, dict):
        swizzle = cute.make_swizzle(*form["swizzle"])
        return cute.make_composed_layout(swizzle, form["offset"], build(form["layout"]))
    shape, stride = tuples(form)
    return cute.make_layout(shape, stride=stride)


def show(layout):
    return [lists(layout.shape), lists(layout.stride)]


def evaluate(form):
    layout = build(form)
    return [int(layout(i)) for i in range(int(cute.size(layout)))]


def roundtrip(form):
    from tvm_tilex.layout.bridges.cute import from_cute, to_cute_dsl

    ours = from_cute(build(form))
    again = to_cute_dsl(ours, cute)
    return {
        "text": str(ours),
        "values": [int(again(i)) for i in range(int(cute.size(again)))],
    }


def apply(name, **forms):
    return show(getattr(cute, name)(*(build(form) for form in forms.values())))


def recast(form, old_bits, new_bits):
    layout = cute.recast_layout(new_bits, old_bits, build(form))
    return [int(layout(i)) for i in range(int(cute.size(layout)))]


HANDLERS = {
    "version": lambda: {"nvidia-cutlass-dsl": version("nvidia-cutlass-dsl")},
    "evaluate": evaluate,
    "cosize": lambda form: int(cute.cosize(build(form))),
    "roundtrip": roundtrip,
    "recast": recast,
    "time": partial(timed, build, lambda x, i: x(i), lambda x: int(cute.size(x))),
    "complement": lambda A, extent: show(cute.complement(build(A), extent)),
    **{n: partial(apply, n) for n in (*ONE, *TWO)},
}


@cute.jit
def main():
    serve(HANDLERS)


if __name__ == "__main__":
    main()
