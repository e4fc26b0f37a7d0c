"""Calls on the CPU: what arrays are taken without a copy, and what layout is refused by name.

Covers the public bug cases on strides, offsets and alignment (O10 to O13), empty arrays, element
types, producers and overlapping arguments. "Right or refused": never misread, never a crash.
"""

import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest
import torch

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError
from tvm_tilex.kernels import oracles


def both_ways(kernel, *arrays):
    """The direct call and the compiled artifact's call."""
    kernel(*arrays)
    shapes = [tx.spec(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for a in arrays]
    tx.compile(kernel, *shapes)(*arrays)


def values(array):
    """A NumPy copy of what an array holds."""
    return np.array(array.numpy() if isinstance(array, torch.Tensor) else array)


def right_or_refused(kernel, inputs, output, expected, named):
    """Run; either the output is right, or an ArgumentError names the parameter and nothing ran."""
    before = values(output)
    try:
        kernel(*inputs, output)
    except ArgumentError as error:
        assert named in str(error) and ("stride" in str(error) or "contiguous" in str(error))
        np.testing.assert_array_equal(values(output), before)
        return
    np.testing.assert_allclose(values(output), expected, rtol=2e-5, atol=2e-6)


def squares(modulus, side=4):
    return (np.arange(side * side) ** 2 % modulus).astype(np.float32).reshape(side, side)


STRIDED = {
    "column slice": lambda g: g[:, 0:2],
    "every other column": lambda g: g[:, ::2],
    "every other row": lambda g: g[::2],
    "transpose": lambda g: g.T,
    "one column": lambda g: g[:, 1:2],
}


# O10: column slices, strided outputs


@pytest.mark.parametrize("view", STRIDED.values(), ids=STRIDED)
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_o10_strided_inputs(view, convert):
    g = view(convert(squares(11) / np.float32(2)))
    out = convert(np.full(tuple(g.shape), np.nan, np.float32))
    right_or_refused(kernels.softmax, [g], out, oracles.softmax(values(g)), "'input'")


def test_o10_the_stated_case():
    g = torch.from_numpy(squares(11) / np.float32(2))[:, 0:2]
    out = torch.full((4, 2), torch.nan)
    wanted = [
        [0.3775407, 0.6224593], [0.7310586, 0.2689414],
        [0.9241418, 0.0758582], [0.1824255, 0.8175745],
    ]  # fmt: skip
    right_or_refused(kernels.softmax, [g], out, wanted, "'input'")
    kernels.softmax(g.contiguous(), out)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=2e-5)


@pytest.mark.parametrize("view", [lambda a: a[::-1], lambda a: a[:, ::-1]], ids=["rows", "columns"])
def test_o10_negative_strides(view):
    x = view(squares(7))
    out = np.full(x.shape, np.nan, np.float32)
    right_or_refused(kernels.softmax, [x], out, oracles.softmax(x), "'input'")


def test_o10_broadcast_rows():
    for x in (
        np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4)),
        torch.arange(4, dtype=torch.float32).expand(3, 4),
    ):
        out = np.full((3, 4), np.nan, np.float32)
        right_or_refused(kernels.softmax, [x], out, oracles.softmax(values(x)), "'input'")


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_o10_a_strided_output(convert):
    memory = convert(np.zeros(8, np.float32))
    x = squares(11)
    right_or_refused(kernels.row_sum, [x], memory[::2], x.sum(axis=1), "'out'")
    np.testing.assert_array_equal(values(memory[1::2]), 0)


def test_a_stride_of_a_unit_dimension_means_nothing():
    x = np.lib.stride_tricks.as_strided(np.arange(4, dtype=np.float32), (1, 4), (400, 4))
    tensor = torch.arange(4, dtype=torch.float32).as_strided((1, 4), (99, 1))
    for array in (x, tensor):
        out = np.full((1, 4), np.nan, np.float32)
        both_ways(kernels.softmax, array, out)
        np.testing.assert_allclose(out, oracles.softmax(values(array)), rtol=2e-5)


