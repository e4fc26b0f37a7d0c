"""Precise math on Metal: Apple's toolchain with fast math off, or an explicit refusal.

A stand-in for ``xcrun`` records its arguments and answers with the source behind a mark, so that
the payload can be told from plain text.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build import metal_compile
from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import resolve_target, system_has
from tvm_tilex.errors import TargetError
from tvm_tilex.ir.interp import interpret
from tvm_tilex.tirx.compat import tvm

MARK = b"MTLB-stand-in\0"
CALLBACK = "tvm_callback_metal_compile"
SCRIPT = """#!/bin/sh
here="$(dirname "$0")"
if [ -e "$here/broken" ]; then echo "kernel.metal:3:1: error: no such thing" >&2; exit 1; fi
for argument in "$@"; do echo "$argument" >> "$here/arguments"; done
while [ "$1" != "-o" ]; do source="$1"; shift; done
cat "$source" >> "$here/sources"
{ cat "$here/mark"; cat "$source"; } > "$2"
"""


@tx.tile_kernel
def ordered_sum(
    x: tx.TensorView["float32", 2],  # noqa: F821
    out: tx.TensorView["float32", 1, "out"],  # noqa: F821
    *,
    scale: float = 1.0,
):
    """A sum from left to right."""
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        value = x[tx.coord(nest.index(), 0), tx.shape(one, columns)] * scale
        total = tx.reduce(value, columns, tx.add, policy=tx.ReductionPolicy.fold_left)
        out(tx.coord(nest.index()), tx.shape(one)).store(total)


def compiled(scale: float = 1.0):
    return tx.compile(ordered_sum, (3, 50), (3,), target="metal", scale=scale)


@pytest.fixture
def toolchain(tmp_path, monkeypatch):
    """The folder of a stand-in ``xcrun`` that is first on PATH."""
    folder = tmp_path / "toolchain"
    folder.mkdir()
    (folder / "mark").write_bytes(MARK)
    script = folder / "xcrun"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def no_toolchain(monkeypatch):
    """PATH without the folders that hold ``xcrun``."""
    folders = os.environ["PATH"].split(os.pathsep)
    kept = [f for f in folders if not Path(f, "xcrun").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(kept))
    assert shutil.which("xcrun") is None


def arguments_of(toolchain) -> list[str]:
    path = toolchain / "arguments"
    return path.read_text().splitlines() if path.exists() else []


# With the toolchain


def test_the_toolchain_gets_the_exact_source_and_no_fast_math(toolchain):
    artifact = compiled(1.5)
    assert artifact.requires_precise_math and not artifact.text_only
    arguments = arguments_of(toolchain)
    assert arguments[:3] == ["-sdk", "macosx", "metal"]
    assert "-fno-fast-math" in arguments and "-ffast-math" not in arguments
    assert arguments.count("-o") == 1
    seen = (toolchain / "sources").read_bytes()
    title, _, text = artifact.source.partition("\n")  # TVM puts a title before each kernel
    assert title == "// Function: ordered_sum_kernel"
    assert seen.decode().rstrip() == text.rstrip()
    assert b"kernel void ordered_sum_kernel" in seen


def test_the_payload_is_the_toolchains_and_survives_export(toolchain, tmp_path):
    artifact = compiled(2.5)
    path = artifact.export_library(tmp_path / "ordered.so")
    library = path.read_bytes()
    payload = MARK + (toolchain / "sources").read_bytes()
    assert payload in library
    try:
        loaded = tvm.runtime.load_module(str(path))
    except RuntimeError as error:  # no Metal runtime in this build of TVM
        assert "ffi.Module.load_from_bytes.metal" in str(error)
        return
    again = tmp_path / "again.so"
    loaded.export_library(str(again))
    assert payload in again.read_bytes()


def test_a_rejected_source_is_a_target_error(toolchain):
    (toolchain / "broken").touch()
    with pytest.raises(TargetError, match=r"xcrun metal failed: kernel\.metal:3:1: error"):
        compiled(3.5)


def test_plain_tvm_goes_the_same_way(toolchain):
    module = tvm.compile(
        tx.lower(ordered_sum, (3, 50), (3,)), target=resolve_target("metal"), tir_pipeline="tilex"
    )
    assert "-fno-fast-math" in arguments_of(toolchain)
    assert "ordered_sum_kernel" in str(module.mod.imports[0].inspect_source())


def test_kernels_without_the_need_are_not_sent_there(toolchain):
    for name, found in kernels.catalog().items():
        artifact = tx.compile(found.kernel, *found.specs(2, 48), target="metal")
        assert artifact.source and not artifact.requires_precise_math, name
    assert arguments_of(toolchain) == []


def test_all_kernels_of_one_module_share_its_format(toolchain):
    """One payload format a module: a neighbour of an ordered kernel is compiled precisely too."""
    mod = tx.lower(ordered_sum, (3, 50), (3,))
    found = kernels.catalog()["row_max"]
    mod.update(tx.lower(found.kernel, *found.specs(3, 50)))
    tvm.compile(mod, target=resolve_target("metal"), tir_pipeline="tilex")
    assert arguments_of(toolchain).count("-fno-fast-math") == 2


# Without it


def test_source_can_be_read_and_simulated(no_toolchain):
    artifact = compiled(0.1)
    assert artifact.text_only and "kernel void" in artifact.source
    x = np.random.default_rng(0).standard_normal((3, 50), dtype=np.float32)
    out = np.full(3, np.nan, np.float32)
    artifact.simulate(x, out)
    (wanted,) = interpret(artifact.tile_ir, (x, None))
    assert out.tobytes() == wanted.tobytes()


def test_nothing_launchable_is_made(no_toolchain, tmp_path):
    artifact = compiled(0.2)
    with pytest.raises(TargetError, match=r"ordered_sum: needs precise math.*xcrun"):
        artifact.export_library(tmp_path / "ordered.so")
    assert not (tmp_path / "ordered.so").exists()
    with pytest.raises(TargetError, match="needs precise math"):
        _ = artifact.function
    with pytest.raises(TargetError, match=r"ordered_sum: needs precise math.*xcrun"):
        tvm.compile(
            tx.lower(ordered_sum, (3, 50), (3,), scale=0.2),
            target=resolve_target("metal"),
            tir_pipeline="tilex",
        )


def test_a_toolchain_that_appears_later_is_used(no_toolchain, monkeypatch, tmp_path):
    before = compiled(0.3)
    assert before.text_only
    folder = tmp_path / "late"
    folder.mkdir()
    (folder / "mark").write_bytes(MARK)
    (folder / "xcrun").write_text(SCRIPT)
    (folder / "xcrun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(TargetError):  # its module still holds text
        before.export_library(tmp_path / "text.so")
    after = compiled(0.3)
    assert not after.text_only
    assert MARK in after.export_library(tmp_path / "precise.so").read_bytes()


def test_kernels_without_the_need_build_as_ever(no_toolchain, tmp_path):
    found = kernels.catalog()["softmax"]
    artifact = tx.compile(found.kernel, *found.specs(2, 80), target="metal")
    assert artifact.export_library(tmp_path / "softmax.so").exists()


def test_a_refused_build_leaves_nothing_behind(no_toolchain):
    with pytest.raises(TargetError):
        tvm.compile(
            tx.lower(ordered_sum, (3, 50), (3,), scale=0.4),
            target=resolve_target("metal"),
            tir_pipeline="tilex",
        )
    found = kernels.catalog()["row_min"]
    lowered = tx.lower(found.kernel, *found.specs(2, 80))
    tvm.compile(lowered, target=resolve_target("metal"), tir_pipeline="tilex")


# Another callback


@pytest.fixture
def users_callback():
    """A callback of the user's, installed over whatever was there, and taken away again."""
    register_pipeline()
    ours, seen = tvm.get_global_func(CALLBACK), []

    def compile_kernel(source, target):
        seen.append(source)
        return (source, "metal")

    tvm.register_global_func(CALLBACK, compile_kernel, override=True)
    yield seen
    tvm.register_global_func(CALLBACK, ours, override=True)
    metal_compile._INSTALLED[:] = [tvm.get_global_func(CALLBACK)]


