"""FenceProducts: products are fenced where an order was asked for, and only there."""

from tvm_tilex.transform import FenceProducts

ROOT = 'for program in T.parallel(8, annotations={"tilex.parallel": 0}):\n'
PRECISE = ', "tilex.requires_precise_math": True'
BODY = (
    ROOT
    + "    out[program, program * 2] = x[program, 0] * x[program, 1] + x[program, 2]"
    + " * T.exp(x[program, 3] * T.float32(2))\n"
)


def test_every_float_product_and_no_index_product(function, check):
    after = (
        ROOT
        + "    out[program, program * 2] = T.tilex.fence(x[program, 0] * x[program, 1])"
        + " + T.tilex.fence(x[program, 2] * T.exp(T.tilex.fence(x[program, 3] * T.float32(2))))\n"
    )
    expected = function(after, more=PRECISE + ', "tilex.fenced": True')
    check(FenceProducts(), function(BODY, more=PRECISE), expected)


def test_without_an_order_nothing_changes(function, check):
    check(FenceProducts(), function(BODY), function(BODY))
