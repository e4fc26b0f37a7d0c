"""What the simulator's tests share: compiling with TVM for Metal, and the launch it asks for."""

from __future__ import annotations

import importlib
import inspect
import warnings
from unittest import mock

import pytest


class TvmKernels:
    """Kernels that stock TVM emits for a function, with the launch of each.

    The launch comes from the device functions after TVM's own host/device split, not from the
    simulator.
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tvm
        self.tvm = tvm
        self.target = tvm.target.Target(
            {
                "kind": "metal",
                "thread_warp_size": 32,
                "max_num_threads": 1024,
                "max_threads_per_block": 1024,
                "max_shared_memory_per_block": 32768,
            },
            host="llvm",
        )

    def source(self, function) -> str:
        """Return the MSL text of a PrimFunc or an IRModule."""
        module = self.tvm.compile(function, target=self.target)
        return getattr(module, "mod", module).imports[0].inspect_source()

    def scheduled(self, function, *rules):
        """Return the module after dlight's rules."""
        from tvm.s_tir import dlight

        _import_tensor_intrinsics()
        module = function
        if not isinstance(function, self.tvm.IRModule):
            module = self.tvm.IRModule({"main": function})
        with self.target:
            return dlight.ApplyDefaultSchedule(*rules)(module)

    def launches(self, module) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return (grid, group) of each kernel in the text's order, from the thread bindings."""
        if not isinstance(module, self.tvm.IRModule):
            module = self.tvm.IRModule({"main": module})
        (function,) = module.functions.values()
        found = []
        for nest in _outer_nests(function.body):
            extents: dict[str, int] = {}
            _bindings(nest, extents)
            if extents:
                axes = [
                    tuple(extents.get(f"{kind}.{axis}", 1) for axis in "xyz")
                    for kind in ("blockIdx", "threadIdx")
                ]
                found.append((axes[0], axes[1]))
        return found


def _import_tensor_intrinsics() -> None:
    """Import what dlight's Matmul needs, with a remembering ``inspect.getmodule``.

    TVM parses hundreds of functions there and looks through all of ``sys.modules`` for each line of
    each, which takes 19 s of processor time instead of 2.
    """
    original, known = inspect.getmodule, {}

    def getmodule(found, _filename=None):
        code = getattr(found, "f_code", found)
        key = getattr(found, "__module__", None) or getattr(code, "co_filename", _filename)
        if key is None:
            return original(found, _filename)
        if key not in known:
            known[key] = original(found, _filename)
        return known[key]

    with mock.patch("inspect.getmodule", getmodule):
        importlib.import_module("tvm.s_tir.tensor_intrin")


def _outer_nests(statement):
    name = type(statement).__name__
    if name == "SBlockRealize" and statement.block.name_hint == "root":
        return _outer_nests(statement.block.body)
    if name == "SeqStmt":
        return [nest for part in statement.seq for nest in _outer_nests(part)]
    return [statement]


def _bindings(statement, extents: dict[str, int]) -> None:
    from tvm_ffi import structural

    def visit(node):
        if type(node).__name__ == "For" and node.thread_binding is not None:
            extents[str(node.thread_binding.thread_tag)] = int(node.extent)

    structural.structural_walk(statement, visit)


@pytest.fixture(scope="session")
def tvm_kernels() -> TvmKernels:
    return TvmKernels()
