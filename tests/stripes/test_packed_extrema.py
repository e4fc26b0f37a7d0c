"""Row maxima and minima of 16-bit floats, folded in pairs: text, and runs on the processor."""

import functools
import re
import shutil
import subprocess

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import NUMPY, VIEW, compiled, kernel_of

import tvm_tilex as tx
from tvm_tilex import kernels

NARROW = ["bfloat16", "float16"]
CALL = re.compile(r"tilex_(maximum|minimum)_(bfloat16|float16)x2\(")
on_cpu = pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")


@tx.tile_kernel
def extrema(
    x: VIEW[tx.floating, 2],
    out: VIEW[tx.float32, 2, tx.Out],
    top: VIEW[tx.float32, 1, tx.Out],
    low: VIEW[tx.float32, 1, tx.Out],
):
    """A row that stands in a stripe, and both of its extrema."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        greatest = tx.reduce(row, columns, tx.maximum)
        least = tx.reduce(row, columns, tx.minimum)
        out(tx.coord(nest.index(), 0), tx.shape(one, columns)).store(row)
        top(tx.coord(nest.index()), tx.shape(one)).store(greatest)
        low(tx.coord(nest.index()), tx.shape(one)).store(least)


@functools.cache
def extrema_of(rows, columns, dtype, **options):
    specs = (tx.spec((rows, columns), dtype), tx.spec((rows, columns)), *[tx.spec((rows,))] * 2)
    return tx.compile(extrema, *specs, target="cuda", options=tx.CompileOptions(**options))


def rows_of(columns, dtype):
    """Rows with NaN and each kind of zero and infinity wherever an element of a pack stands."""
    rng = np.random.default_rng(columns)
    positions = sorted({*range(min(columns, 16)), *range(max(columns - 9, 0), columns)})
    rows = [rng.standard_normal(columns) * scale for scale in (1, 1e-7, 1e4)]
    rows += [np.full(columns, value) for value in (-np.inf, np.inf, -0.0, 0.0, np.nan, -3.0, 3.0)]
    rows.append(np.where(np.arange(columns) % 2, -0.0, 0.0))
    for background, single in [
        (rows[0], np.nan),
        (np.full(columns, -np.inf), np.nan),
        (np.full(columns, -0.0), 0.0),
        (np.full(columns, 0.0), -0.0),
        (-np.abs(rows[0]) - 1, np.inf),
        (np.abs(rows[0]) + 1, -np.inf),
        (-np.abs(rows[0]) - 1, 1e-7),  # subnormal as a float16
        (np.full(columns, -np.inf), -1.0),
    ]:
        for position in positions:
            row = background.copy()
            row[position] = single
            rows.append(row)
    with np.errstate(over="ignore"):
        x = np.stack(rows).astype(NUMPY[dtype])
    negative = np.isnan(x.astype("f")) & (rng.random(x.shape) < 0.5)
    bits = x.view(np.uint16)
    bits[negative] |= 0x8000  # a NaN of either sign
    return x


def expected(x, greatest):
    """IEEE 754-2019 maximum or minimum along rows, in FP64."""
    wide = x.astype(np.float64)
    found = (wide.max if greatest else wide.min)(axis=1)
    of_sign = np.signbit(wide) != greatest
    zero = np.where(((wide == 0) & of_sign).any(axis=1) == greatest, 0.0, -0.0)
    return np.where(found == 0, zero, found)


def same(found, wanted):
    found = found.astype(np.float64)
    number = ~np.isnan(wanted)
    assert np.array_equal(np.isnan(found), ~number)
    assert np.array_equal(found[number], wanted[number])
    assert np.array_equal(np.signbit(found[number]), np.signbit(wanted[number]))


# columns, threads, V
SHAPES = [
    (1, 32, 2),
    (3, 32, 8),
    (7, 32, 4),
    (256, 32, 8),
    (260, 32, 2),
    (520, 32, 8),
    (1001, 64, 8),
    (768, 64, 4),
    (129, 32, 1),
    (160, 32, 1),
]


@on_cpu
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    ("columns", "threads", "elements", "storage"),
    # A row of one element is no stripe that shared memory could hold.
    [
        (*shape, s)
        for shape in SHAPES
        for s in ("register", "shared")
        if shape[0] > 1 or s != "shared"
    ],
    ids=str,
)
def test_extrema_of_a_stripe(columns, threads, elements, dtype, storage, tmp_path):
    x = rows_of(columns, dtype)
    artifact = extrema_of(
        *x.shape,
        dtype,
        threads_per_group=threads,
        reduction_lane_elements=elements,
        reduction_stripe_storage=storage,
    )
    assert (artifact.plan.staged_bytes > 0) == (storage == "shared")
    out, top = np.empty(x.shape, np.float32), np.empty(len(x), np.float32)
    low = np.empty_like(top)
    cuda_on_cpu.run(artifact, [x, out, top, low], tmp_path)
    same(top, expected(x, True))
    same(low, expected(x, False))


@on_cpu
@pytest.mark.parametrize("name", ["row_max", "row_min"])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    ("columns", "threads", "elements"), [(1, 32, 8), (520, 32, 8), (1000, 64, 4), (263, 32, 2)]
)
def test_extrema_of_a_view(columns, threads, elements, dtype, name, tmp_path):
    """A row that is read once is no stripe: its packs are loaded as they are folded."""
    x = rows_of(columns, dtype)
    options = {"threads_per_group": threads, "reduction_lane_elements": elements}
    artifact = compiled(name, *x.shape, dtype, **options)
    entry = kernels.catalog()[name]
    arguments = list(entry.arguments(*x.shape, dtype))
    (position,) = entry.outputs
    found = arguments[position]
    arguments[1 - position] = x
    cuda_on_cpu.run(artifact, arguments, tmp_path)
    same(found.reshape(-1), expected(x, name == "row_max"))


@pytest.mark.parametrize("elements", [2, 4, 8])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("storage", ["register", "shared"])
def test_a_fold_widens_no_element(storage, dtype, elements):
    artifact = extrema_of(
        3,
        1024,
        dtype,
        threads_per_group=32,
        reduction_lane_elements=elements,
        reduction_stripe_storage=storage,
    )
    text = kernel_of(artifact)
    assert CALL.findall(text) == [("maximum", dtype), ("minimum", dtype)]
    fold = text[: text.index("tilex_warp_minimum(")]
    assert f"tilex_widen_{dtype}(" not in fold and "(float)" not in fold
    assert f"tilex_widen_{dtype}(" in text  # what is stored
    assert f"for (int p = 0; p < {elements // 2}; ++p)" in text or elements == 2


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ["row_max", "softmax", "cross_entropy"])
def test_the_library_s_maxima_are_packed(name, dtype):
    text = kernel_of(compiled(name, 64, 4096, dtype))
    assert CALL.findall(text) == [("maximum", dtype)]
    before = text[: text.index("tilex_warp_maximum(")]
    assert "tilex_widen" not in before and not re.search(r"maximum\(.*\(float\)", before)


def test_a_pack_that_is_partly_owned_is_folded_by_element():
    options = {"threads_per_group": 32, "reduction_lane_elements": 8}
    text = kernel_of(extrema_of(3, 259, "bfloat16", **options))
    assert len(CALL.findall(text)) == 2  # of the chunk before it
    assert re.search(r"tilex_maximum\(\w+\[0\], tilex_widen_bfloat16\(", text)
    assert CALL.search(kernel_of(extrema_of(3, 3, "bfloat16", **options))) is None


def test_other_folds_stay_as_they_are():
    options = {"threads_per_group": 32, "reduction_lane_elements": 8}
    for artifact in (
        extrema_of(3, 1024, "float32", **options),
        compiled("row_sum", 3, 1024, "bfloat16", **options),
        compiled("rmsnorm", 3, 1024, "float16", **options),
        compiled("row_max", 3, 1024, "float32", **options),
    ):
        assert "x2(" not in artifact.source


@tx.tile_kernel
def peak_of_twice(x: VIEW[tx.floating, 2], out: VIEW[tx.float32, 1, tx.Out]):
    """A maximum of what is computed, which is no 16-bit number."""
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = tx.cast(x[tx.coord(nest.index(), 0), tx.shape(one, columns)], tx.float32)
        greatest = tx.reduce(row * 2.5, columns, tx.maximum)
        out(tx.coord(nest.index()), tx.shape(one)).store(greatest)


def test_computed_elements_are_folded_in_fp32():
    specs = tx.spec((3, 1024), "bfloat16"), tx.spec((3,))
    artifact = tx.compile(peak_of_twice, *specs, target="cuda")
    assert "tilex_maximum(" in kernel_of(artifact) and "x2(" not in artifact.source


SM_70 = {"kind": "cuda", "arch": "sm_70", "max_num_threads": 1024, "thread_warp_size": 32}


def test_other_targets_fold_elements():
    entry = kernels.catalog()["softmax"]
    for target in ("metal", "llvm", SM_70):
        specs = entry.specs(3, 1024, "float16")
        assert "x2(" not in tx.compile(entry.kernel, *specs, target=target).source


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", NARROW)
def test_an_assembler_keeps_pairs_in_registers(dtype, arch, tmp_path):
    source = tmp_path / "kernel.cu"
    artifact = extrema_of(3, 1024, dtype, threads_per_group=32, reduction_lane_elements=8)
    source.write_text(artifact.source)
    command = ["nvcc", f"-arch={arch}", "-cubin", "-std=c++17", "-Xptxas", "-v", str(source)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "kernel.cubin")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores" in done.stderr