def test_a_users_callback_still_serves_other_kernels(users_callback, toolchain):
    compiled(4.5)  # takes its place in front of the user's
    assert arguments_of(toolchain) and not users_callback
    found = kernels.catalog()["row_max"]
    tx.compile(found.kernel, *found.specs(2, 81), target="metal")
    assert len(users_callback) == 1 and "row_max_kernel" in users_callback[0]


def test_a_users_callback_is_never_trusted_with_precise_math(users_callback, no_toolchain):
    with pytest.raises(TargetError, match="needs precise math"):
        tvm.compile(
            tx.lower(ordered_sum, (3, 50), (3,), scale=5.5),
            target=resolve_target("metal"),
            tir_pipeline="tilex",
        )
    assert not users_callback


def test_stock_kernels_of_the_same_process_are_left_alone(users_callback, no_toolchain):
    compiled(6.5)
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def stock(x: T.Buffer((32,), "float32"), out: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "stock"})
        for i in T.thread_binding(32, thread="threadIdx.x"):
            out[i] = x[i] + T.float32(1)

    tvm.compile(stock, target=resolve_target("metal"))
    assert len(users_callback) == 1 and "stock_kernel" in users_callback[0]


@pytest.mark.device("metal")
@pytest.mark.skipif(
    sys.platform != "darwin" or not system_has("metal") or shutil.which("xcrun") is None,
    reason="needs macOS with an Apple GPU and Apple's toolchain",
)
def test_a_real_metallib_keeps_the_order():
    version = subprocess.run(["xcrun", "-sdk", "macosx", "metal", "--version"], check=False)
    if version.returncode != 0:
        pytest.skip("xcrun has no Metal compiler here")
    x = np.ones((3, 50), np.float32)
    x[:, 0] = 2.0**24
    device = tvm.runtime.device("metal", 0)
    out = tvm.runtime.tensor(np.full(3, np.nan, np.float32), device)
    compiled(1.0)(tvm.runtime.tensor(x, device), out)
    assert out.numpy().tolist() == [2.0**24] * 3
