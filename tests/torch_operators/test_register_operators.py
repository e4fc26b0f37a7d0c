"""``tx.torch.register``: schemas, shapes, types, layouts, mutation, opcheck."""

import pytest
import torch
import torch.nn.functional as F

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError, OptionError, ShapeError

OPS = tx.torch.ops
close = torch.testing.assert_close


def inputs(name, *lead, columns=17, grad=False, dtype=torch.float32):
    """Arguments of a library operator with these leading dimensions."""
    generator = torch.Generator().manual_seed(len(lead) + columns)
    found = []
    for view in getattr(OPS, name).signature.inputs:
        spec = getattr(kernels, name).parameters[view]
        if view == "labels":
            found.append(torch.randint(0, columns, lead, generator=generator))
            continue
        shape = (*lead, columns) if spec.dimensions == ("rows", "columns") else (columns,)
        made = torch.randn(shape, generator=generator).to(dtype)
        found.append(made.requires_grad_(grad))
    return found


EAGER = {
    "row_sum": lambda x: x.sum(-1),
    "row_max": lambda x: x.amax(-1),
    "row_min": lambda x: x.amin(-1),
    "minmax": lambda x: (x.amin(-1), x.amax(-1)),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "layernorm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
    "layernorm_no_affine": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rmsnorm": lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
    "residual_layernorm": lambda x, r: F.layer_norm(x + r, x.shape[-1:]),
    "cross_entropy": lambda x, y: F.cross_entropy(
        x.reshape(-1, x.shape[-1]), y.reshape(-1), reduction="none"
    ).reshape(y.shape),
}


def test_every_library_kernel_is_an_operator():
    assert set(vars(OPS)) == set(EAGER) == set(kernels.catalog())
    with_gradient = {name for name, operator in vars(OPS).items() if operator.gradient}
    assert with_gradient == {
        "softmax", "log_softmax", "layernorm", "layernorm_no_affine", "rmsnorm", "cross_entropy",
    }  # fmt: skip


@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("name", EAGER)
def test_leading_dimensions(name, lead):
    arguments = inputs(name, *lead)
    close(getattr(OPS, name)(*arguments), EAGER[name](*arguments), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", EAGER)
def test_opcheck(name):
    operator = getattr(OPS, name)
    grad = operator.gradient is not None
    torch.library.opcheck(getattr(torch.ops.tilex, name).default, inputs(name, 2, 3, grad=grad))
    outputs = operator(*inputs(name, 2, 3))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    given = dict(zip(operator.signature.outputs, map(torch.empty_like, outputs), strict=True))
    torch.library.opcheck(
        getattr(torch.ops.tilex, f"{name}_out").default, inputs(name, 2, 3), given
    )


def test_opcheck_of_own_kernels(own):
    torch.library.opcheck(torch.ops.tilex.plain_softmax.default, (torch.randn(3, 5),))
    torch.library.opcheck(torch.ops.tilex.halves.default, (torch.randn(8),))
    torch.library.opcheck(torch.ops.tilex.scale_in_place.default, (torch.randn(3, 5), 3.0))


def test_schemas(own):
    schema = torch.ops.tilex.layernorm.default._schema
    assert [a.name for a in schema.arguments] == ["x", "weight", "bias", "eps"]
    assert schema.arguments[3].default_value == 1e-5
    assert str(OPS.minmax.signature.schema("minmax")).endswith("-> (Tensor, Tensor)")
    schema = str(torch.ops.tilex.scale_in_place.default._schema)
    assert schema == (
        "tilex::scale_in_place(Tensor(a!) x, float factor=2., bool negate=False, int times=1) -> ()"
    )
    schema = str(torch.ops.tilex.softmax_out.default._schema)
    assert schema == "tilex::softmax_out(Tensor input, *, Tensor(b!) output) -> ()"


# Layouts


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: torch.stack([x, x], -1)[..., 1],
        lambda x: x[:1].expand(6, 17),
        lambda x: torch.cat([x, x])[::2],
        lambda x: x[:, 1:],  # rows with a gap, from an unaligned element
        lambda x: torch.cat([x.flatten().new_zeros(1), x.flatten()])[1:].view(6, 17),
    ],
    ids=["transposed", "strided", "expanded", "every second", "gaps", "unaligned"],
)
def test_inputs_of_any_layout(make):
    x = make(torch.randn(6, 17))
    close(OPS.softmax(x), x.softmax(-1), rtol=2e-5, atol=1e-7)


def test_a_result_is_contiguous_whatever_the_input():
    assert OPS.softmax(torch.randn(17, 6).t()).is_contiguous()


def test_out_of_any_layout():
    x = torch.randn(6, 17)
    for out in (torch.empty(6, 17), torch.empty(17, 6).t(), torch.full((6, 34), 7.0)[:, ::2]):
        assert OPS.softmax.out(x, output=out) is out
        close(out, x.softmax(-1), rtol=2e-5, atol=1e-7)
    whole = torch.full((6, 34), 7.0)
    OPS.softmax.out(x, output=whole[:, ::2])
    assert (whole[:, 1::2] == 7).all()


def test_out_in_place():
    x = torch.randn(6, 17)
    expected = x.softmax(-1)
    OPS.softmax.out(x, output=x)
    close(x, expected, rtol=2e-5, atol=1e-7)


def test_out_of_two_outputs_and_of_another_type():
    x = torch.randn(2, 3, 17)
    low, high = torch.empty(2, 3), torch.empty(2, 3, dtype=torch.bfloat16)
    assert OPS.minmax.out(x, low=low, high=high) == (low, high)
    assert (low == x.amin(-1)).all() and (high == x.amax(-1).bfloat16()).all()


