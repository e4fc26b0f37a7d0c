"""The registry, the oracles and the tolerance table: what they say and that they can fail."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from tvm_tilex import kernels
from tvm_tilex.errors import DTypeError, ShapeError
from tvm_tilex.ir.types import DTYPES
from tvm_tilex.kernels import oracles, tolerances
from tvm_tilex.kernels.tolerances import TOLERANCES, compare

F32, F16, BF16 = DTYPES["float32"], DTYPES["float16"], DTYPES["bfloat16"]
NAMES = [
    "row_sum", "row_max", "row_min", "minmax", "softmax", "log_softmax", "logsumexp",
    "layernorm", "layernorm_no_affine", "rmsnorm", "residual_layernorm", "cross_entropy",
]  # fmt: skip


def test_the_library_is_complete():
    assert list(kernels.catalog()) == NAMES
    for name, entry in kernels.catalog().items():
        assert entry.name == name and entry.kernel is getattr(kernels, name)
        assert entry.operation in TOLERANCES
        assert entry.summary.endswith(".")
        assert set(kernels.__all__) == {*NAMES, "catalog"}


def test_an_entry_describes_its_arguments():
    entry = kernels.catalog()["cross_entropy"]
    assert entry.parameters == ("logits", "labels", "losses") and entry.outputs == (2,)
    specs = entry.specs(3, 8, "float16")
    assert [(s.shape, s.dtype.name) for s in specs] == [
        ((3, 8), "float16"), ((3,), "int64"), ((3,), "float16"),
    ]  # fmt: skip
    assert entry.useful_bytes(3, 8, "float16") == 3 * 8 * 2 + 3 * 8 + 3 * 2
    assert kernels.catalog()["minmax"].outputs == (1, 2)
    assert kernels.catalog()["layernorm"].useful_bytes(3, 8) == (24 + 8 + 8 + 24) * 4


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_reproducible_and_outputs_poisoned(name):
    entry = kernels.catalog()[name]
    first, again = (entry.arguments(5, 7, "bfloat16", seed=3) for _ in range(2))
    other = entry.arguments(5, 7, "bfloat16", seed=4)
    for position, (a, b, c) in enumerate(zip(first, again, other, strict=True)):
        assert a.tobytes() == b.tobytes()
        if position in entry.outputs:
            assert np.isnan(a.astype(np.float32)).all()
        else:
            assert a.tobytes() != c.tobytes()
    assert not any(c.within for c in entry.check(first))  # poison is never right


def test_bad_shapes_and_types_are_refused():
    entry = kernels.catalog()["softmax"]
    with pytest.raises(ShapeError, match="softmax: 3x0 is no shape"):
        entry.specs(3, 0)
    with pytest.raises(DTypeError, match="unknown dtype 'float64'"):
        entry.specs(3, 8, "float64")


# Oracles against torch in float64 (independent of both).

X = np.random.default_rng(7).standard_normal((4, 33)) * 3
T = torch.from_numpy(X)
WEIGHT, BIAS = np.linspace(-1, 2, 33), np.linspace(0, 1, 33)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (oracles.row_sum(X), T.sum(1)),
        (oracles.row_max(X), T.amax(1)),
        (oracles.row_min(X), T.amin(1)),
        (oracles.softmax(X), T.softmax(1)),
        (oracles.log_softmax(X), T.log_softmax(1)),
        (oracles.logsumexp(X), T.logsumexp(1)),
        (oracles.layernorm_no_affine(X), torch.nn.functional.layer_norm(T, (33,))),
        (
            oracles.layernorm(X, WEIGHT, BIAS),
            torch.nn.functional.layer_norm(
                T, (33,), torch.from_numpy(WEIGHT), torch.from_numpy(BIAS)
            ),
        ),
        (
            oracles.rmsnorm(X, WEIGHT),
            torch.nn.functional.rms_norm(T, (33,), torch.from_numpy(WEIGHT), 1e-6),
        ),
        (
            oracles.residual_layernorm(X, X**2),
            torch.nn.functional.layer_norm(T + T**2, (33,)),
        ),
        (
            oracles.cross_entropy(X, np.array([0, 32, 5, 7])),
            torch.nn.functional.cross_entropy(T, torch.tensor([0, 32, 5, 7]), reduction="none"),
        ),
    ],
)
def test_oracles_agree_with_torch(actual, expected):
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-12, atol=1e-13)


def test_oracles_on_infinite_rows():
    rows = np.array([[-np.inf, -np.inf], [np.inf, 0], [-np.inf, 0], [np.nan, 0]])
    np.testing.assert_array_equal(oracles.logsumexp(rows), [-np.inf, np.inf, 0, np.nan])
    assert np.isnan(oracles.softmax(rows)[[0, 1, 3]]).all()
    np.testing.assert_array_equal(oracles.softmax(rows)[2], [0, 1])


def test_an_oracle_sees_the_stored_inputs():
    x = np.array([[1.0, 1 + 2**-12]]).astype(np.float16)
    assert oracles.row_sum(x)[0] == 2.0


# The table


def test_the_table_is_not_looser_than_its_defaults():
    for name, tolerance in TOLERANCES.items():
        assert tolerance.rtol <= 2e-5 and tolerance.atol <= 2e-6, name
    assert TOLERANCES["selection"] == tolerances.Tolerance(0.0, 0.0)


@pytest.mark.parametrize(
    ("operation", "dtype", "error", "within"),
    [
        ("softmax", F32, 1.9e-5, True),
        ("softmax", F32, 2.1e-5, False),
        ("normalization", F32, 2.1e-5, True),  # 2e-5 + 2e-6 at 1
        ("normalization", F32, 2.3e-5, False),
        ("softmax", F16, 2e-5 + 2.0**-11, True),
        ("softmax", F16, 2.2e-5 + 2.0**-11, False),
        ("softmax", BF16, 2e-5 + 2.0**-8, True),
        ("softmax", BF16, 2.2e-5 + 2.0**-8, False),
        ("selection", F32, 0.0, True),
        ("selection", F32, 2.0**-52, False),
    ],
)
def test_a_bound_of_the_table_holds_at_its_edge(operation, dtype, error, within):
    comparison = compare(operation, dtype, np.array([1 + error]), np.array([1.0]))
    assert comparison.within is within
    assert comparison.max_absolute_error == pytest.approx(error, rel=1e-6, abs=1e-18)


def test_a_sum_is_judged_by_the_sum_of_magnitudes():
    # 1e4 - 1e4 + 1e-3: an error of 0.01 is 1e-6 of what was added, and half of it is too much.
    for error, within in ((1e-6 * 2e4 * 3, True), (1.01e-6 * 2e4 * 3, False)):
        comparison = compare(
            "sum", F32, np.array([1e-3 + error]), np.array([1e-3]), columns=8,
            magnitude=np.array([2e4]),
        )  # fmt: skip
        assert comparison.within is within
    with pytest.raises(ValueError, match="needs the sum of"):
        compare("sum", F32, np.ones(1), np.ones(1), columns=8)


@pytest.mark.parametrize(
    ("actual", "expected", "within"),
    [
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (math.inf, 1e300, False),
        (3e38, math.inf, False),
        (math.nan, math.inf, False),
    ],
)
@pytest.mark.parametrize("operation", ["softmax", "normalization", "selection"])
def test_non_finite_values_must_be_of_one_class(operation, actual, expected, within):
    comparison = compare(operation, F32, np.array([0.0, actual]), np.array([0.0, expected]))
    assert comparison.within is within
    if not within:
        assert comparison.worst_index == (1,) and comparison.worst_ratio == math.inf


def test_a_comparison_is_no_truth_value():
    comparison = compare("softmax", F32, np.ones(2), np.ones(2))
    with pytest.raises(TypeError, match="has no truth value"):
        bool(comparison)
    with pytest.raises(ValueError, match="has shape"):
        compare("softmax", F32, np.ones(2), np.ones(3))


def test_half_precision_subnormals_are_within_one_rounding():
    exact = np.array([2e-5 / 3])
    stored = exact.astype(np.float16)
    assert compare("softmax", F16, stored, exact).within
    assert not compare("softmax", F16, stored + np.float16(2**-24), exact).within
    rounded = np.array([1 / 3]).astype(ml_dtypes.bfloat16)
    assert compare("softmax", BF16, rounded, np.array([1 / 3])).within


def test_empty_outputs_compare():
    assert compare("softmax", F32, np.zeros((0, 8)), np.zeros((0, 8))).within
