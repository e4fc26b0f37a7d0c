"""Each reduction policy bit for bit on LLVM, on inputs where the orders differ."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from compiled_programs import compiled, outputs_of

import tvm_tilex as tx
from tvm_tilex.build.target import host_target
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.types import numpy_dtype

VIEW = tx.TensorView
F32 = tx.float32

POLICIES = [policy for policy in tx.ReductionPolicy if policy.ordered]
LENGTHS = [*range(1, 18), 31, 32, 33, 63, 65, 127, 1000]


def sums(policy, contribution, dtype="float32", axis=1):
    """Sum of contributions over one axis of a matrix."""
    view = VIEW[dtype, 2]

    @tx.tile_kernel
    def order(x: view, out: VIEW[F32, 1, tx.Out]):
        a, b = tx.axis("a", x.extent(0)), tx.axis("b", x.extent(1))
        reduced, kept = (b, a) if axis == 1 else (a, b)
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            tile = contribution(x[tx.coord(0, 0), tx.shape(a, b)])
            total = tx.reduce(tile, reduced, tx.add, policy=policy)
            out(tx.coord(0), tx.shape(kept)).store(tx.cast(total, "float32"))

    return order


def square(tile):
    return tile * tile


def data(shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(numpy_dtype(tx.ir.types.dtype_of(dtype)))


def run_both(kernel, x, kept):
    out = np.full(kept, np.nan, np.float32)
    artifact = tx.compile(kernel, x, out)
    artifact(x, out)
    return out, interpret(artifact.tile_ir, [x])[0]


def assert_bits(got, want):
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("axis", [0, 1])
def test_sum_of_squares_over_4096(policy, axis):
    """LLVM contracts x*x + s by default, which changes the last digit of a fold."""
    x = data((3, 4096) if axis == 1 else (4096, 3))
    got, want = run_both(sums(policy, square, axis=axis), x, 3)
    assert_bits(got, want)


def test_the_orders_differ_on_this_input_and_fusing_would_show():
    x = data((3, 4096))
    found = [run_both(sums(policy, square), x, 3)[1] for policy in POLICIES]
    assert len({bits.tobytes() for bits in found}) == len(POLICIES)
    fused = np.zeros(3, np.float32)
    for column in x.T.astype(np.float64):
        fused = (column * column + fused).astype(np.float32)
    assert (fused != found[POLICIES.index(tx.ReductionPolicy.fold_left)]).any()


@pytest.mark.parametrize("policy", POLICIES)
def test_through_plain_tvm_compile_for_this_processor(policy):
    x = data((3, 4096))
    kernel = sums(policy, square)
    module = tvm.compile(
        tx.lower(kernel, x.shape, (3,)),
        target={"kind": "llvm", "mcpu": str(host_target().attrs["mcpu"])},
        tir_pipeline="tilex",
    )
    out = np.zeros(3, np.float32)
    module["order"](*map(tvm_ffi.from_dlpack, (x, out)))
    assert_bits(out, interpret(kernel.capture([tx.spec(x.shape), tx.spec((3,))]), [x])[0])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_tiles_keep_their_state_in_fp32(policy, dtype):
    """Contributions are rounded to the tile's type, the running state is not."""
    x = data((2, 777), dtype)
    got, want = run_both(sums(policy, square, dtype), x, 2)
    assert_bits(got, want)
    narrow = np.float32(0)
    for value in square(x[0]):
        narrow = (narrow + value).astype(x.dtype)
    assert narrow != got[0]


def test_ordered_tree_of_every_length():
    """All lengths in one program, whose tree the interpreter defines."""
    length = max(LENGTHS)

    @tx.tile_kernel
    def trees(x: VIEW[F32, 1], out: VIEW[F32, 1, tx.Out], *, lengths: tuple):
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            for place, n in enumerate(lengths):
                tile = x[tx.coord(0), tx.shape(tx.axis(f"n{n}", n))]
                total = tx.reduce(tile, tx.axis(f"n{n}", n), tx.add, policy="ordered_tree")
                out(tx.coord(place), tx.shape(1)).store(total)

    trees.function.__kwdefaults__ = {"lengths": tuple(LENGTHS)}
    x, out = data(length), np.zeros(len(LENGTHS), np.float32)
    artifact = tx.compile(trees, x, out)
    artifact(x, out)
    assert_bits(out, interpret(artifact.tile_ir, [x])[0])
    # Two elements, and the split at the largest power of two below the length.
    assert out[1] == x[0] + x[1]
    assert out[4] == ((x[0] + x[1]) + (x[2] + x[3])) + x[4]


@pytest.mark.parametrize("extent", [4, 64, 100, 4096])
def test_unordered_sums_are_exact_where_every_order_is(extent):
    """Integers below 2**24: each order gives the same sum, so lanes and tails must add up."""
    x = np.random.default_rng(1).integers(-9, 10, (5, extent)).astype(np.float32)
    got, want = run_both(sums("unordered_tree", lambda tile: tile), x, 5)
    assert_bits(got, want)
    assert_bits(got, x.sum(axis=1))


def test_ordered_and_unordered_in_one_program():
    @tx.tile_kernel
    def both(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            tile = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
            left = tx.reduce(tile * tile, columns, tx.add, policy="fold_left")
            peak = tx.reduce(tile, columns, tx.maximum)
            out(tx.coord(nest.index(), 0), tx.shape(1, 1)).store(left)
            out(tx.coord(nest.index(), 1), tx.shape(1, 1)).store(peak)

    x = data((7, 300))
    program = both.capture([tx.spec((7, 300)), tx.spec((7, 2))])
    got = outputs_of(program, compiled(program), {"x": x})[0]
    assert_bits(got, interpret(program, [x])[0])
