"""A maximum and a sum of exponentials that share one exchange: what is proved, and the numbers."""

import re

import cuda_on_cpu
import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.analysis.admission import admit
from tvm_tilex.analysis.rescaling import rescaled_sums
from tvm_tilex.build.pipeline import before_planning
from tvm_tilex.tirx.compat import tvm

VIEW = tx.TensorView
RESCALED, UNORDERED = "rescaled_tree", "unordered_tree"
WIDTH = 515  # ragged over four SIMD groups
FOUR_GROUPS = {"threads_per_group": 128, "max_reduction_striped_scalars_per_worker": 1000}


def sum_kernel(element, *, policy=RESCALED, peak_of=None, shift=None, exp=tx.exp):
    """``out[p] = sum(exp(element(x) - shift(max(peak_of(x)))))``; the sum has ``policy``."""
    peak_of, shift = peak_of or element, shift or (lambda peak: peak)

    @tx.tile_kernel
    def total(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        one = tx.axis("one", 1)
        for nest in tx.parallel(tx.shape(rows)):
            row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
            peak = tx.reduce(peak_of(row), columns, tx.maximum)
            found = tx.reduce(exp(element(row) - shift(peak)), columns, tx.add, policy=policy)
            out(tx.coord(nest.index()), tx.shape(one)).store(found)

    return total


PLAIN = sum_kernel(lambda row: row)


def compiled(kernel, columns=WIDTH, rows=4, target="metal", **options):
    specs = (tx.spec((rows, columns)), tx.spec((rows,)))
    chosen = tx.CompileOptions(**{**FOUR_GROUPS, **options})
    return tx.compile(kernel, *specs, target=target, options=chosen)


def pairs_of(artifact):
    module = tvm.ir.transform.Sequential(before_planning(artifact.target))(artifact.tirx)
    (function,) = module.functions.values()
    return rescaled_sums(admit(function, lanes=32, kind=artifact.target.kind.name).program.body)


def barriers(artifact):
    return len(re.findall(r"threadgroup_barrier\(|__syncthreads\(", artifact.source))


# What the library's kernels do


@pytest.mark.parametrize("target", ["metal", "cuda"])
@pytest.mark.parametrize("name", ["cross_entropy", "logsumexp"])
def test_the_library_exchanges_once(name, target):
    entry = kernels.catalog()[name]
    artifact = tx.compile(
        entry.kernel,
        *entry.specs(4, 2048, "float32"),
        target=target,
        options=tx.CompileOptions(**FOUR_GROUPS),
    )
    assert barriers(artifact) == 1
    assert artifact.plan.barrier_sites == 1
    assert artifact.plan.shared_bytes == 2 * 4 * 4  # both reductions, four SIMD groups


@pytest.mark.parametrize(("kept", "expected"), [("loaded", 1), ("preserve", 2)])
def test_softmax_exchanges_once_where_its_exponentials_are_not_kept(kept, expected):
    entry = kernels.catalog()["softmax"]
    options = tx.CompileOptions(**FOUR_GROUPS, shared_tile_materialization=kept)
    specs = entry.specs(4, 2048, "float32")
    artifact = tx.compile(entry.kernel, *specs, target="cuda", options=options)
    assert barriers(artifact) == artifact.plan.barrier_sites == expected


def test_a_cluster_exchanges_once():
    entry = kernels.catalog()["cross_entropy"]
    options = tx.CompileOptions(
        threads_per_group=256, reduction_blocks_per_program=4, reduction_lane_elements=4
    )
    specs = entry.specs(4, 32768, "float32")
    artifact = tx.compile(entry.kernel, *specs, target="h200", options=options)
    text = artifact.source[artifact.source.rindex("__global__") :]
    assert text.count("tilex_cluster_arrive();") == text.count("tilex_cluster_wait();") == 1
    assert text.count("tilex_cluster_send(") == 2  # a maximum and a sum, into one mailbox
    assert text.count("tilex_cluster_receive(") == 1


def test_one_simd_group_exchanges_nothing():
    artifact = compiled(PLAIN, threads_per_group=32)
    assert artifact.plan.independent_subgroups and barriers(artifact) == 0
    assert "base_" not in artifact.source


# What is proved, and what is not


@pytest.mark.parametrize("exp", [tx.exp, tx.exp2])
def test_both_exponentials_are_rescaled(exp):
    artifact = compiled(sum_kernel(lambda row: row, exp=exp))
    assert len(pairs_of(artifact)) == 1 and barriers(artifact) == 1


def test_a_shift_by_a_function_of_the_maximum_waits_for_the_whole_maximum():
    kernel = sum_kernel(lambda row: row, shift=lambda peak: tx.where(peak > 3.0, 3.0, peak))
    artifact = compiled(kernel)
    (pair,) = pairs_of(artifact)
    assert barriers(artifact) == 1
    assert pair.after  # the shift's own statement


NOT_RESCALED = {
    "the policy does not permit it": sum_kernel(lambda row: row, policy=UNORDERED),
    "other elements": sum_kernel(lambda row: row * 2.0, peak_of=lambda row: row),
    "the maximum of an expression": sum_kernel(lambda row: row, peak_of=lambda row: tx.abs(row)),
    "no exponential": sum_kernel(lambda row: row, exp=lambda value: value * value),
    "a function of the exponential": sum_kernel(
        lambda row: row, exp=lambda value: tx.exp(value) * 2.0
    ),
    "no difference": sum_kernel(lambda row: row, exp=lambda value: tx.exp(value + 1.0)),
}


@pytest.mark.parametrize("case", NOT_RESCALED)
def test_what_is_not_proved_keeps_two_exchanges(case):
    artifact = compiled(NOT_RESCALED[case])
    assert pairs_of(artifact) == ()
    assert artifact.plan.barrier_sites == barriers(artifact) == 2


def test_a_shift_of_its_own_for_each_element_is_not_rescaled():
    @tx.tile_kernel
    def total(x: VIEW[tx.float32, 2], bias: VIEW[tx.float32, 1], out: VIEW[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        one = tx.axis("one", 1)
        for nest in tx.parallel(tx.shape(rows)):
            row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
            peak = tx.reduce(row, columns, tx.maximum)
            shift = peak + bias[tx.coord(0), tx.shape(columns)]
            found = tx.reduce(tx.exp(row - shift), columns, tx.add, policy=RESCALED)
            out(tx.coord(nest.index()), tx.shape(one)).store(found)

    specs = (tx.spec((4, WIDTH)), tx.spec((WIDTH,)), tx.spec((4,)))
    artifact = tx.compile(total, *specs, target="metal", options=tx.CompileOptions(**FOUR_GROUPS))
    assert pairs_of(artifact) == () and barriers(artifact) == 2


def test_a_minimum_is_not_rescaled():
    @tx.tile_kernel
    def total(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        one = tx.axis("one", 1)
        for nest in tx.parallel(tx.shape(rows)):
            row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
            least = tx.reduce(row, columns, tx.minimum)
            found = tx.reduce(tx.exp(row - least), columns, tx.add, policy=RESCALED)
            out(tx.coord(nest.index()), tx.shape(one)).store(found)

    artifact = compiled(total)
    assert pairs_of(artifact) == () and barriers(artifact) == 2


def test_one_sum_shares_the_exchange_of_its_maximum_and_the_next_has_its_own():
    @tx.tile_kernel
    def both(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        one = tx.axis("one", 1)
        for nest in tx.parallel(tx.shape(rows)):
            row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
            peak = tx.reduce(row, columns, tx.maximum)
            first = tx.reduce(tx.exp(row - peak), columns, tx.add, policy=RESCALED)
            second = tx.reduce(tx.exp2(row - peak), columns, tx.add, policy=RESCALED)
            out(tx.coord(nest.index()), tx.shape(one)).store(first + second)

    artifact = compiled(both)
    assert len(pairs_of(artifact)) == 1
    assert artifact.plan.barrier_sites == barriers(artifact) == 2
    x = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    out = np.full(4, np.nan, np.float32)
    artifact(x, out)
    centered = x.astype(float) - x.max(-1, keepdims=True)
    np.testing.assert_allclose(out, (np.exp(centered) + np.exp2(centered)).sum(-1), rtol=1e-5)


@pytest.mark.parametrize("combiner", [tx.maximum, tx.minimum])
def test_the_policy_is_of_float_sums(combiner):
    @tx.tile_kernel
    def wrong(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        one = tx.axis("one", 1)
        for nest in tx.parallel(tx.shape(rows)):
            row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
            found = tx.reduce(row, columns, combiner, policy=RESCALED)
            out(tx.coord(nest.index()), tx.shape(one)).store(found)

    with pytest.raises(tx.errors.DTypeError, match="rescaled_tree is a policy of float sums"):
        compiled(wrong)


# Numbers


def rows_of_every_kind():
    """Rows whose parts, of one SIMD group each, are of all sorts of magnitudes."""
    generator = np.random.default_rng(7)
    normal = generator.normal(size=WIDTH).astype(np.float32)
    group = (np.arange(WIDTH) // 32) % 4  # the SIMD group that owns an element where V = 1
    rows = [
        normal,
        np.where(group == 2, -np.inf, normal),
        np.where(group != 1, -np.inf, normal - 200),
        np.full(WIDTH, -np.inf),
        np.where(np.arange(WIDTH) == 77, np.inf, normal),
        np.where(np.arange(WIDTH) == 300, np.nan, normal),
        np.where(group == 0, -3e38, normal),
        np.where(group == 3, 3e38, -3e38),
        np.full(WIDTH, 3.4e38),
        np.where(group == 1, normal - 1000, normal + 1000),
        np.where(np.arange(WIDTH) % 2, np.inf, -np.inf),
        np.zeros(WIDTH),
        np.where(group == 1, -90.0, 0.0),
    ]
    return np.stack(rows).astype(np.float32)


def expected_of(x, exp, shift):
    with np.errstate(all="ignore"):
        wide = x.astype(float)
        return exp(wide - shift(wide.max(-1, keepdims=True))).sum(-1)


def same(found, expected):
    assert np.array_equal(np.isnan(found), np.isnan(expected)), (found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_allclose(found[number], expected[number].astype(np.float32), rtol=2e-6)


SHIFTS = {
    "the maximum": (lambda peak: peak, lambda peak: peak),
    "zero where it is infinite": (
        lambda peak: tx.where(tx.abs(peak) == float("inf"), 0.0, peak),
        lambda peak: np.where(np.isinf(peak), 0.0, peak),
    ),
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("function", ["exp", "exp2"])
def test_the_numbers_in_the_simulator(function, shift):
    x = rows_of_every_kind()
    ours, wanted = SHIFTS[shift]
    kernel = sum_kernel(lambda row: row, exp=getattr(tx, function), shift=ours)
    artifact = compiled(kernel, rows=len(x))
    assert barriers(artifact) == 1
    out = np.full(len(x), -1, np.float32)
    artifact(x, out)
    expected = expected_of(x, getattr(np, function), wanted)
    unspecified = np.isnan(x).any(-1)  # Metal's maximum may drop a NaN
    same(out[~unspecified], expected[~unspecified])


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("storage", ["register", "shared"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_the_numbers_of_the_cuda_text(shift, storage, tmp_path):
    x = rows_of_every_kind()
    ours, wanted = SHIFTS[shift]
    kernel = sum_kernel(lambda row: row, shift=ours)
    artifact = compiled(kernel, rows=len(x), target="cuda", reduction_stripe_storage=storage)
    assert (artifact.plan.staged_bytes > 0) == (storage == "shared")
    assert barriers(artifact) == 1
    out = np.full(len(x), -1, np.float32)
    cuda_on_cpu.run(artifact, [x, out], tmp_path)
    same(out, expected_of(x, np.exp, wanted))


@pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "cross_entropy"])
@pytest.mark.parametrize(
    ("rows", "columns", "threads"), [(3, 1000, 128), (2, 33, 64), (5, 4095, 1024)]
)
def test_the_library_against_fp64(name, dtype, rows, columns, threads, tmp_path):
    entry = kernels.catalog()[name]
    options = tx.CompileOptions(
        threads_per_group=threads,
        shared_tile_materialization="loaded",
        max_reduction_striped_scalars_per_worker=1000,
    )
    artifact = tx.compile(
        entry.kernel, *entry.specs(rows, columns, dtype), target="cuda", options=options
    )
    assert barriers(artifact) == 1
    arguments = list(entry.arguments(rows, columns, dtype))
    for position in entry.outputs:
        arguments[position][...] = np.nan
    cuda_on_cpu.run(artifact, arguments, tmp_path)
    assert all(comparison.within for comparison in entry.check(arguments))
