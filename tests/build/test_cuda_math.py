"""CUDA kernels say what arithmetic they need, and the callback that compiles them obeys."""

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build import cuda_compile, cuda_toolchain, machine_code
from tvm_tilex.errors import TargetError
from tvm_tilex.tirx.compat import tvm

VIEW = tx.TensorView


@tx.tile_kernel
def ordered(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        tile = x[tx.coord(nest.index(), 0), tx.shape(tx.axis("one", 1), columns)]
        total = tx.reduce(tile * tile, columns, tx.add, policy=tx.ReductionPolicy.fold_left)
        out(tx.coord(nest.index()), tx.shape(tx.axis("one", 1))).store(total)


def softmax(target="cuda"):
    entry = kernels.catalog()["softmax"]
    return tx.compile(entry.kernel, *entry.specs(3, 40), target=target)


def compile_callback():
    return tvm.get_global_func("tvm_callback_cuda_compile")


def test_a_kernel_asks_for_ieee_arithmetic():
    assert cuda_compile.options_of(softmax().source) == ("sm_90", ())


def test_an_ordered_kernel_asks_that_nothing_is_contracted():
    artifact = tx.compile(ordered, (3, 40), (3,), target="cuda")
    assert artifact.requires_precise_math
    assert cuda_compile.options_of(artifact.source) == ("sm_90", ("--fmad=false",))


def test_another_architecture_is_named():
    described = {"kind": "cuda", "arch": "sm_80", "max_num_threads": 1024, "thread_warp_size": 32}
    assert cuda_compile.options_of(softmax(described).source)[0] == "sm_80"


def test_other_targets_say_nothing():
    assert "// tilex" not in softmax("metal").source


def test_the_callback_compiles_ours_and_leaves_the_rest(monkeypatch):
    compiled, others = [], []
    monkeypatch.setattr(
        machine_code, "compile_cubin", lambda *asked: compiled.append(asked[1:]) or b"cubin"
    )
    stock = tvm.get_global_func("tvm_callback_cuda_compile", allow_missing=True)
    source = softmax().source
    try:
        tvm.register_global_func(
            "tvm_callback_cuda_compile", lambda code: others.append(code) or b"stock", override=True
        )
        cuda_compile.register_cuda_compile()
        callback = compile_callback()
        cuda_compile.register_cuda_compile()  # installed: not wrapped again
        assert compile_callback() == callback
        assert bytes(callback(source)) == b"cubin" and not others
        assert bytes(callback("__global__ void other() {}")) == b"stock"
        assert compiled == [("sm_90", ())] and others == ["__global__ void other() {}"]
    finally:
        tvm.register_global_func("tvm_callback_cuda_compile", stock, override=True)


def test_a_users_text_callback_still_runs():
    seen = []
    stock = tvm.get_global_func("tvm_callback_cuda_postproc", allow_missing=True)

    def users(code, target):
        seen.append(code)
        return code + "// user\n"

    try:
        tvm.register_global_func("tvm_callback_cuda_postproc", users, override=True)
        entry = kernels.catalog()["row_sum"]
        source = tx.compile(entry.kernel, *entry.specs(3, 77), target="cuda").source
        assert len(seen) == 1 and source.endswith("// user\n")
        assert cuda_compile.options_of(source) is not None
    finally:
        tvm.register_global_func("tvm_callback_cuda_postproc", stock, override=True)


def test_without_a_compiler_the_error_names_both(monkeypatch):
    monkeypatch.setattr(cuda_toolchain, "find_nvcc", lambda: None)
    monkeypatch.setattr(cuda_toolchain, "_has_nvrtc", lambda: False)
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    with pytest.raises(TargetError, match=r"neither nvcc nor the cuda-bindings package"):
        cuda_toolchain.compile_cubin("", "sm_90", ())


def test_nvcc_gets_the_architecture_and_the_options_alone(monkeypatch, tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\necho "$@" > "$0.log"\nwhile [ "$1" != -o ]; do shift; done\n'
                    'printf cubin > "$2"\n')  # fmt: skip
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda_toolchain, "find_nvcc", lambda: str(nvcc))
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    assert cuda_toolchain.compile_cubin("text", "sm_80", ("--fmad=false",)) == b"cubin"
    command = (tmp_path / "nvcc.log").read_text().split(" -o ")[0]
    assert command == "-cubin -O3 -arch=sm_80 --fmad=false"


def test_a_compilers_first_error_is_the_message(monkeypatch, tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'note' >&2\necho 'k.cu(3): error: no such type' >&2\nexit 1\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda_toolchain, "find_nvcc", lambda: str(nvcc))
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    with pytest.raises(TargetError, match=r"^nvcc: k\.cu\(3\): error: no such type$"):
        cuda_toolchain.compile_cubin("text", "sm_80", ())


COMPILERS = {
    "nvcc": lambda: cuda_toolchain.find_nvcc() is not None,
    "nvrtc": cuda_toolchain._has_nvrtc,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_compiler_accepts_the_text(monkeypatch, compiler, dtype):
    if not COMPILERS[compiler]():
        pytest.skip(f"needs {compiler}")
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", compiler)
    entry = kernels.catalog()["cross_entropy"]
    source = tx.compile(entry.kernel, *entry.specs(3, 257, dtype), target="cuda").source
    cubin = cuda_toolchain.compile_cubin(source, *cuda_compile.options_of(source))
    assert cubin[:4] == b"\x7fELF"
    with pytest.raises(TargetError, match="error"):
        cuda_toolchain.compile_cubin(source + "nonsense", *cuda_compile.options_of(source))
