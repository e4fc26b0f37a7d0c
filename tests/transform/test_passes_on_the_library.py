"""Our passes on every library kernel: verified after each, idempotent, and printable."""

import pytest
import tvm

import tvm_tilex as tx
from tvm_tilex.build.pipeline import realization
from tvm_tilex.build.target import resolve_target
from tvm_tilex.tirx.wellformed import VerifyEachPass, verify_function

CATALOG = tx.kernels.catalog()


@pytest.mark.parametrize("target", ["llvm", "metal", "cuda"])
@pytest.mark.parametrize("name", CATALOG)
def test_each_pass_twice_is_each_pass_once(name, target):
    entry = CATALOG[name]
    module = tx.lower(entry.kernel, *entry.specs(7, 257))
    with tvm.transform.PassContext(instruments=[VerifyEachPass()]):
        for realize in realization(resolve_target(target)):
            module = realize(module)
            verify_function(module[name])
            tvm.ir.assert_structural_equal(realize(module), module)
    assert str(module[name].attrs["tilex.stage"]) == "scheduled"


@pytest.mark.parametrize("target", ["llvm", "metal"])
@pytest.mark.parametrize("name", CATALOG)
def test_scheduled_text_parses_back(name, target):
    entry = CATALOG[name]
    scheduled = tx.compile(entry.kernel, *entry.specs(7, 257), target=target).scheduled
    tvm.ir.assert_structural_equal(tvm.script.from_source(scheduled.script()), scheduled)
