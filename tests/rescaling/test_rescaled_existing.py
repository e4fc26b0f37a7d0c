"""Existing TVM programs that permit rescaled sums: which of them exchange once."""

import pytest
from tvm import te, topi

import tvm_tilex as tx
from tvm_tilex.tirx.compat import IRModule, Target

METAL = {"kind": "metal", "thread_warp_size": 32, "max_num_threads": 1024}


def barriers(operator, policy, kept=None):
    """Barriers of topi's ``operator`` over rows of 8192 floats, which several SIMD groups serve."""
    x = te.placeholder((4, 8192), "float32", name="x")
    module = IRModule({"main": te.create_prim_func([x, operator(x)])})
    stated = {} if kept is None else {"shared_tile_materialization": kept}
    schedule = tx.transform.ScheduleReductions(
        policy, target=Target(METAL), options=tx.CompileOptions(**stated)
    )
    text = schedule(module)["main"].script()
    (outcome,) = schedule.report
    assert outcome.reason is None
    return text.count("tvm_storage_sync(")


@pytest.mark.parametrize(("policy", "expected"), [("unordered_tree", 2), ("rescaled_tree", 1)])
def test_a_log_softmax_exchanges_once_where_that_is_permitted(policy, expected):
    assert barriers(topi.nn.log_softmax, policy) == expected


@pytest.mark.parametrize(("kept", "expected"), [(None, 2), ("preserve", 2), ("loaded", 1)])
def test_a_softmax_exchanges_once_where_its_exponentials_are_not_kept(kept, expected):
    assert barriers(topi.nn.softmax, "rescaled_tree", kept) == expected
