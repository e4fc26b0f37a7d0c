"""Every number of SIMD groups a program, explicitly: S = 1..32 at ragged widths and row counts."""

import numpy as np
import pytest
from simulated_runs import options_of, run

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import TilexError

WIDTHS = (1, 31, 33, 127, 257, 1000, 4095, 4097)
PROGRAMS = (1, 3, 7, 8, 9, 17)
EVERY = range(1, 33)


@pytest.mark.parametrize("subgroups", EVERY)
@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_every_s_at_ragged_widths(name, subgroups):
    """Two widths for each S, so that all widths meet all residues of S."""
    for step in range(2):
        columns = WIDTHS[(subgroups + 3 * step) % len(WIDTHS)]
        rows = PROGRAMS[(subgroups + step) % len(PROGRAMS)]
        if -(-columns // (32 * subgroups)) > 64:
            columns = 1000
        found = run(name, rows, columns, subgroups=subgroups)
        found.assert_right()
        kept = 0 if columns == 1 else -(-columns // (32 * subgroups))  # a scalar is replicated
        assert found.plan.stripe_scalars == kept


@pytest.mark.parametrize("subgroups", EVERY)
def test_every_s_in_every_reduction_kind(subgroups):
    """Sum, maximum and minimum, without a stripe: no width is too large for any S."""
    columns = WIDTHS[subgroups % len(WIDTHS)]
    run("row_sum", 7, columns, subgroups=subgroups).assert_right()
    run("minmax", 3, columns, subgroups=subgroups).assert_right()


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("subgroups", [1, 2, 5, 32])
def test_every_width(subgroups, columns):
    run("logsumexp", 3, columns, subgroups=subgroups).assert_right()
    run("cross_entropy", 3, columns, subgroups=subgroups).assert_right()
    if -(-columns // (32 * subgroups)) <= 32:
        run("residual_layernorm", 3, columns, subgroups=subgroups).assert_right()


@pytest.mark.parametrize("rows", [1, 3, 7, 8, 9, 17, 300])
@pytest.mark.parametrize("subgroups", [0, 1, 3, 8])
def test_every_number_of_programs(subgroups, rows):
    found = run("softmax", rows, 257, subgroups=subgroups)
    found.assert_right()
    if subgroups == 0:
        assert found.plan.programs_per_group <= min(rows, 8)


# 50257 columns


@pytest.mark.parametrize("subgroups", [25, 32])
def test_softmax_of_50257_columns_fits_from_25_simd_groups_on(subgroups):
    found = run("softmax", 2, 50257, subgroups=subgroups)
    found.assert_right()
    assert found.plan.stripe_scalars == -(-50257 // (32 * subgroups))


@pytest.mark.parametrize("subgroups", [1, 24])
def test_softmax_of_50257_columns_is_refused_below(subgroups):
    options = options_of(subgroups, shared_tile_materialization="preserve")
    scalars = -(-50257 // (32 * subgroups))
    with pytest.raises(TilexError, match=rf"{scalars} striped scalars .*_per_worker=64"):
        tx.compile(kernels.softmax, (2, 50257), (2, 50257), target="metal", options=options)


@pytest.mark.parametrize("subgroups", [1, 7, 32])
def test_sums_of_50257_columns_need_no_stripe(subgroups):
    run("row_sum", 2, 50257, subgroups=subgroups).assert_right()


# Special rows: class of every output, for each plan

INF, NAN = np.inf, np.nan
TINY = np.float32(2.0**-149)
SPECIAL_S = (0, 1, 2, 3, 8, 31, 32)


def special_rows(columns):
    """One row of each kind, and an ordinary row between them that must stay clean."""
    ordinary = np.linspace(-3, 3, columns)
    lonely = np.full(columns, -INF)
    lonely[columns // 2] = 5
    mixed = np.where(np.arange(columns) % 2 == 0, 1e34, -1e34)  # no partial sum overflows
    mixed[columns // 3] = 1e-30
    rows = {
        "all -inf": np.full(columns, -INF),
        "one finite": lonely,
        "ordinary": ordinary,
        "all +inf": np.full(columns, INF),
        "all negative": -1 - np.arange(columns) % 17.0,
        "denormal": (1 + np.arange(columns) % 7) * np.float64(TINY),
        "huge and small": mixed,
        "ordinary again": ordinary,
    }
    return list(rows), np.stack(list(rows.values())).astype(np.float32)


@pytest.mark.parametrize("columns", [33, 1000])
@pytest.mark.parametrize("subgroups", SPECIAL_S)
def test_maximum_and_minimum_of_special_rows_are_exact(subgroups, columns):
    """The identities are -inf and +inf: a row of nothing but -inf has the maximum -inf."""
    names, x = special_rows(columns)
    found = run("minmax", len(x), columns, subgroups=subgroups, inputs=(x,))
    _, low, high = found.arguments
    np.testing.assert_array_equal(high, x.max(axis=1), err_msg=str(names))
    np.testing.assert_array_equal(low, x.min(axis=1), err_msg=str(names))
    assert high[names.index("all -inf")] == -INF and low[names.index("all +inf")] == INF


@pytest.mark.parametrize("columns", [1, 33, 1000])
@pytest.mark.parametrize("subgroups", SPECIAL_S)
def test_softmax_of_special_rows(subgroups, columns):
    names, x = special_rows(columns)
    found = run("softmax", len(x), columns, subgroups=subgroups, inputs=(x,))
    found.assert_right()  # NaN exactly where the composition in FP64 has it
    y = found.arguments[1]
    assert np.isnan(y[names.index("all -inf")]).all()
    assert np.isnan(y[names.index("all +inf")]).all()
    one = y[names.index("one finite")]
    assert one[columns // 2] == 1 and one.sum() == 1
    for name in ("ordinary", "ordinary again", "all negative", "denormal", "huge and small"):
        assert np.isfinite(y[names.index(name)]).all(), name


@pytest.mark.parametrize("subgroups", SPECIAL_S)
def test_logsumexp_and_log_softmax_of_special_rows(subgroups):
    names, x = special_rows(1000)
    total = run("logsumexp", len(x), 1000, subgroups=subgroups, inputs=(x,))
    total.assert_right()
    assert total.arguments[1][names.index("all -inf")] == -INF
    assert total.arguments[1][names.index("all +inf")] == INF
    run("log_softmax", len(x), 1000, subgroups=subgroups, inputs=(x,)).assert_right()


@pytest.mark.parametrize("subgroups", SPECIAL_S)
def test_sums_of_special_rows(subgroups):
    _, x = special_rows(257)
    found = run("row_sum", len(x), 257, subgroups=subgroups, inputs=(x,))
    found.assert_right()


@pytest.mark.parametrize("place", [0, 31, 32, 256])
@pytest.mark.parametrize("subgroups", SPECIAL_S)
def test_a_nan_spoils_its_own_row_only(subgroups, place):
    """NaN of a maximum is unspecified under fast math; a sum, and every other row, is not."""
    x = kernels.catalog()["softmax"].arguments(5, 257)[0]
    x[2, place] = NAN
    clean = [0, 1, 3, 4]
    total = run("row_sum", 5, 257, subgroups=subgroups, inputs=(x,)).arguments[1]
    assert np.isnan(total[2]) and np.isfinite(total[clean]).all()
    for name in ("softmax", "layernorm_no_affine", "residual_layernorm"):
        inputs = (x,) if name != "residual_layernorm" else (x, np.zeros_like(x))
        found = run(name, 5, 257, subgroups=subgroups, inputs=inputs)
        expected = found.entry.expected(found.arguments)[0]
        np.testing.assert_allclose(
            found.arguments[-1][clean], expected[clean], rtol=1e-3, atol=1e-5
        )
        assert np.isnan(found.arguments[-1][2]).all()


@pytest.mark.parametrize("columns", [1, 33, 256, 4096])
def test_constant_rows_normalize_to_zero(columns):
    x = np.full((2, columns), 1234, np.float32)
    for subgroups in (0, 2, 8):
        found = run("layernorm_no_affine", 2, columns, subgroups=subgroups, inputs=(x,))
        assert (found.arguments[1] == 0).all()
