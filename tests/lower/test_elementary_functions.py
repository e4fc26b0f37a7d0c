"""FP32 elementary functions on LLVM: error against FP64, special values, bits, and permission."""

import math

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.build.target import host_target
from tvm_tilex.tirx.compat import has_scalef
from tvm_tilex.tirx.elementary import FUNCTIONS, ULP

NAMES = [op.split(".")[1] for op in FUNCTIONS.values()]
erf = np.frompyfunc(math.erf, 1, 1)
EXACT = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "tanh": np.tanh,
    "erf": lambda x: erf(x).astype(np.float64),
}
SPECIAL = np.array(
    [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1.0, -1.0, 1e-45, -1e-45], np.float32
)


def elementwise(name):
    function = getattr(tx, name)

    @tx.tile_kernel
    def apply(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            origin = tx.coord(nest.index(), 0)
            value = x[origin, tx.shape(1, columns)]
            out(origin, tx.shape(1, columns)).store(function(value))

    return apply


def applied(name, x, width):
    """The function of ``x`` in rows of ``width`` elements, the last one filled up with ones."""
    rows = -(-x.size // width)
    padded = np.ones(rows * width, np.float32)
    padded[: x.size] = x
    out = np.full((rows, width), np.nan, np.float32)
    elementwise(name)(padded.reshape(rows, width), out)
    return out.ravel()[: x.size]


def every_exponent(count=160):
    """Both signs of every exponent, subnormals among them, with ``count`` mantissas each."""
    mantissas = np.random.default_rng(5).integers(0, 1 << 23, count, dtype=np.uint32)
    mantissas[:3] = 0, 1, (1 << 23) - 1
    upper = np.arange(512, dtype=np.uint32) << 23
    return (upper[:, None] | mantissas).ravel().view(np.float32)


def thresholds():
    """Around overflow, underflow, the range reductions' and the branches' edges."""
    at = [88.722839, -87.336545, -103.27893, -103.97208, 128.0, -126.0, -149.0, -150.0]
    at += [0.55, 0.92, 4.0, 10.0, 9.0109, math.sqrt(0.5), math.sqrt(2), 1.0, 2.0**-126]
    at += [(n + 0.5) * math.log(2) for n in range(-151, 129)] + [n + 0.5 for n in range(-151, 129)]
    centers = np.array([*at, *(-np.array(at))], np.float32).view(np.int32)
    return (centers[:, None] + np.arange(-24, 25)).astype(np.int32).ravel().view(np.float32)


def dense():
    rng = np.random.default_rng(6)
    narrow = [rng.uniform(-r, r, 30_000) for r in (1.5, 12.0, 104.0, 151.0)]
    near_one = 1 + rng.uniform(-0.5, 0.5, 30_000)
    return np.concatenate([*narrow, near_one]).astype(np.float32)


def spacing(exact):
    """The distance of FP32 numbers of that size."""
    _, exponent = np.frexp(np.abs(exact))
    return np.ldexp(1.0, np.maximum(exponent - 1, -126) - 23)


@pytest.mark.parametrize("name", NAMES)
def test_error_in_ulp_over_the_whole_range(name):
    x = np.concatenate([every_exponent(), thresholds(), dense(), SPECIAL])
    got = applied(name, x, 4096)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(same | finite, True)  # infinities and NaN
    assert np.isfinite(got[finite]).all()
    error = np.abs(got[finite] - exact[finite]) / spacing(exact[finite])
    worst = error.argmax()
    assert error[worst] <= ULP[f"tilex.{name}"], (x[finite][worst], got[finite][worst])
    zeros = finite & (exact == 0)
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(exact[zeros]))


@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_the_lanes(name):
    """Scalars, quarter vectors, whole ones and what is left over give the same number."""
    x = np.concatenate([every_exponent(7), thresholds()[::5], SPECIAL])
    scalar = applied(name, x, 1).view(np.uint32)
    for width in (3, 4, 13, 16, 63, 200):
        found = applied(name, x, width).view(np.uint32)
        nan = np.isnan(scalar.view(np.float32)) & np.isnan(found.view(np.float32))
        np.testing.assert_array_equal(np.where(nan, 0, found), np.where(nan, 0, scalar))


@pytest.mark.parametrize("name", ["exp", "exp2", "tanh", "erf"])
def test_scaling_at_once_gives_the_same_bits(name):
    """As on a processor whose vectors scale by two products, subnormal results included."""
    if not has_scalef(host_target()):
        pytest.skip("this processor has no AVX-512")
    x = np.concatenate([every_exponent(40), thresholds(), SPECIAL])
    x = np.concatenate([x, np.ones(-x.size % 64, np.float32)]).reshape(-1, 64)
    results = []
    triple = str(host_target().attrs.get("mtriple", "")) or "x86_64-unknown-linux-gnu"
    for target in ("llvm", {"kind": "llvm", "mtriple": triple, "mcpu": "x86-64-v3"}):
        out = np.full_like(x, np.nan)
        artifact = tx.compile(elementwise(name), x, out, target=target)
        assert ("vscalefps" in artifact.source) == (target == "llvm")
        artifact(x, out)
        results.append(out)
    np.testing.assert_array_equal(np.isnan(results[0]), np.isnan(results[1]))
    numbers = ~np.isnan(results[0])
    once, twice = (result[numbers].view(np.uint32) for result in results)
    np.testing.assert_array_equal(once, twice)


def test_bits_do_not_depend_on_the_expression_around():
    """A product in front or a sum behind is not contracted into the polynomial."""

    @tx.tile_kernel
    def around(
        a: tx.TensorView[tx.float32, 1],
        alone: tx.TensorView[tx.float32, 1, tx.Out],
        inside: tx.TensorView[tx.float32, 1, tx.Out],
    ):
        n = tx.axis("n", a.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            x = a[tx.coord(0), tx.shape(n)]
            alone(tx.coord(0), tx.shape(n)).store(tx.exp(x * x))
            inside(tx.coord(0), tx.shape(n)).store(tx.exp(x * x) - 1.0)

    a = np.random.default_rng(3).uniform(0, 3, 5000).astype(np.float32)
    alone, inside = np.empty_like(a), np.empty_like(a)
    tx.compile(around, a, alone, inside)(a, alone, inside)
    np.testing.assert_array_equal(alone, applied("exp", a * a, 1))
    np.testing.assert_array_equal(inside, alone - np.float32(1))


def schedule(kernel, *specs, target="llvm"):
    artifact = tx.compile(kernel, *specs, target=target)
    return artifact.scheduled[artifact.name].script()


def test_a_kernel_with_an_ordered_policy_keeps_the_librarys_functions():
    @tx.tile_kernel
    def ordered(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 1, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            value = tx.exp(x[tx.coord(nest.index(), 0), tx.shape(1, columns)])
            total = tx.reduce(value, columns, tx.add, policy="fold_left")
            out(tx.coord(nest.index()), tx.shape(1)).store(total)

    text = schedule(ordered, (3, 64), (3,))
    assert "T.exp(" in text and "tilex.exp" not in text


def test_a_processor_without_fused_multiply_add_keeps_them_too():
    generic = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64"}
    modern = {**generic, "mcpu": "x86-64-v3"}
    shapes = ((3, 64), (3, 64))
    assert "T.exp(" in schedule(tx.kernels.softmax, *shapes, target=generic)
    assert "T.tilex.exp(" in schedule(tx.kernels.softmax, *shapes, target=modern)
    arm = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu"}
    assert "T.tilex.exp(" in schedule(tx.kernels.softmax, *shapes, target=arm)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "cross_entropy"])
@pytest.mark.parametrize("columns", [4096, 4095])
def test_no_function_is_called_in_the_kernels(name, columns):
    entry = tx.kernels.catalog()[name]
    specs = entry.specs(64, columns)
    target = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v3"}
    source = tx.compile(entry.kernel, *specs, target=target).source
    assert not any(call in source for call in ("expf", "logf", "fmaf"))
    assert source.count("vfmadd") > 9 and "ymm" in source
