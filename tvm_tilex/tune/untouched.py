"""Whether a process may be copied: CUDA works in no copy of a process that has initialized it.

A question is enough to initialize it. ``tvm_ffi`` asks torch, while it is imported, whether there
is a CUDA device; hence :data:`WITHOUT_QUESTIONS` for a process that loads TVM to be copied.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

__all__ = ["WITHOUT_QUESTIONS", "initialized_cuda"]

# What tvm_ffi then leaves out is its exchange of torch tensors with old releases of torch, which
# jobs do not use: their arrays are NumPy's and TVM's.
WITHOUT_QUESTIONS: Mapping[str, str] = {"TVM_FFI_DISABLE_TORCH_C_DLPACK": "1"}

_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED


def initialized_cuda() -> bool:
    """Whether this process has initialized CUDA; asking initializes nothing.

    Every call of the driver's interface but ``cuInit`` says so where ``cuInit`` was not called.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except (OSError, AttributeError):  # not loaded, or a system without such libraries
        return False
    return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != _NOT_INITIALIZED
