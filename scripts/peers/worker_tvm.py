"""Worker for TVM's own TileLayout and ComposeLayout, in the environment of the project."""

import itertools
from importlib.metadata import version

import tvm
from tvm.tirx.layout import Axis, ComposeLayout, Iter, TileLayout

from scripts.peers.protocol import serve

ANALYZER = tvm.sym.Analyzer()
BINARY = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "BitwiseXor": lambda a, b: a ^ b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
}
CALLS = {
    "bitwise_xor": "BitwiseXor",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "shift_left": "LShift",
    "shift_right": "RShift",
}


def integer(expr, known=None):
    """Evaluate; TVM's simplifier does not fold Let, XOR or shifts."""
    if isinstance(expr, int):
        return expr
    kind = type(expr).__name__
    if kind == "IntImm":
        return int(expr.value)
    if kind in ("Var", "PrimVar"):
        return known[expr.name]
    if kind == "Let":
        return integer(expr.body, {**(known or {}), expr.var.name: integer(expr.value, known)})
    if kind == "Cast":
        return integer(expr.value, known)
    if kind == "Call":
        a, b = (integer(x, known) for x in expr.args)
        return BINARY[CALLS[expr.op.name.rpartition(".")[2]]](a, b)
    return BINARY[kind](integer(expr.a, known), integer(expr.b, known))


def build(case):
    shard = [Iter(n, d, a) for n, d, a in case["shard"]]
    replica = [Iter(n, d, a) for n, d, a in case["replica"]]
    tile = TileLayout.from_iters(shard, replica, dict(map(tuple, case["offset"])))
    if not case.get("swizzle"):
        return tile
    bits, base, shift = case["swizzle"]
    return ComposeLayout(base, bits, abs(shift), tile, shift >= 0)


def locations(native, extents, shape=None):
    """Per element the sorted locations of all copies; replicas are enumerated here."""
    tile = getattr(native, "tile_layout", native)
    replica = [(it.axis.name, integer(it.extent), integer(it.stride)) for it in tile.replica]
    found = []
    for point in itertools.product(*map(range, extents)):
        if len(extents):
            base = native.apply(*point, shape=shape) if shape else apply(native, point)
        else:
            base = native.apply(0)
        base = {str(k): integer(v) for k, v in base.items()}
        copies = []
        for copy in itertools.product(*(range(n) for _, n, _ in replica)):
            where = dict(base)
            for digit, (axis, _, stride) in zip(copy, replica, strict=True):
                where[axis] = where.get(axis, 0) + digit * stride
            copies.append(sorted([n, v] for n, v in where.items() if v))
        found.append(sorted(copies))
    return found


def apply(native, point):
    return native.apply(*point)


def extents_of(case):
    return [n for n, _, _ in case["shard"]]


def roundtrip(case):
    from tvm_tilex.layout.bridges import parse_tvm
    from tvm_tilex.tirx.tile_layout import from_native, to_native

    native = build(case)
    ours = from_native(native)
    assert from_native(to_native(ours)) == ours, "export and import differ"
    return {
        "text": str(ours),
        "printed": str(parse_tvm(str(native))),
        "values": locations(to_native(ours), extents_of(case)),
    }


HANDLERS = {
    "version": lambda: {n: version(n) for n in ("apache-tvm", "apache-tvm-ffi")},
    "evaluate": lambda case: locations(build(case), extents_of(case)),
    "evaluate_shape": lambda case: locations(build(case), case["shape"], case["shape"]),
    "span": lambda case: integer(build(case).span()),
    "roundtrip": roundtrip,
    "axis": lambda name: str(Axis.get(name).name),
}

if __name__ == "__main__":
    serve(HANDLERS)