def test_inout_views_are_changed_in_place(own):
    x = torch.randn(2, 3, 5)
    before = x.clone()
    assert own.scale_in_place(x) is None
    assert (x == 2 * before).all()
    own.scale_in_place(x.transpose(0, 1), factor=0.5, negate=True)
    assert (x == -before).all()
    torch.ops.tilex.scale_in_place(x, 2.0, False, 2)
    assert (x == -4 * before).all()


def test_a_gradient_is_not_lost_in_a_tensor_that_is_written(own):
    x = torch.randn(3, 17, requires_grad=True)
    with pytest.raises(ArgumentError, match="tilex::scale_in_place: it writes into a tensor"):
        own.scale_in_place(x * 1)
    with pytest.raises(ArgumentError, match="tilex::softmax_out: it writes into a tensor"):
        OPS.softmax.out(x, output=torch.empty(3, 17))
    with torch.no_grad():
        close(OPS.softmax.out(x, output=torch.empty(3, 17)), x.softmax(-1))


# Shapes and types of outputs


def test_shapes_of_outputs_without_names_are_those_that_are_stored(own):
    x = torch.randn(3, 5)
    close(own.plain_softmax(x), x.softmax(-1), rtol=2e-5, atol=1e-7)
    assert own.halves(torch.arange(8.0)).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert own.plain_softmax(torch.empty(0, 5)).shape == (0, 5)
    with pytest.raises(ArgumentError, match="reads the extents of 'out'; name its dimensions"):
        own.asks_the_output(torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_output_has_the_type_of_the_first_input(dtype):
    (x,) = inputs("softmax", 3, dtype=dtype)
    y = OPS.softmax(x)
    assert y.dtype == dtype
    close(y.float(), x.float().softmax(-1), rtol=2**-8, atol=2**-9)


def test_stated_types_and_bound_constants():
    wide = tx.torch.register(
        kernels.layernorm_no_affine, name="wide_norm", dtypes={"out": "float32"}, eps=2.0
    )
    x = torch.randn(3, 5, dtype=torch.float16)
    y = wide(x)
    assert y.dtype == torch.float32 and "eps" not in str(torch.ops.tilex.wide_norm.default._schema)
    close(y, F.layer_norm(x.float(), (5,), eps=2.0), rtol=2e-5, atol=2e-6)


def test_constants_are_arguments():
    x, w = inputs("rmsnorm", 3)
    expected = F.rms_norm(x, (17,), w, 3.0)
    close(OPS.rmsnorm(x, w, 3.0), expected)
    close(OPS.rmsnorm(x, w, eps=3), expected)
    close(torch.ops.tilex.rmsnorm(x, w, eps=3.0), expected)


# Refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: OPS.softmax(torch.randn(3, 5, dtype=torch.float64)),
            "tilex::softmax: 'input' is float64; it takes float32 or float16 or bfloat16",
        ),
        (
            lambda: OPS.cross_entropy(torch.randn(3, 5), torch.zeros(3, dtype=torch.int32)),
            "tilex::cross_entropy: 'labels' is int32; it takes int64",
        ),
        (
            lambda: OPS.cross_entropy(torch.randn(2, 3, 5), torch.zeros(3, 2, dtype=torch.int64)),
            r"'labels' has the leading dimensions \(3, 2\), 'logits' \(2, 3\)",
        ),
        (
            lambda: OPS.rmsnorm(torch.randn(3, 5), torch.randn(4)),
            "'weight' has columns = 4, another input 5",
        ),
        (
            lambda: OPS.rmsnorm(torch.randn(3, 5), torch.randn(1, 5)),
            r"'weight' has shape \(1, 5\); it takes 1 dimensions",
        ),
        (
            lambda: OPS.softmax(torch.tensor(1.0)),
            r"'input' has shape \(\); it takes 2 dimensions or",
        ),
        (
            lambda: OPS.softmax.out(torch.randn(3, 5), output=torch.empty(5, 3)),
            r"'output' has shape \(5, 3\), the result \(3, 5\)",
        ),
        (
            lambda: OPS.softmax.out(torch.randn(3, 5), output=torch.empty(3, 5).double()),
            "'output' is float64",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_a_row_without_elements_is_refused():
    with pytest.raises(ShapeError, match="axis 'columns' has extent 0"):
        OPS.softmax(torch.empty(3, 0))


def test_dimensions_without_names_are_not_flattened(own):
    with pytest.raises(
        ArgumentError, match=r"takes 2 dimensions \(name its dimensions to flatten\)"
    ):
        own.plain_softmax(torch.randn(2, 3, 5))


def test_a_tensor_on_another_device_is_refused():
    with pytest.raises(ArgumentError, match="'weight' is on meta, 'x' on cpu"):
        OPS.rmsnorm(torch.randn(3, 5), torch.randn(5, device="meta"))


def test_registering_again(own):
    assert tx.torch.register(own.kernel) is own.plain_softmax
    with pytest.raises(ArgumentError, match="tilex::plain_softmax is already the operator of"):
        tx.torch.register(kernels.softmax, name="plain_softmax")
    assert tx.torch.register(kernels.softmax) is OPS.softmax
    with pytest.raises(ArgumentError, match="tilex::softmax is registered already; give another"):
        tx.torch.register(kernels.softmax, dtypes={"output": "float32"})
    with pytest.raises(OptionError, match="row_sum has no compile-time constant 'eps'"):
        tx.torch.register(kernels.row_sum, name="other", eps=1.0)
    with pytest.raises(ArgumentError, match="takes a tile kernel, not function"):
        tx.torch.register(lambda x: x)


def test_meta_tensors_have_shapes_and_types():
    y = OPS.row_sum(torch.empty(2, 3, 5, device="meta", dtype=torch.float16))
    assert (y.shape, y.dtype, y.device.type) == ((2, 3), torch.float16, "meta")
