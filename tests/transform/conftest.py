"""Builds functions of ours from the text of their bodies, and checks passes on them."""

import textwrap

import pytest
import tvm

from tvm_tilex.tirx.register import register
from tvm_tilex.tirx.wellformed import verify_function

HEADER = """
@T.prim_func(s_tir=True)
def kernel(
    x: T.Buffer((8, {columns}), "float32", align=4),
    out: T.Buffer((8, {columns}), "float32", align=4),
):
    T.func_attr({{"global_symbol": "kernel", "tilex.stage": "{stage}", "tirx.noalias": True{more}}})
"""


@pytest.fixture
def function():
    """Call with (body text, columns, stage, further attributes): the parsed function."""
    register()

    def build(body, *, columns=70, stage="reference", more=""):
        text = HEADER.format(columns=columns, stage=stage, more=more)
        text += textwrap.indent(textwrap.dedent(body), "    ")
        return tvm.script.from_source(text)

    return build


@pytest.fixture
def check():
    """Call with (pass, before, expected): the result, and that a second run changes nothing."""

    def run(realize, before, expected):
        after = realize(tvm.IRModule({"kernel": before}))
        verify_function(after["kernel"])
        tvm.ir.assert_structural_equal(after["kernel"], expected)
        again = realize(after)
        tvm.ir.assert_structural_equal(again["kernel"], after["kernel"])

    return run
