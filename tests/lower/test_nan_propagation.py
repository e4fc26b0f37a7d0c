"""NaN through maximum and minimum: from every position, by policy and by target."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.tirx import attrs

VIEW = tx.TensorView
F32 = tx.float32


def extrema(nan, policy="unordered_tree"):
    @tx.tile_kernel
    def extremes(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out]):
        rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
        for nest in tx.parallel(tx.shape(rows)):
            tile = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
            for place, op in enumerate((tx.maximum, tx.minimum)):
                value = tx.reduce(tile, columns, op, policy=policy, nan=nan)
                out(tx.coord(nest.index(), place), tx.shape(1, 1)).store(value)

    return extremes


@pytest.mark.parametrize("nan", ["target", "propagate"])
@pytest.mark.parametrize(
    "policy", [policy for policy in tx.ReductionPolicy if policy.value != "rescaled_tree"]
)
@pytest.mark.parametrize("columns", [1, 5, 70, 131])
def test_propagates_from_every_position(policy, nan, columns):
    """Row p has its NaN in column p: vector lanes, the tail, the first and the last element."""
    x = np.random.default_rng(0).standard_normal((columns + 1, columns)).astype(np.float32)
    np.fill_diagonal(x, np.nan)
    out = np.zeros((columns + 1, 2), np.float32)
    tx.compile(extrema(nan, policy), x, out)(x, out)
    assert np.isnan(out[:-1]).all()
    np.testing.assert_array_equal(out[-1], [x[-1].max(), x[-1].min()])


def test_elementwise_extrema_propagate_from_either_side():
    @tx.tile_kernel
    def larger(
        x: VIEW[F32, 1],
        y: VIEW[F32, 1],
        out: VIEW[F32, 2, tx.Out],
    ):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            v, w = x[tx.coord(0), tx.shape(n)], y[tx.coord(0), tx.shape(n)]
            out(tx.coord(0, 0), tx.shape(1, n)).store(tx.maximum(v, w))
            out(tx.coord(1, 0), tx.shape(1, n)).store(tx.minimum(tx.maximum(v, 0.0), w))

    x = np.array([np.nan, 1, -1, np.nan] * 5, np.float32)
    y = np.array([2, np.nan, -2, np.nan] * 5, np.float32)
    out = np.zeros((2, 20), np.float32)
    tx.compile(larger, x, y, out)(x, y, out)
    np.testing.assert_array_equal(out[0], np.maximum(x, y))
    np.testing.assert_array_equal(out[1], np.minimum(np.maximum(x, 0), y))


def test_unspecified_is_the_plain_extremum():
    text = tx.lower(extrema("unspecified"), (3, 40), (3, 2)).script()
    assert "T.max(" in text and "T.min(" in text and "tilex.maximum" not in text
    assert tx.lower(extrema("target"), (3, 40), (3, 2)).script().count("T.tilex.maximum(") == 1


@pytest.mark.parametrize("nan", ["target", "unspecified"])
def test_metal_uses_the_plain_extremum_by_default(nan):
    options = tx.CompileOptions(metal_subgroup_reductions=False)
    artifact = tx.compile(extrema(nan), (3, 40), (3, 2), target="metal", options=options)
    assert "max(" in artifact.source and "min(" in artifact.source
    assert "==" not in artifact.source and "!=" not in artifact.source
    assert artifact.requires_precise_math is False


def test_metal_propagates_on_request_and_then_needs_precise_math():
    artifact = tx.compile(extrema("propagate"), (3, 40), (3, 2), target="metal")
    assert "==" in artifact.source
    assert artifact.requires_precise_math is True and artifact.device.requires_precise_math is True
    assert attrs.PRECISE in artifact.tirx["extremes"].attrs
