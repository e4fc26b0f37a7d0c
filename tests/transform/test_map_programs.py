"""MapPrograms: one thread a program, with a guard only where the last group is not full."""

import pytest
import tvm

from tvm_tilex.errors import LoweringError
from tvm_tilex.transform import MapPrograms

ROOT = 'for program in T.parallel(8, annotations={"tilex.parallel": 0}):\n'
BODY = ROOT + "    out[program, 0] = x[program, 1]\n"


def mapped(blocks, threads, guard):
    guard = f"    if blockIdx_x * {threads} + threadIdx_x < 8:\n    " if guard else ""
    at = f"blockIdx_x * {threads} + threadIdx_x"
    return (
        f'with T.launch_thread("blockIdx.x", {blocks}) as blockIdx_x:\n'
        f'    threadIdx_x = T.launch_thread("threadIdx.x", {threads})\n'
        f"{guard}    out[{at}, 0] = x[{at}, 1]\n"
    )


@pytest.mark.parametrize(
    ("threads", "blocks", "group", "guard"),
    [(256, 1, 8, False), (4, 2, 4, False), (3, 3, 3, True), (5, 2, 5, True)],
)
def test_threads_and_guard(function, check, threads, blocks, group, guard):
    after = function(mapped(blocks, group, guard), stage="scheduled")
    check(MapPrograms(threads=threads), function(BODY), after)


def test_each_root_is_a_launch_of_its_own(function, check):
    before = function(BODY + BODY.replace('"tilex.parallel": 0', '"tilex.parallel": 1'))
    after = function(mapped(2, 4, False) * 2, stage="scheduled")
    check(MapPrograms(threads=4), before, after)


def test_a_root_without_programs_disappears(function, check):
    empty = BODY.replace("T.parallel(8", "T.parallel(0")
    check(
        MapPrograms(threads=4),
        function(empty + BODY),
        function(mapped(2, 4, False), stage="scheduled"),
    )
    check(MapPrograms(), function(empty), function("T.evaluate(0)\n", stage="scheduled"))


def test_a_root_that_is_not_parallel_is_our_error(function):
    """Raised inside a pass, it keeps its type through TVM's C++."""
    before = function("out[0, 0] = x[0, 0]\n")
    with pytest.raises(LoweringError, match="kernel: a root statement is not parallel"):
        MapPrograms()(tvm.IRModule({"kernel": before}))