# O11: storage offsets


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_o11_a_row_slice(convert, first):
    a = (np.arange(16, dtype=np.float32) ** 2).reshape(4, 4)[:, :]
    part = convert(a)[first : first + 2]
    out = convert(np.full((4, 4), -7, np.float32))
    both_ways(kernels.layernorm_no_affine, part, out[1:3])
    expected = oracles.layernorm_no_affine(a[first : first + 2])
    np.testing.assert_allclose(values(out[1:3]), expected, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(values(out)[[0, 3]], -7)


def test_o11_the_stated_case():
    a = torch.from_numpy((np.arange(12, dtype=np.float32) ** 2).reshape(3, 4))
    out = torch.zeros(2, 4)
    kernels.layernorm_no_affine(a[1:3], out)
    np.testing.assert_allclose(
        out.numpy(),
        [
            [-1.2561834, -0.5267866, 0.3646984, 1.4182715],
            [-1.2931336, -0.4937419, 0.3996958, 1.3871797],
        ],
        rtol=2e-5,
    )


# O12: bases and row starts that no vector load may assume aligned


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("columns", [5, 7, 8, 64, 257])
def test_o12_unaligned_bases(convert, offset, columns):
    count = 4 * columns
    source = (np.arange(count + 8, dtype=np.float32) % 31) / 8
    memory = np.full(count + 16, -7, np.float32)
    x = convert(source)[offset : offset + count].reshape(4, columns)
    out = convert(memory)[3 : 3 + count].reshape(4, columns)
    plain = source[offset : offset + count].reshape(4, columns)
    for name in ("softmax", "layernorm_no_affine"):
        both_ways(getattr(kernels, name), x, out)
        np.testing.assert_allclose(values(out), getattr(oracles, name)(plain), rtol=2e-5, atol=2e-6)
        assert (memory[:3] == -7).all() and (memory[3 + count :] == -7).all()
    total = convert(np.full(5, -7, np.float32))
    both_ways(kernels.row_sum, x, total[1:])
    np.testing.assert_allclose(values(total[1:]), plain.sum(axis=1), rtol=1e-6)
    assert total[0] == -7


def test_o12_the_stated_case():
    x = torch.arange(512, dtype=torch.float32)[1:33].reshape(4, 8)
    total, y = torch.zeros(4), torch.zeros(4, 8)
    kernels.row_sum(x, total)
    np.testing.assert_array_equal(total.numpy(), [36, 100, 164, 228])
    kernels.softmax(x, y)
    np.testing.assert_allclose(y[0, :3].numpy(), [0.0005766, 0.0015674, 0.0042606], rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("offset", [1, 3])
def test_o12_two_byte_offsets(dtype, offset):
    storage = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    source = ((np.arange(300) % 31) / 8).astype(storage)
    x = source[offset : offset + 4 * 65].reshape(4, 65)
    memory = np.full(4 * 65 + 8, -7, storage)
    out = memory[5 : 5 + 4 * 65].reshape(4, 65)
    both_ways(kernels.softmax, x, out)
    assert kernels.catalog()["softmax"].check((x, out))[0].within
    assert (memory[:5] == -7).all() and (memory[5 + 4 * 65 :] == -7).all()


def test_o12_a_base_inside_an_element_is_refused():
    raw = np.zeros(4 * 9, np.uint8)
    x = np.frombuffer(raw.data, np.float32, 8, offset=1).reshape(2, 4)
    with pytest.raises(ArgumentError, match="'input' begins at an address"):
        kernels.softmax(x, np.zeros((2, 4), np.float32))


# O13: a strided column of labels


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_o13_a_label_column(convert):
    logits = (np.arange(16) % 5).astype(np.float32).reshape(4, 4)
    labels = convert(np.array([[0, 9], [3, 9], [1, 9], [2, 9]]))[:, 0]
    losses = np.full(4, np.nan, np.float32)
    wanted = [3.4401897, 2.1851825, 0.3618490, 0.4197166]
    right_or_refused(kernels.cross_entropy, [logits, labels], losses, wanted, "'labels'")
    kernels.cross_entropy(logits, np.ascontiguousarray(labels), losses)
    np.testing.assert_allclose(losses, wanted, rtol=2e-5)


# Element types and producers


def test_bfloat16_numpy_arrays():
    entry = kernels.catalog()["rmsnorm"]
    arguments = entry.arguments(5, 65, "bfloat16")
    both_ways(entry.kernel, *arguments)
    assert entry.check(arguments)[0].within


def test_torch_and_numpy_arguments_mix_and_share_memory():
    x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4) / 4
    out = np.full((3, 4), np.nan, ml_dtypes.bfloat16)
    kernels.softmax(x, out)
    exact = oracles.softmax(x.float().numpy())
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=2.0**-8)


