"""The C++ runner gives the library's own results, notices wrong ones and needs no Python."""

import re
import subprocess
import sys

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels


def test_every_ctest_case_passes(runner):
    assert runner.ctest.returncode == 0, runner.ctest.stdout + runner.ctest.stderr
    summary = re.search(r"100% tests passed, 0 tests failed out of (\d+)", runner.ctest.stdout)
    assert summary and int(summary[1]) >= 28, runner.ctest.stdout


@pytest.mark.parametrize(
    ("kernel", "rows", "columns", "dtype"),
    [("softmax", 3, 4096, "float32"), ("rmsnorm", 17, 257, "bfloat16")],
)
@pytest.mark.parametrize("offset", [0, 4])
def test_output_is_bit_for_bit_that_of_the_artifact(
    runner, tmp_path, kernel, rows, columns, dtype, offset
):
    entry = kernels.catalog()[kernel]
    arguments = entry.arguments(rows, columns, dtype)  # the exporter's inputs: same seed
    tx.compile(entry.kernel, *entry.specs(rows, columns, dtype))(*arguments)
    result = tmp_path / "result.npy"
    ran = runner.run(
        "@right.txt", "--write", result, "--offset-bytes", offset, cwd=runner.case(kernel)
    )
    assert ran.returncode == 0, ran.stderr
    assert np.load(result).tobytes() == arguments[-1].tobytes()


@tx.tile_kernel
def choose(
    flags: tx.TensorView[tx.boolean, 1],
    small: tx.TensorView[tx.uint8, 1],
    wide: tx.TensorView[tx.int64, 1],
    chosen: tx.TensorView[tx.int32, 1, tx.Out],
):
    rows, one = tx.axis("rows", flags.extent(0)), tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        at, shape = tx.coord(nest.index()), tx.shape(one)
        value = tx.where(
            flags[at, shape],
            tx.cast(small[at, shape], tx.int32),
            tx.cast(wide[at, shape], tx.int32),
        )
        chosen(at, shape).store(value)


