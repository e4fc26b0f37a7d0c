"""Fits and measures the polynomials of ``tvm_tilex/tirx/elementary.py``. Needs SciPy.

    python scripts/elementary_functions.py fit             # the coefficients, from nothing
    python scripts/elementary_functions.py measure 127     # errors at every 127th FP32 number

A fit minimizes the largest relative error of the function's result (Lawson's iteratively
reweighted least squares), rounds the lowest coefficient to FP32 and fits the others again.
``measure`` compiles each operator for this processor and compares with FP64, classes and signs of
zeros included.
"""

import math

import click
import numpy as np
from scipy import special

import tvm_tilex as tx
from tvm_tilex.tirx.elementary import FUNCTIONS

POINTS = 4000


def chebyshev(low, high):
    angle = np.pi * (np.arange(POINTS) + 0.5) / POINTS
    return (low + high) / 2 + (high - low) / 2 * np.cos(angle)


def lawson(x, wanted, powers, scale, rounds=400):
    """Coefficients of ``powers`` that nearly minimize max |scale * error|."""
    matrix, weight = np.stack([x**p for p in powers], 1), np.full(x.size, 1 / x.size)
    best, found = math.inf, None
    for _ in range(rounds):
        row = np.sqrt(weight) * scale
        size = np.abs(matrix * row[:, None]).max(0)
        size[size == 0] = 1
        fit = np.linalg.lstsq(matrix * row[:, None] / size, wanted * row, rcond=None)[0] / size
        error = np.abs((matrix @ fit - wanted) * scale)
        if error.max() < best:
            best, found = error.max(), fit
        weight = weight * error
        weight /= weight.sum()
    return found


def rounded(function, low, high, count, scale):
    """FP32 coefficients, lowest first, and the error of the exact polynomial in units of 2**-24."""
    x = chebyshev(low, high)
    wanted, coefficients = function(x), []
    for power in range(count):
        first = lawson(x, wanted, range(power, count), scale(x))[0]
        coefficients.append(float(np.float32(first)))
        wanted = wanted - coefficients[-1] * x**power
    return coefficients, np.abs(wanted * scale(x)).max() * 2**24


def near(x, limit, series, quotient):
    """``quotient`` of x, by its series where it cancels."""
    small = np.abs(x) < limit
    return np.where(small, series(x), quotient(np.where(small, 1.0, x)))


LN2 = math.log(2)
FITS = {
    "exp: (e^r - 1 - r) / r^2": (
        lambda r: near(r, 1e-6, lambda r: 0.5 + r / 6, lambda r: (np.expm1(r) - r) / r**2),
        (-LN2 / 2 * 1.0005, LN2 / 2 * 1.0005, 5),
        lambda r: r * r / np.exp(r),
    ),
    "exp2: (2^r - 1) / r": (
        lambda r: near(r, 1e-9, lambda r: LN2 + r * LN2**2 / 2, lambda r: np.expm1(r * LN2) / r),
        (-0.5003, 0.5003, 6),
        lambda r: r / np.exp2(r),
    ),
    "log: (ln(1 + f) - f + f^2 / 2) / f^3": (
        lambda f: near(
            f,
            1e-4,
            lambda f: 1 / 3 - f / 4 + f * f / 5,
            lambda f: (np.log1p(f) - f + f * f / 2) / f**3,
        ),
        (math.sqrt(0.5) - 1.001, math.sqrt(2) - 0.999, 9),
        lambda f: f**3 / np.log1p(f),
    ),
    "tanh: (tanh x - x) / x^3 of x^2": (
        lambda s: near(
            s,
            1e-6,
            lambda s: -1 / 3 + 2 * s / 15,
            lambda s: (np.tanh(np.sqrt(s)) - np.sqrt(s)) / np.sqrt(s) ** 3,
        ),
        (1e-12, 0.36, 6),
        lambda s: s * np.sqrt(s) / np.tanh(np.sqrt(s)),
    ),
    "erf: erf(x) / x - 1 of x^2": (
        lambda s: near(
            s,
            1e-8,
            lambda s: 2 / math.sqrt(math.pi) * (1 - s / 3) - 1,
            lambda s: special.erf(np.sqrt(s)) / np.sqrt(s) - 1,
        ),
        (1e-12, 1.0, 7),
        lambda s: np.sqrt(s) / special.erf(np.sqrt(s)),
    ),
    "erf: -ln(1 - erf t)": (
        lambda t: t * t - np.log(special.erfcx(t)),
        (0.9, 4.0, 7),
        lambda t: special.erfc(t) / special.erf(t),
    ),
}
EXACT = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "tanh": np.tanh,
    "erf": special.erf,
}


def elementwise(name):
    function = getattr(tx, name)

    @tx.tile_kernel
    def apply(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            origin = tx.coord(nest.index(), 0)
            value = function(x[origin, tx.shape(1, columns)])
            out(origin, tx.shape(1, columns)).store(value)

    return apply


@np.errstate(all="ignore")
def errors(name, x, got):
    """Error in ulp of each result; inf where an infinity, NaN or a zero's sign is wrong."""
    exact = EXACT[name](x.astype(np.float64))
    want = exact.astype(np.float32)
    _, exponent = np.frexp(np.abs(exact))
    unit = np.ldexp(1.0, np.maximum(exponent - 1, -126) - 23)
    error = np.abs(got.astype(np.float64) - exact) / unit
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    error = np.where(np.isfinite(want) & np.isfinite(got), error, np.where(same, 0, math.inf))
    wrong = (exact == 0) & (np.signbit(got) != np.signbit(exact))
    return np.where(wrong, math.inf, error)


@click.group()
def main():
    pass


@main.command()
def fit():
    for title, (function, (low, high, count), scale) in FITS.items():
        coefficients, error = rounded(function, low, high, count, scale)
        click.echo(f"{title} on [{low:.4g}, {high:.4g}], error {error:.4f} * 2^-24")
        for coefficient in coefficients:
            click.echo(f"    {coefficient.hex()}")


@main.command()
@click.argument("step", type=int, default=127)
def measure(step):
    for op in FUNCTIONS.values():
        name = op.split(".")[1]
        kernel, artifact, worst = elementwise(name), None, (0.0, 0.0)
        for first in range(0, 2**32, step << 22):
            bits = np.arange(first, first + (step << 22), step, dtype=np.uint64)
            x = np.minimum(bits, 2**32 - 1).astype(np.uint32).view(np.float32).reshape(64, -1)
            out = np.empty_like(x)
            artifact = artifact or tx.compile(kernel, x, out)
            artifact(x, out)
            found = errors(name, x, out)
            at = np.unravel_index(found.argmax(), found.shape)
            worst = max(worst, (float(found[at]), float(x[at])))
        click.echo(f"{name:<6} {worst[0]:.3f} ulp at {worst[1]!r}")


if __name__ == "__main__":
    main()
