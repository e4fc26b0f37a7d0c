"""Groups as reference TIRx on LLVM: right against the formulas, in every materialization."""

import numpy as np
import pytest
from group_samples import NAMES, arguments

import tvm_tilex as tx
from tvm_tilex.lowering import SharedTileMaterialization
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import structural_walk, tirx


@pytest.mark.parametrize("mode", SharedTileMaterialization, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", NAMES)
def test_llvm_gives_the_formula(name, mode):
    kernel, constants, arrays, outputs, expected = arguments(name)
    options = tx.CompileOptions(shared_tile_materialization=mode)
    tx.compile(kernel, *arrays, target="llvm", options=options, **constants)(*arrays)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def markers(function):
    found = []

    def visit(loop):
        found.extend(key for key in (loop.annotations or {}) if str(key).startswith("tilex."))

    structural_walk(function.body, (tirx.For, visit))
    return {str(key) for key in found}


def test_phases_are_marked_and_the_text_reads_back():
    from tvm.script import from_source

    kernel, constants, arrays, _, _ = arguments("product")
    module = tx.lower(kernel, *arrays, **constants)
    wanted = {attrs.GROUP, attrs.PIPELINE, attrs.DOT, attrs.DOMAIN, attrs.PARALLEL}
    wanted |= {attrs.ITERATIONS}
    assert markers(module["product"]) == wanted
    again = from_source(module.script())
    assert markers(again["product"]) == wanted


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_product_of_each_storage(dtype):
    import ml_dtypes

    storage = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    kernel, _, (a, b, out), _, _ = arguments("product")
    a, b = a.astype(storage), b.astype(storage)
    tx.compile(kernel, a, b, out, target="llvm")(a, b, out)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


def test_an_explicit_request_is_refused_on_llvm():
    kernel, constants, arrays, _, _ = arguments("product")
    options = tx.CompileOptions(threads_per_group=64)
    with pytest.raises(tx.errors.MappingError):
        tx.compile(kernel, *arrays, target="llvm", options=options, **constants)
