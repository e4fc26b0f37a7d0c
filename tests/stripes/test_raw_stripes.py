"""Stripes of hand-written TIRx: forms that the language doesn't make."""

import pytest
from tvm.script import tirx as T

import tvm_tilex as tx
from tvm_tilex import transform
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import MappingError
from tvm_tilex.tirx.compat import IRModule, tvm

register_pipeline()


@T.prim_func(s_tir=True)
def kept_in_a_loop(
    x: T.Buffer((8, 1024), "float32"),
    y: T.Buffer((8, 1024), "float32"),
    out: T.Buffer((8, 1024), "float32"),
):
    """A row is kept at the end of a loop that runs once, and read after it."""
    T.func_attr({"tilex.stage": "reference", "tirx.noalias": True, "global_symbol": "raw"})
    for row in T.parallel(8, annotations={"tilex.parallel": 0}):
        tile = T.alloc_local((1024,))
        carry = T.alloc_local((1,))
        carry[0] = T.float32(0)
        for _ in T.serial(0, 1):
            for k in T.serial(
                1024, annotations={"tilex.reduction": "add", "tilex.policy": "unordered_tree"}
            ):
                carry[0] = carry[0] + x[row, k]
            for k in T.serial(1024):
                tile[k] = y[row, k]
        for k in T.serial(1024):
            out[row, k] = tile[k] * carry[0]


@T.prim_func(s_tir=True)
def kept_under_a_condition(x: T.Buffer((8, 1024), "float32"), out: T.Buffer((8, 1024), "float32")):
    """Some elements of a tile are stored."""
    T.func_attr({"tilex.stage": "reference", "tirx.noalias": True, "global_symbol": "raw"})
    for row in T.parallel(8, annotations={"tilex.parallel": 0}):
        tile = T.alloc_local((1024,))
        for k in T.serial(1024):
            if k < 1000:
                tile[k] = x[row, k]
        carry = T.alloc_local((1,))
        carry[0] = T.float32(0)
        for k in T.serial(
            1024, annotations={"tilex.reduction": "add", "tilex.policy": "unordered_tree"}
        ):
            carry[0] = carry[0] + tile[k]
        for k in T.serial(1024):
            out[row, k] = tile[k] * carry[0]


def mapped(function):
    target = resolve_target("cuda")
    options = tx.CompileOptions(
        threads_per_group=64, reduction_lane_elements=4, reduction_stripe_storage="shared"
    )
    passes = [
        transform.ProveReductions(target, options),
        transform.PlanGroups(target, options),
        transform.MapSubgroups(target, options),
    ]
    return tvm.ir.transform.Sequential(passes)(IRModule({"raw": function})).script()


def test_copies_that_end_a_loop_are_waited_for_in_it():
    text = mapped(kept_in_a_loop)
    assert text.count("tilex_copy_async_16") >= 1
    assert text.index("tilex_copy_async_16") < text.index("tilex_wait_copies")
    assert text.index("tilex_wait_copies") < text.index("out[")


def test_a_tile_that_is_stored_under_a_condition_is_no_stripe():
    with pytest.raises(MappingError, match="tile is stored conditionally"):
        mapped(kept_under_a_condition)