def test_a_tensor_that_requires_grad_is_taken_as_data():
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4).requires_grad_()
    out = torch.zeros(3, 4)
    kernels.softmax(x, out)
    np.testing.assert_allclose(out.numpy(), x.detach().softmax(1).numpy(), rtol=2e-5)


def test_tvm_tensors():
    import tvm

    x = tvm.runtime.tensor(squares(11))
    out = tvm.runtime.tensor(np.zeros((4, 4), np.float32))
    kernels.softmax(x, out)
    np.testing.assert_allclose(out.numpy(), oracles.softmax(squares(11)), rtol=2e-5)


def test_any_dlpack_producer():
    class Producer:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x, out = squares(11), np.zeros((4, 4), np.float32)
    kernels.softmax(Producer(x), Producer(out))
    np.testing.assert_allclose(out, oracles.softmax(x), rtol=2e-5)
    out[...] = 0
    strided = Producer(np.asfortranarray(x))
    try:
        kernels.softmax(strided, out)
        np.testing.assert_allclose(out, oracles.softmax(x), rtol=2e-5)
    except ArgumentError as error:
        assert "input" in str(error)
        np.testing.assert_array_equal(out, 0)


def test_a_read_only_array_is_an_input_but_no_output():
    x, out = squares(11), np.zeros((4, 4), np.float32)
    x.setflags(write=False)
    kernels.softmax(x, out)
    np.testing.assert_allclose(out, oracles.softmax(x), rtol=2e-5)
    with pytest.raises(ArgumentError, match="'output' is written, but the array is read-only"):
        kernels.softmax(out, x)


@pytest.mark.parametrize("shape", [(0, 4), (0, 1)])
@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["numpy", "torch"])
def test_empty_arrays(make, shape):
    x = make(shape)
    x = x.astype(np.float32) if isinstance(x, np.ndarray) else x
    both_ways(kernels.softmax, x, x + 0)
    both_ways(kernels.row_sum, x, x[:, 0] + 0)


# Arguments that overlap


def test_the_same_array_in_and_out():
    x = squares(7)
    expected = oracles.softmax(x)
    kernels.softmax(x, x)
    np.testing.assert_allclose(x, expected, rtol=2e-5)


@pytest.mark.parametrize("shift", [1, 4, 15])
def test_partial_overlap_is_right_or_refused(shift):
    memory = np.arange(40, dtype=np.float32) % 7
    x, out = memory[:16].reshape(4, 4), memory[shift : shift + 16].reshape(4, 4)
    expected, before = oracles.softmax(x), memory.copy()
    try:
        kernels.softmax(x, out)
    except ArgumentError as error:
        assert "overlap" in str(error) and "'input'" in str(error) and "'output'" in str(error)
        np.testing.assert_array_equal(memory, before)
    else:
        np.testing.assert_allclose(out, expected, rtol=2e-5)


def test_two_outputs_may_not_share_memory():
    memory = np.zeros(6, np.float32)
    with pytest.raises(ArgumentError, match="overlap"):
        kernels.minmax(squares(7), memory[:4], memory[2:])


# torch is optional


def test_numpy_needs_no_torch():
    script = """
        import sys
        sys.modules["torch"] = None  # as if it were not installed
        import numpy as np
        from tvm_tilex import kernels
        x, out = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
        kernels.softmax(x, out)
        assert (out == 0.25).all()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)


def test_importing_the_library_loads_neither_torch_nor_tvm_nor_numpy():
    script = """
        import sys
        import tvm_tilex.kernels
        assert not {"torch", "tvm", "tvm_ffi", "numpy"} & set(sys.modules), sys.modules.keys()
        tvm_tilex.kernels.catalog()
        assert not {"torch", "tvm", "tvm_ffi"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)
