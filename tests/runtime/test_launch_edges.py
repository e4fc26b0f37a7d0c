"""Launches at the edges: no programs, one element off, the wrong device or number of arrays."""

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.errors import ArgumentError, TargetError
from tvm_tilex.ir.interp import interpret

ENTRY = tx.kernels.catalog()["softmax"]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("target", ["llvm", "metal"])
def test_no_programs_launch_nothing(target):
    artifact = tx.compile(ENTRY.kernel, (0, 40), (0, 40), target=target)
    empty = np.zeros((0, 40), np.float32)
    artifact(empty, empty)
    assert artifact.empty
    if target == "metal":
        assert artifact.device.launches == () and artifact.source == ""


@pytest.mark.parametrize("offset", [1, 3, 5])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_base_off_by_elements_gives_the_same_bits(dtype, offset):
    """Vector loads must not assume more alignment than an element's."""
    arrays = ENTRY.arguments(5, 67, dtype, seed=2)
    tx.compile(ENTRY.kernel, *arrays)(*arrays)
    shifted = []
    for array in ENTRY.arguments(5, 67, dtype, seed=2):
        memory = np.zeros(array.size + offset, array.dtype)
        memory[offset:] = array.ravel()
        shifted.append(memory[offset:].reshape(array.shape))
    tx.compile(ENTRY.kernel, *shifted)(*shifted)
    assert shifted[1].tobytes() == arrays[1].tobytes()


def test_a_torch_slice_with_a_storage_offset():
    base = torch.randn(9, 40)
    out = torch.zeros(4, 40)
    ENTRY.kernel(base[3:7], out)
    torch.testing.assert_close(out, torch.softmax(base[3:7], dim=1))


def test_requires_grad_is_read_and_left_alone():
    x = torch.randn(3, 8, requires_grad=True)
    out = torch.zeros(3, 8)
    ENTRY.kernel(x, out)
    assert x.requires_grad and x.grad is None and not out.requires_grad
    torch.testing.assert_close(out, torch.softmax(x.detach(), dim=1))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_wrong_number_of_arrays_names_the_views(count):
    arrays = [np.zeros((3, 8), np.float32)] * count
    artifact = tx.compile(ENTRY.kernel, (3, 8), (3, 8))
    for call in (ENTRY.kernel, artifact):
        with pytest.raises(ArgumentError, match=r"takes 2 arrays \(input, output\)"):
            call(*arrays)


def test_an_unknown_device_is_refused_by_name():
    with pytest.raises(ArgumentError, match="meta"):
        ENTRY.kernel(torch.zeros(3, 8, device="meta"), torch.zeros(3, 8, device="meta"))


def test_a_target_without_its_device_says_so():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    artifact = tx.compile(ENTRY.kernel, (3, 8), (3, 8), target="cuda")
    x = np.zeros((3, 8), np.float32)
    with pytest.raises((TargetError, ArgumentError), match="cuda"):
        artifact(x, x.copy())


def test_outputs_that_a_program_does_not_write_keep_their_elements():
    @tx.tile_kernel
    def head(x: tx.TensorView[tx.float32, 1], out: tx.TensorView[tx.float32, 1, tx.InOut]):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            out(tx.coord(2), tx.shape(n)).store(x[tx.coord(0), tx.shape(n)] + 1.0)

    x, out = np.arange(5, dtype=np.float32), np.full(9, -7, np.float32)
    artifact = tx.compile(head, x, out)
    (wanted,) = interpret(artifact.tile_ir, [x, out])
    artifact(x, out)
    np.testing.assert_array_equal(out, wanted)
    assert (out[[0, 1, 7, 8]] == -7).all()


def test_an_exported_library_gives_the_same_bits(tmp_path):
    import tvm_ffi

    arrays = ENTRY.arguments(7, 130)
    artifact = tx.compile(ENTRY.kernel, *arrays)
    artifact(*arrays)
    path = artifact.export_library(tmp_path / "softmax.so")
    again = ENTRY.arguments(7, 130)
    tvm_ffi.load_module(str(path))["softmax"](*map(tvm_ffi.from_dlpack, again))
    assert again[1].tobytes() == arrays[1].tobytes()
