"""``tilex bench``: right kernels are timed beside a copy, wrong ones are not, and how it exits."""

import json

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.tools import bench_command, bench_timing

CATALOG = tx.kernels.catalog()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few argument sets: nothing here asserts a time."""
    monkeypatch.setattr(bench_timing, "_last_level_cache", lambda: 1 << 16)


def rows(result):
    return json.loads(result.out)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_json_has_the_facts(tilex, dtype):
    command = ("bench", "rmsnorm", "--shape", "64x256", "--dtype", dtype, "--rounds", 2, "--json")
    result = tilex(*command)
    assert result.code == 0 and result.err == ""
    (row,) = rows(result)
    assert (row["kernel"], row["shape"], row["dtype"]) == ("rmsnorm", [64, 256], dtype)
    assert (row["target"], row["right"]) == ("llvm", True)
    assert row["useful_bytes"] == CATALOG["rmsnorm"].useful_bytes(64, 256, dtype)
    seconds = row["seconds"]
    assert 0 < seconds["least"] <= seconds["median"] <= seconds["most"]
    assert row["bytes_per_second"] == pytest.approx(row["useful_bytes"] / seconds["median"])
    rate = row["bytes_per_second"] / row["copy_bytes_per_second"]
    assert row["fraction_of_copy"] == pytest.approx(rate)


def test_a_row_for_each_shape_of_a_library_kernel(tilex):
    shapes = ("--shape", "3x4096", "--shape", "7x33", "--shape", "64x1")
    result = tilex("bench", "softmax", *shapes, "--rounds", 1)
    assert result.code == 0
    for shape in ("3x4096", "7x33", "64x1"):
        assert shape in result.out
    assert "of the copy" in result.out and "reference map" in result.out


def test_a_kernel_of_the_users_own(tilex, file):
    result = tilex("bench", f"{file}:doubled", "--shape", "5x100", "--rounds", 1, "--json")
    (row,) = rows(result)
    assert result.code == 0 and row["useful_bytes"] == 2 * 5 * 100 * 4
    shapes = ("--shape", "1x9", "--shape", "9")
    result = tilex("bench", f"{file}:row_of", *shapes, "--rounds", 1, "--json")
    assert result.code == 0 and rows(result)[0]["useful_bytes"] == 72


def test_a_wrong_kernel_is_not_timed(tilex, monkeypatch):
    stock = CATALOG["row_sum"].oracle
    monkeypatch.setattr(
        "tvm_tilex.kernels.registry.KernelEntry.expected",
        lambda self, arguments: (stock(arguments[0]) * 1.01,),
    )
    monkeypatch.setattr(bench_timing.HostBench, "time", None)  # would fail if it were called
    result = tilex("bench", "row_sum", "--shape", "3x40")
    assert result.code == 1 and "WRONG" in result.out
    result = tilex("bench", "row_sum", "--shape", "3x40", "--json")
    (row,) = rows(result)
    assert result.code == 1 and row["right"] is False and row["seconds"] is None


def test_no_rows_are_right_and_untimed(tilex):
    result = tilex("bench", "softmax", "--shape", "0x40", "--json")
    assert result.code == 0 and rows(result)[0]["seconds"] is None


def test_the_simulator_has_no_clock(tilex):
    result = tilex("bench", "softmax", "--shape", "3x40", "--target", "metal")
    assert result.code == 1 and "the simulator of metal has no clock" in result.err
    assert result.err.count("\n") == 1


def test_cuda_without_a_gpu_is_refused(tilex):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = tilex("bench", "softmax", "--shape", "3x40", "--target", "cuda")
    assert result.code == 1 and "this process has no CUDA device" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("softmax",),
        ("softmaxx", "--shape", "3x40"),
        ("softmax", "--shape", "40"),
        ("softmax", "--shape", "3x40", "--rounds", "0"),
        ("softmax", "--shape", "3x40", "--dtype", "int32"),
        ("nowhere.py:kernel", "--shape", "3x40"),
    ],
)
def test_bad_usage_is_exit_code_2(tilex, arguments):
    result = tilex("bench", *arguments)
    assert result.code == 2 and result.err.startswith("tilex: ")


def test_an_option_that_cannot_be_met_is_exit_code_1(tilex):
    result = tilex("bench", "softmax", "--shape", "3x40", "--threads-per-group", "64")
    assert result.code == 1 and result.err.startswith("tilex: ")


def test_sets_pass_three_caches_within_the_memory():
    count = bench_timing.set_count
    assert count(size=10, cache=100, memory=1000) == 31
    assert count(size=10, cache=100, memory=120) == 12
    assert count(size=500, cache=100, memory=1000) == 2
    assert count(size=5000, cache=100, memory=1000) == 1
    assert count(size=0, cache=100, memory=1000) == 301


def test_each_set_is_its_own_memory():
    seen = set()

    def function(x, out):
        seen.add((x.ctypes.data, out.ctypes.data))

    arrays = (np.zeros(1000, np.float32), np.zeros(1000, np.float32))
    timing = bench_timing.HostBench().time(function, arrays, 8000, rounds=2)
    assert len(seen) == timing.sets > 20


def test_a_view_that_is_read_and_written_counts_twice():
    @tx.tile_kernel
    def add_one(x: tx.TensorView[tx.float32, 1, tx.InOut]):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            x(tx.coord(0), tx.shape(n)).store(x[tx.coord(0), tx.shape(n)] + 1.0)

    assert bench_command.useful_bytes(tx.compile(add_one, (10,))) == 80
