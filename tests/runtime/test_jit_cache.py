"""The JIT compiles once per types, constants, options and what the body reads."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import driver

VIEW = tx.TensorView


@pytest.fixture
def compilations(monkeypatch):
    """Number of programs that reached the compiler so far."""
    seen = []
    stock = driver._compile

    def counted(*arguments):
        seen.append(arguments[0].name)
        return stock(*arguments)

    monkeypatch.setattr(driver, "_compile", counted)
    return seen


def scaled(factor):
    @tx.tile_kernel
    def scale(x: VIEW[tx.floating, 1], out: VIEW[tx.floating, 1, tx.Out], *, bias: float = 0.0):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            tile = tx.cast(x[tx.coord(0), tx.shape(n)], tx.float32)
            result = tile * factor[0] + bias
            out(tx.coord(0), tx.shape(n)).store(tx.cast(result, out.dtype))

    return scale


def run(kernel, extent=13, dtype=np.float32, **keywords):
    x, out = np.ones(extent, dtype), np.zeros(extent, dtype)
    kernel(x, out, **keywords)
    return float(out[0])


def test_the_same_call_compiles_once(compilations):
    kernel = scaled([2.25])
    assert [run(kernel) for _ in range(5)] == [2.25] * 5
    assert len(compilations) == 1


def test_a_new_shape_dtype_constant_or_option_compiles_again(compilations):
    kernel = scaled([2.375])
    options = tx.CompileOptions(shared_tile_materialization="preserve")
    variants = [{}, {"extent": 14}, {"dtype": np.float16}, {"bias": 1.0}, {"options": options}]
    for count, variant in enumerate(variants, start=1):
        run(kernel, **variant)
        run(kernel, **variant)
        assert len(compilations) == count
    for variant in variants:
        run(kernel, **variant)
    assert len(compilations) == len(variants)


def test_a_changed_closure_value_compiles_again(compilations):
    factor = [2.5]
    kernel = scaled(factor)
    assert run(kernel) == 2.5
    factor[0] = 3.5
    assert run(kernel) == 3.5
    assert len(compilations) == 2
    factor[0] = 2.5
    assert run(kernel) == 2.5
    assert len(compilations) == 2


def test_zeros_of_both_signs_are_two_programs(compilations):
    kernel = scaled([1.0])
    signs = []
    for value in (0.0, -0.0, 0.0):
        x, out = np.full(3, -0.0, np.float32), np.zeros(3, np.float32)
        kernel(x, out, bias=value)
        signs.append(bool(np.signbit(out[0])))
    assert signs == [False, True, False]  # -0 + 0 is +0, -0 + -0 is -0
    assert len(compilations) == 2


def test_two_kernels_of_one_program_share_an_artifact(compilations):
    first, second = scaled([4.75]), scaled([4.75])
    assert run(first) == run(second) == 4.75
    assert len(compilations) == 1


def test_compile_is_cached_too(compilations):
    kernel = scaled([5.75])
    one, other = (tx.compile(kernel, (9,), (9,)) for _ in range(2))
    assert one is other and len(compilations) == 1
    assert tx.compile(kernel, (9,), (9,), target="metal") is not one
    assert len(compilations) == 2
