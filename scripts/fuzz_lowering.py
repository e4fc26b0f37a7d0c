"""Compares random programs on LLVM with the interpreter for some time; counterexamples are printed.

    python scripts/fuzz_lowering.py --seconds 600 --seed 1 [--floats] [--roots]

Each program is lowered in both sharing modes, compiled with the verifier after every pass, and run
on ordinary inputs and on inputs with NaN and infinities. The exit code is 1 if any run differs.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS / "ir"), str(TESTS / "lower")]

import compiled_programs as llvm  # noqa: E402
import random_programs as random  # noqa: E402

from tvm_tilex.ir import Binding, Program  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floats", action="store_true", help="floating-point types only")
    parser.add_argument("--roots", action="store_true", help="two root nests a program")
    chosen = parser.parse_args()
    counts = {"programs": 0, "runs": 0, "different": 0}
    until = time.monotonic() + chosen.seconds
    options = {"transcendental": False, "bindings": (Binding.auto,)}
    if chosen.floats:
        options["dtypes"] = ("float32", "bfloat16", "float16")
    drawn = random.programs(**options)

    @seed(chosen.seed)
    @settings(
        max_examples=10**5,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn, drawn)
    def compare(first: Program, second: Program) -> None:
        if time.monotonic() > until:
            raise StopIteration
        program = llvm.captured(first)
        if chosen.roots:
            program = llvm.one_after_the_other(program, llvm.captured(second))
        run(llvm.order_float_sums(program), counts)

    with contextlib.suppress(StopIteration):
        compare()
    print(counts)
    return 1 if counts["different"] else 0


def run(program: Program, counts: dict[str, int]) -> None:
    """Count and print; a difference doesn't end the search."""
    counts["programs"] += 1
    for mode in llvm.BOTH_MODES:
        try:
            function = llvm.compiled(program, mode)
            for special in (False, True):
                counts["runs"] += 1
                inputs = random.inputs_for(program, counts["programs"], special=special)
                llvm.assert_equal(program, inputs, llvm.outputs_of(program, function, inputs), mode)
        except Exception as error:
            counts["different"] += 1
            print(f"{type(error).__name__}: {error}\n{program}\n")


if __name__ == "__main__":
    sys.exit(main())
