"""Division of a row by one number: bit for bit the quotient, and only where it is the row's."""

import numpy as np
import pytest
import tvm
from tvm import tirx

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.tirx.compat import call
from tvm_tilex.tirx.register import QUOTIENT, register
from tvm_tilex.transform.invariant_division import invariant_division

COUNT = 1 << 16


@pytest.fixture(scope="module")
def quotient():
    """``(dividends, divisor) -> tilex.quotient`` of each, computed by the LLVM target."""
    register()
    a, d, out = (
        tirx.decl_buffer((n,), "float32", name)
        for n, name in ((COUNT, "a"), (1, "d"), (COUNT, "out"))
    )
    zero = tirx.IntImm("int32", 0)
    i = tirx.Var("i", "int32")
    one = tirx.FloatImm("float32", 1.0)
    value = call(QUOTIENT, a[i], d[zero], tirx.Div(one, d[zero]), dtype="float32")
    body = tirx.For(
        i, zero, tirx.IntImm("int32", COUNT), tirx.ForKind.SERIAL, tirx.BufferStore(out, value, [i])
    )
    function = tirx.PrimFunc([a, d, out], body).with_attr("global_symbol", "quotients")
    compiled = tvm.compile(tvm.IRModule({"quotients": function}), target="llvm")

    def run(dividends, divisor):
        given = [np.ascontiguousarray(dividends, "float32"), np.array([divisor], "float32")]
        tensors = [tvm.runtime.tensor(x) for x in (*given, np.zeros(COUNT, "float32"))]
        compiled["quotients"](*tensors)
        return tensors[-1].numpy()

    return run


def bits(values):
    return np.ascontiguousarray(values, "float32").view("uint32")


@pytest.mark.parametrize("divisor", [3.0, 1.9999999, 1.0000001, 4095.0, 2.0**-99, 0.7e30, 8.0])
def test_normal_quotients_are_correctly_rounded(quotient, divisor):
    generator = np.random.default_rng(3)
    mantissas = generator.uniform(1, 2, COUNT) * generator.choice([-1.0, 1.0], COUNT)
    largest = min(120, int(np.log2(divisor)) + 125)
    dividends = (mantissas * 2.0 ** generator.integers(-90, largest, COUNT)).astype("float32")
    wanted = dividends / np.float32(divisor)
    normal = np.abs(wanted) > 2.0**-100
    assert normal.mean() > 0.2
    np.testing.assert_array_equal(bits(quotient(dividends, divisor))[normal], bits(wanted)[normal])


def test_zeros_infinities_and_nan_come_out_as_the_division_gives_them(quotient):
    dividends = np.resize(np.array([0.0, -0.0, np.inf, -np.inf, np.nan], "float32"), COUNT)
    found, wanted = quotient(dividends, 7.0), dividends / np.float32(7.0)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(bits(found)[numbers], bits(wanted)[numbers])
    assert np.isnan(found[~numbers]).all()


def test_tiny_quotients_differ_by_a_unit_of_the_smallest_number_at_most(quotient):
    dividends = np.random.default_rng(4).uniform(0, 2.0**-101, COUNT).astype("float32")
    found, wanted = quotient(dividends, 3.0), dividends / np.float32(3.0)
    unit = np.spacing(np.abs(wanted))
    assert (np.abs(found - wanted) <= unit).all()


def expression(build):
    """``(value, element variable)`` of ``build(row, total, element, other element)``."""
    row = tirx.decl_buffer((8,), "float32", "row")
    total = tirx.decl_buffer((1,), "float32", "total")
    element = tirx.Var("e", "int32")
    return build(row[element], total[tirx.IntImm("int32", 0)]), element


@pytest.mark.parametrize(
    "build",
    [
        lambda a, d: a * d,
        lambda a, d: tirx.Div(a, a + d),
        lambda a, d: tirx.Div(a, tirx.FloatImm("float32", 3.0)),
        lambda a, d: tirx.Div(tirx.Cast("float64", a), tirx.Cast("float64", d)),
    ],
    ids=["no division", "divisor of the element", "constant divisor", "another type"],
)
def test_other_expressions_are_left_alone(build):
    value, element = expression(build)
    assert invariant_division(value, (element,)) is None


def test_equal_divisors_share_a_reciprocal():
    value, element = expression(lambda a, d: tirx.Div(a, d) + tirx.Div(a * a, d))
    found = invariant_division(value, (element,))
    assert str(found.prepare).count("reciprocal0[0] =") == 1
    assert "reciprocal1" not in str(found.value)
    assert str(found.value).count("quotient") == 2


def test_cuda_text_keeps_the_division_for_divisors_out_of_range():
    entry = kernels.catalog()["softmax"]
    source = tx.compile(entry.kernel, *entry.specs(64, 4096), target="cuda").source
    assert source.count("reciprocal0_ptr[0] = (0x1p+0f") == 1
    rest = source.partition("0x1p-100f")[2]
    fast, _, slow = rest.partition("\n  } else {\n")
    assert " / divisor0_ptr" not in fast.partition("{")[2] and "fma(" in fast
    assert " / carry" in slow and "fma(" not in slow


def test_metal_text_divides():
    entry = kernels.catalog()["softmax"]
    source = tx.compile(entry.kernel, *entry.specs(64, 4096), target="metal").source
    assert "reciprocal" not in source
