"""Time of the proofs by class, and Z3 on the same questions in the same run.

``python scripts/benchmark/layout_proofs.py [--z3-timeout-ms 2000]``. Every map is built and
proved anew for each repetition (no cached proof, ranges or forms); the median is taken per map. Z3
(package ``z3-solver``, optional) is asked whether two domain points collide, as 64-bit vectors.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from tvm_tilex.layout import (
    Constant,
    Coordinate,
    ExprVisitor,
    IndexExpr,
    IndexSet,
    LayoutMap,
    Op,
    Operation,
    lt,
    prove,
)

REPETITIONS = 5
B = IndexSet.box
Build = Callable[[], LayoutMap]


def execution(s: int, v: int, n: int) -> Build:
    def build() -> LayoutMap:
        w = 32 * s
        box = B(chunk=-(-n // (w * v)), w=w, v=v)
        chunk, worker, lane = box.coordinates
        e = (w * chunk + worker) * v + lane
        return IndexExpr(box.where(lt(e, n)), B(e=n), (e,))

    return build


def written(domain: IndexSet, codomain: IndexSet, function: Callable[..., object]) -> Build:
    def build() -> LayoutMap:
        values = function(*domain.coordinates)
        return IndexExpr(domain, codomain, values if isinstance(values, tuple) else (values,))

    return build


def classes() -> dict[str, list[Build]]:
    """Return the maps by proof class."""
    return {
        "acceptance (restriction)": [
            execution(s, v, n)
            for s in range(1, 33)
            for v in (1, 2, 4, 8)
            for n in (1, 31, 257, 4095, 50257)
        ],
        "affine dominance": [
            written(B(i=n, j=130, k=7), B(x=n * 1000), lambda i, j, k: i * 1000 + j * 7 + k)
            for n in (3, 50, 4096)
        ],
        "mixed radix, any base": [
            written(
                B(e=r * 7 * 50),
                B(a=50, b=7, c=r),
                lambda e, r=r: (e // (7 * r), e // r % 7, e % r),
            )
            for r in (3, 10, 32, 100)
        ],
        "blocked cyclic, ragged": [
            written(B(e=n), B(c=n, w=96, v=4), lambda e: (e // 384, e // 4 % 96, e % 4))
            for n in (257, 4095, 50257)
        ],
        "GF(2) swizzle": [
            written(B(x=1 << b), B(x=1 << b), lambda x: x ^ ((x & (7 << 7)) >> 3) ^ (x >> 5))
            for b in (10, 16, 30, 60)
        ],
        "GF(2) collision": [
            written(B(i=1 << b, j=1 << b), B(x=1 << b), lambda i, j: i ^ j ^ (i >> 1))
            for b in (5, 20, 40)
        ],
        "affine collision": [
            written(B(i=n, j=n), B(x=10 * n), lambda i, j: 6 * i + 4 * j) for n in (9, 500, 50257)
        ],
        "undecided (square)": [written(B(i=n, j=3), B(x=3 * n * n), lambda i, j: i * i * 3 + j)
                               for n in (50, 5000)],
    }  # fmt: skip


def measure(build: Build) -> tuple[float, str]:
    """Return the median seconds to build and prove, and the verdict on injectivity."""
    times, kind = [], ""
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        proof = prove(build(), budget=0)
        times.append(time.perf_counter() - start)
        kind = proof.injectivity.kind.value
    return statistics.median(times), kind


class _Vectors(ExprVisitor):
    """64-bit vector terms; values of these maps are never negative."""

    def __init__(self, z3, names: dict[str, object]) -> None:
        super().__init__()
        self.z3, self.names = z3, names

    def visit_constant(self, node: Constant):
        return self.z3.BitVecVal(node.value, 64)

    def visit_coordinate(self, node: Coordinate):
        return self.names[node.name]

    def visit_operation(self, node: Operation, left, right):
        z3 = self.z3
        table = {
            Op.ADD: lambda: left + right, Op.SUB: lambda: left - right,
            Op.MUL: lambda: left * right, Op.DIV: lambda: z3.UDiv(left, right),
            Op.MOD: lambda: z3.URem(left, right), Op.XOR: lambda: left ^ right,
            Op.AND: lambda: left & right, Op.SHR: lambda: z3.LShR(left, right),
            Op.SHL: lambda: left << right,
            Op.LT: lambda: z3.If(z3.ULT(left, right), z3.BitVecVal(1, 64), z3.BitVecVal(0, 64)),
        }  # fmt: skip
        return table[node.op]()


def z3_injectivity(z3, map: LayoutMap, timeout_ms: int) -> tuple[float, str]:
    """Return the seconds and the verdict of Z3 on injectivity."""
    start = time.perf_counter()
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    sides = []
    for tag in "ab":
        names = {n: z3.BitVec(f"{n}_{tag}", 64) for n in map.domain.names}
        terms = _Vectors(z3, names)
        for axis in map.domain.axes:
            solver.add(z3.ULT(names[axis.name], z3.BitVecVal(axis.extent, 64)))
        for guard in map.domain.guards:
            solver.add(terms.visit(guard) != 0)
        sides.append((names, [terms.visit(output) for output in map.outputs]))
    (a, x), (b, y) = sides
    solver.add(z3.Or([a[n] != b[n] for n in map.domain.names]))
    solver.add(*[p == q for p, q in zip(x, y, strict=True)])
    answer = str(solver.check())
    kind = {"unsat": "PROVEN", "sat": "DISPROVEN"}.get(answer, "UNKNOWN")
    return time.perf_counter() - start, kind


def largest() -> tuple[int, str]:
    """Return the size of the largest map of this run proved without enumeration."""
    best, text = 0, ""
    for n in (1 << 20, 1 << 31, 1 << 40, 1 << 50):
        f = execution(32, 8, n)()
        if prove(f, 0).all_proven:
            best, text = n, "ragged-capable execution map"
    huge = written(B(i=1 << 62, j=1 << 62), B(i=1 << 62, j=1 << 62), lambda i, j: (i ^ j, j))()
    if prove(huge, 0).all_proven:
        best, text = 1 << 124, "two-axis XOR map, GF(2)"
    return best, text


def main() -> int:
    """Print one line per class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--z3-timeout-ms", type=int, default=2000)
    parser.add_argument("--z3-maps", type=int, default=12, help="maps per class given to Z3")
    given = parser.parse_args()
    try:
        import z3
    except ImportError:
        z3 = None
        print("z3-solver is not installed: its columns are left out", file=sys.stderr)
    for name, builds in classes().items():
        results = [measure(build) for build in builds]
        times = [t * 1e3 for t, _ in results]
        kinds = {k: sum(kind == k for _, kind in results) for _, k in results}
        line = (f"{name:26s} maps {len(builds):4d}  median {statistics.median(times):7.3f} ms  "
                f"max {max(times):7.3f} ms  injectivity {kinds}")  # fmt: skip
        if z3 is not None:
            step = max(len(builds) // given.z3_maps, 1)
            chosen = builds[::step][: given.z3_maps]
            answers = [z3_injectivity(z3, build(), given.z3_timeout_ms) for build in chosen]
            spent = [t * 1e3 for t, _ in answers]
            theirs = {k: sum(kind == k for _, kind in answers) for _, k in answers}
            line += f"  | z3 on {len(chosen)}: median {statistics.median(spent):9.3f} ms {theirs}"
        print(line, flush=True)
    size, text = largest()
    print(
        f"largest map proved without enumeration: {size} points (2^{size.bit_length() - 1}), {text}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
