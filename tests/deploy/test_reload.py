"""An exported library runs in a process that has tvm_ffi and TVM's runtime, not the compiler."""

import subprocess
import sys

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

SCRIPT = """
import sys
import numpy as np
import tvm_ffi

library, function, *files = sys.argv[1:]
runtime = tvm_ffi.libinfo.load_lib_ctypes("apache-tvm", "tvm_runtime", "RTLD_LOCAL")
kernel = tvm_ffi.load_module(library)[function]
arrays = [np.load(file) for file in files]
kernel(*map(tvm_ffi.from_dlpack, arrays))
np.save(files[-1], arrays[-1])

compiler = {"tvm", "tvm_tilex"} & set(sys.modules)
assert not compiler, f"the process imported {compiler}"
with open("/proc/self/maps" if sys.platform == "linux" else "/dev/null") as maps:
    assert "libtvm_compiler" not in maps.read()
"""


@pytest.mark.parametrize(
    ("kernel", "rows", "columns", "dtype"),
    [
        ("softmax", 3, 4096, "float32"),
        ("cross_entropy", 7, 1024, "float32"),
        ("layernorm", 5, 127, "float16"),
    ],
)
def test_reloaded_library_gives_the_same_bytes(tmp_path, kernel, rows, columns, dtype):
    entry = kernels.catalog()[kernel]
    arguments = entry.arguments(rows, columns, dtype)
    files = [tmp_path / f"{name}.npy" for name in entry.parameters]
    for file, array in zip(files, arguments, strict=True):
        np.save(file, array)  # the output is still all NaN
    artifact = tx.compile(entry.kernel, *entry.specs(rows, columns, dtype))
    library = artifact.export_library(tmp_path / f"{kernel}.so")

    words = [sys.executable, "-c", SCRIPT, library, kernel, *files]
    ran = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    artifact(*arguments)
    assert np.load(files[-1]).tobytes() == arguments[-1].tobytes()
    assert not np.isnan(arguments[-1]).any()
