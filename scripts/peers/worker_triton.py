"""Worker for Triton's LinearLayout; any violated precondition aborts the process."""

import itertools
from importlib.metadata import version

from triton._C.libtriton.linear_layout import LinearLayout

from scripts.peers.protocol import lists, serve


def build(layout, surjective=False):
    names = [n for n, _ in layout["outs"]]
    bases = [(n, vectors) for n, vectors in layout["bases"]]
    return LinearLayout.from_bases(bases, names, [s for _, s in layout["outs"]], surjective)


def values(native):
    names = [n for n, _ in native.bases]
    outs = [n for n, _ in native.out_dims]
    found = []
    for point in itertools.product(*(range(1 << len(v)) for _, v in native.bases)):
        row = native.apply(dict(zip(names, point, strict=True)))
        found.append([row[n] for n in outs])
    return found


def show(native):
    return {"bases": lists(native.bases), "outs": lists(native.out_dims)}


def roundtrip(layout):
    from tvm_tilex.layout.bridges import TritonLayout, parse_triton

    native = build(layout)
    ours = TritonLayout.from_native(native)
    assert parse_triton(str(native)) == ours, "the printed text reads differently"
    again = ours.to_native(LinearLayout)
    return {"text": str(ours), "values": values(again), "equal": again == native}


def facts(layout):
    native = build(layout)
    return {"surjective": native.is_surjective(), "injective": native.is_injective()}


HANDLERS = {
    "version": lambda: {"triton": version("triton")},
    "evaluate": lambda layout: values(build(layout)),
    "roundtrip": roundtrip,
    "facts": facts,
    "invert": lambda layout: show(build(layout).invert()),
    "compose": lambda A, B: show(build(A).compose(build(B))),
    "product": lambda A, B: show(build(A) * build(B)),
    "invert_and_compose": lambda A, B: show(build(A).invert_and_compose(build(B))),
}

if __name__ == "__main__":
    serve(HANDLERS)