def test_integers_and_booleans_compare_exactly(runner, tmp_path):
    generator = np.random.default_rng(3)
    arrays = {
        "flags": generator.integers(0, 2, 100).astype(bool),
        "small": generator.integers(0, 256, 100).astype(np.uint8),
        "wide": generator.integers(-(2**31), 2**31, 100),
    }
    chosen = np.where(arrays["flags"], arrays["small"], arrays["wide"]).astype(np.int32)
    off_by_one = chosen + (np.arange(100) == 42).astype(np.int32)
    for name, array in {**arrays, "chosen": chosen, "off_by_one": off_by_one}.items():
        np.save(tmp_path / f"{name}.npy", array)
    artifact = tx.compile(choose, *(tx.spec((100,), str(a.dtype)) for a in arrays.values()), (100,))
    artifact.export_library(tmp_path / "choose.so")
    words = ["choose.so", "choose"]
    for name in arrays:
        words += ["--input", f"{name}.npy", "--expect", f"{name}.npy"]
    words += ["--output-like", "chosen.npy", "--expect"]

    right = runner.run(*words, "chosen.npy", cwd=tmp_path)
    assert (right.returncode, right.stdout.count(": right")) == (0, 4), right.stderr
    wrong = runner.run(*words, "off_by_one.npy", "--rtol", 1, "--atol", 9, cwd=tmp_path)
    assert wrong.returncode == 1
    assert f"at [42]: got {chosen[42]}, expected {chosen[42] + 1}" in wrong.stderr


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_bit_pattern_of_a_16_bit_type_is_read_exactly(runner, tmp_path, dtype):
    bits = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    element = kernels.catalog()["softmax"].arguments(1, 1, dtype)[0].dtype
    values = bits.view(element)
    np.save(tmp_path / "x.npy", values if dtype == "float16" else bits)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        np.save(tmp_path / "x64.npy", values.astype(np.float64))
    spec = tx.spec((256, 256), dtype)
    tx.compile(kernels.softmax, spec, spec).export_library(tmp_path / "softmax.so")
    words = ("softmax.so", "softmax", "--input", "x.npy", "--output", f"{dtype}:256x256")
    ran = runner.run(*words[:4], "--expect", "x64.npy", *words[4:], cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_nan_matches_only_nan_and_infinity_only_itself(runner, tmp_path):
    x = np.array([[1.0, np.nan], [-np.inf, 0.0], [1.0, 2.0]], np.float32)
    tx.compile(kernels.row_min, (3, 2), (3,)).export_library(tmp_path / "row_min.so")
    np.save(tmp_path / "x.npy", x)

    def judged(*expected):
        np.save(tmp_path / "expected.npy", np.array(expected))
        words = ("--input", "x.npy", "--output", "float32:3", "--expect", "expected.npy")
        huge = ("--rtol", "1e30", "--atol", "1e30")  # no tolerance excuses these
        return runner.run("row_min.so", "row_min", *words, *huge, cwd=tmp_path).returncode

    assert judged(np.nan, -np.inf, 1.0) == 0
    assert judged(0.0, -np.inf, 1.0) == 1
    assert judged(np.nan, np.inf, 1.0) == 1
    assert judged(np.nan, -1e300, 1.0) == 1
    assert judged(np.nan, -np.inf, np.nan) == 1


@tx.tile_kernel
def first_two_rows(
    source: tx.TensorView[tx.float32, 2], target: tx.TensorView[tx.float32, 2, tx.InOut]
):
    rows, one = tx.axis("rows", 2), tx.axis("one", 1)
    columns = tx.axis("columns", source.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at, shape = tx.coord(nest.index(), 0), tx.shape(one, columns)
        target(at, shape).store(source[at, shape])


def test_an_argument_is_updated_in_place_and_what_is_never_stored_shows(runner, tmp_path):
    np.save(tmp_path / "ones.npy", np.ones((3, 5), np.float32))
    np.save(tmp_path / "zeros.npy", np.zeros((3, 5), np.float32))
    np.save(tmp_path / "updated.npy", np.ones((3, 5), np.float32) * [[1], [1], [0]])
    tx.compile(first_two_rows, (3, 5), (3, 5)).export_library(tmp_path / "rows.so")
    words = ("rows.so", "first_two_rows", "--input", "ones.npy")

    updated = ("--input", "zeros.npy", "--expect", "updated.npy")
    assert runner.run(*words, *updated, cwd=tmp_path).returncode == 0
    fresh = runner.run(*words, "--output-like", "ones.npy", "--expect", "ones.npy", cwd=tmp_path)
    assert fresh.returncode == 1
    assert "wrong in 5 of 15 elements, worst at [2, 0]: got nan, expected 1" in fresh.stderr


def test_empty_arrays(runner, tmp_path):
    np.save(tmp_path / "none.npy", np.zeros((0, 40), np.float32))
    tx.compile(kernels.softmax, (0, 40), (0, 40)).export_library(tmp_path / "softmax.so")
    words = ("softmax.so", "softmax", "--input", "none.npy", "--output", "float32:0x40")
    ran = runner.run(*words, "--expect", "none.npy", "--write", "out.npy", cwd=tmp_path)
    assert ran.returncode == 0 and "right, no elements" in ran.stdout, ran.stderr
    assert np.load(tmp_path / "out.npy").shape == (0, 40)


@pytest.mark.skipif(sys.platform != "linux", reason="LD_DEBUG is the GNU dynamic linker's")
def test_installed_folder_runs_alone(runner, tmp_path):
    """Empty environment, no Python; every library is the folder's own or the system's."""
    prefix = tmp_path / "deployed"
    install = ["cmake", "--install", str(runner.folder), "--prefix", str(prefix)]
    subprocess.run(install, check=True, capture_output=True)
    ran = subprocess.run(
        [prefix / "bin" / "tilex_run", "@right.txt"],
        cwd=runner.case("softmax"),
        env={"LD_DEBUG": "files"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and ": right" in ran.stdout, ran.stderr[-2000:]
    loaded = re.findall(r"calling init: (\S+)", ran.stderr)
    own = {path.rsplit("/", 1)[-1] for path in loaded if path.startswith(str(prefix))}
    assert own == {"libtvm_ffi.so", "libtvm_runtime.so"}
    rest = [path for path in loaded if not path.startswith((str(prefix), "/lib", "/usr/lib"))]
    assert rest == [str(runner.case("softmax") / "softmax.so")]
    assert not any(word in path for path in loaded for word in ("python", "compiler", "LLVM"))
