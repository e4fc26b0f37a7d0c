"""Unrolling of a worker's ordered stripe: visible in the text, invisible in the result."""

import numpy as np
import pytest
from packing_runs import compiled, entry

import tvm_tilex as tx
from tvm_tilex.errors import OptionError

# kernel -> text of one worker-local update of its sum
UPDATES = {"row_sum": "carry1[0] = (carry1[0] + ", "softmax": "carry4[0] = (carry4[0] + "}


def updates_in(artifact, name: str) -> int:
    return artifact.source.count(UPDATES[name])


def outputs(artifact, name, rows, columns):
    arguments = entry(name).arguments(rows, columns)
    artifact.simulate(*arguments)
    return [arguments[position].tobytes() for position in entry(name).outputs]


@pytest.mark.parametrize("unroll", [2, 4, 8])
@pytest.mark.parametrize(
    "options",
    [
        {"threads_per_group": 32},
        {"threads_per_group": 96},
        {"threads_per_group": 64, "reduction_lane_elements": 4},
        {"threads_per_group": 128, "reduction_programs_per_group": 2},
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
@pytest.mark.parametrize("name", ["row_sum", "softmax", "layernorm", "minmax"])
def test_results_are_bitwise_those_of_unroll_1(name, options, unroll):
    plain = compiled(name, 3, 1003, **options)
    unrolled = compiled(name, 3, 1003, reduction_unroll=unroll, **options)
    assert unrolled.source != plain.source
    assert outputs(unrolled, name, 3, 1003) == outputs(plain, name, 3, 1003)


@pytest.mark.parametrize("name", sorted(UPDATES))
@pytest.mark.parametrize("unroll", [1, 2, 4, 8])
def test_the_body_stands_that_often_in_the_text(name, unroll):
    whole = compiled(name, 2, 32 * 16, threads_per_group=32, reduction_unroll=unroll)
    assert updates_in(whole, name) == unroll  # 16 chunks: one loop, nothing left over
    # 13 chunks and 5 elements: the loop, the chunks it leaves, and the bounded rest
    ragged = compiled(name, 2, 32 * 13 + 5, threads_per_group=32, reduction_unroll=unroll)
    assert updates_in(ragged, name) == unroll + 13 % unroll + 1


def test_chunks_fewer_than_the_unrolling_are_written_out():
    artifact = compiled("row_sum", 2, 96, threads_per_group=32, reduction_unroll=8)
    assert updates_in(artifact, "row_sum") == 3
    assert "for (" not in artifact.source


@pytest.mark.parametrize("name", ["row_sum", "softmax"])
def test_plan_and_score_do_not_depend_on_it(name):
    plans = [compiled(name, 3, 4096, reduction_unroll=unroll).plan for unroll in (1, 2, 4, 8)]
    assert plans[1:] == plans[:-1]


@pytest.mark.parametrize("unroll", [0, 3, 16, -1, True, 2.0])
def test_other_amounts_are_errors(unroll):
    with pytest.raises(OptionError, match="reduction_unroll"):
        tx.CompileOptions(reduction_unroll=unroll)


def test_it_needs_no_permission():
    """An ordered reduction beside a distributed one keeps its bits under any unrolling."""

    @tx.tile_kernel
    def both(x: tx.TensorView["float32", 2], out: tx.TensorView["float32", 2, "out"]):  # noqa: F821
        rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
        columns = tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            origin = tx.coord(nest.index(), 0)
            value = x[origin, tx.shape(one, columns)]
            first = tx.reduce(value, columns, tx.add, policy=tx.ReductionPolicy.fold_left)
            out(origin, tx.shape(one, columns)).store(
                value * first - tx.reduce(value, columns, tx.maximum)
            )

    x = np.random.default_rng(3).standard_normal((2, 300), dtype=np.float32)
    results = []
    for unroll in (1, 2, 4, 8):
        artifact = tx.compile(
            both, (2, 300), (2, 300), target="metal",
            options=tx.CompileOptions(threads_per_group=64, reduction_unroll=unroll),
        )  # fmt: skip
        out = np.full_like(x, np.nan)
        artifact.simulate(x, out)
        results.append(out.tobytes())
    assert len(set(results)) == 1
