"""Arrays of torch, NumPy, TVM and DLPack producers as tensors that TVM takes, without copies."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_tilex.errors import ArgumentError
from tvm_tilex.ir.index import Dimension
from tvm_tilex.ir.program import View, ViewAccess
from tvm_tilex.support.srcloc import caller_location

__all__ = [
    "Argument",
    "as_numpy",
    "at_call",
    "buffer_and_offset",
    "check_argument",
    "describe",
    "exported",
    "overlapping",
    "require_same_device",
]

_DEVICES = {1: "llvm", 2: "cuda", 8: "metal"}


@dataclass(frozen=True)
class Argument:
    """One array of a call.

    ``strides`` are in elements, ``address`` in bytes. ``memory`` is what addresses count from: 0 on
    the processor and on CUDA, the handle of the buffer on Metal. ``tensor`` is what the kernel is
    called with and shares the caller's memory.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: tuple[str, int]
    address: int
    item_bytes: int
    writable: bool
    tensor: Any
    memory: int = 0

    @property
    def bytes(self) -> int:
        """Size of a contiguous array of this shape."""
        size = self.item_bytes
        for extent in self.shape:
            size *= extent
        return size

    @property
    def contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return 0 in self.shape
            expected *= extent
        return True


def describe(name: str, array: Any) -> Argument:
    """Describe an array for the parameter ``name``.

    Raises
    ------
    ArgumentError
        If it is no array, or one whose memory cannot be shared (sparse, foreign byte order, ...).
    """
    if isinstance(array, np.ndarray):
        return _describe_numpy(name, array)
    torch = sys.modules.get("torch")  # a torch tensor means that torch is loaded
    if torch is not None and isinstance(array, torch.Tensor):
        return _describe_torch(name, array)
    if hasattr(array, "__dlpack__"):
        return _describe_dlpack(name, array)
    raise ArgumentError(f"{name}: {type(array).__name__} is not an array (torch, NumPy, DLPack)")


def _describe_numpy(name: str, array: np.ndarray) -> Argument:
    dtype = array.dtype
    if not dtype.isnative or dtype.hasobject or dtype.names is not None:
        raise ArgumentError(f"{name}: NumPy dtype {dtype} has no counterpart in the language")
    if any(stride % dtype.itemsize for stride in array.strides):
        raise ArgumentError(f"{name}: strides {array.strides} are not whole elements")
    return Argument(
        shape=array.shape,
        dtype=dtype.name,
        strides=tuple(stride // dtype.itemsize for stride in array.strides),
        device=("llvm", 0),
        address=array.ctypes.data,
        item_bytes=dtype.itemsize,
        writable=array.flags.writeable,
        tensor=_LazyNumpy(array),
    )


class _LazyNumpy:
    """Exports a NumPy array only once its layout has been checked."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def export(self) -> Any:
        import tvm_ffi

        array = self.array
        if array.dtype.name == "bfloat16":  # NumPy's DLPack has no bfloat16
            bits = tvm_ffi.from_dlpack(_writable(array.view(np.uint16)))
            return bits._create_view(array.shape, dtype="bfloat16")
        return tvm_ffi.from_dlpack(_writable(array))


def _writable(array: np.ndarray) -> np.ndarray:
    """The same memory as a writable array: DLPack cannot export a read-only one."""
    if array.flags.writeable:
        return array
    memory = (ctypes.c_byte * max(1, array.nbytes)).from_address(array.ctypes.data)
    flat = np.frombuffer(memory, array.dtype, count=array.size)
    return flat.reshape(array.shape)


def _describe_torch(name: str, tensor: Any) -> Argument:
    import torch

    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        raise ArgumentError(f"{name}: only dense, materialized torch tensors are supported")
    kinds = {"cpu": "llvm", "cuda": "cuda", "mps": "metal"}
    kind = kinds.get(tensor.device.type)
    if kind is None:
        raise ArgumentError(f"{name}: torch device {tensor.device} is not cpu, cuda or mps")
    on_metal = kind == "metal"
    return Argument(
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        strides=tuple(tensor.stride()),
        device=(kind, tensor.device.index or 0),
        address=tensor.storage_offset() * tensor.element_size() if on_metal else tensor.data_ptr(),
        item_bytes=tensor.element_size(),
        writable=True,
        tensor=tensor.detach() if tensor.requires_grad else tensor,
        memory=tensor.untyped_storage().data_ptr() if on_metal else 0,
    )


def _describe_dlpack(name: str, array: Any) -> Argument:
    import tvm_ffi

    try:
        tensor = array if isinstance(array, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(array)
    except Exception as error:
        first = str(error).strip().splitlines()[-1]
        raise ArgumentError(f"{name}: its DLPack export failed: {first}") from None
    code, index = tensor.device.dlpack_device_type(), tensor.device.index
    if code not in _DEVICES:
        raise ArgumentError(f"{name}: device {tensor.device} is not cpu, cuda or metal")
    dtype = str(tensor.dtype)
    memory, address = 0, tensor.data_ptr()
    if _DEVICES[code] == "metal":
        memory, address = buffer_and_offset(tensor)
    return Argument(
        shape=tuple(tensor.shape),
        dtype=dtype,
        strides=tuple(tensor.strides),
        device=(_DEVICES[code], index),
        address=address,
        item_bytes=max(1, tensor.dtype.itemsize),
        writable=True,
        tensor=tensor,
        memory=memory,
    )


class _DLTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h: the first member of both capsules' structures up to version 0.8."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def buffer_and_offset(tensor: Any) -> tuple[int, int]:
    """Handle of the memory object and the byte offset of the first element, read from DLPack.

    On Metal ``data`` is a buffer object, so that ``data + byte_offset`` is no address.
    """
    capsule = tensor._to_dlpack()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    found = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    return int(found.data or 0), int(found.byte_offset)


def check_argument(kernel: str, view: View, argument: Argument) -> None:
    """Refuse an argument that does not fit the compiled view.

    Raises
    ------
    ArgumentError
        Naming the kernel, the parameter and what differs.
    """
    where = f"{kernel}: argument {view.name!r}"
    if argument.dtype != view.dtype.name:
        raise ArgumentError(f"{where} is {argument.dtype}; the kernel takes {view.dtype}")
    dynamic = any(isinstance(extent, Dimension) for extent in view.shape)
    if not dynamic and argument.shape != view.shape:  # dynamic ones are bound together
        raise ArgumentError(
            f"{where} has shape {argument.shape}; the kernel was compiled for {view.shape}"
        )
    if not argument.contiguous:
        raise ArgumentError(
            f"{where} has strides {argument.strides} over shape {argument.shape}; views are "
            "row-major without gaps (pass a contiguous copy)"
        )
    if argument.address % argument.item_bytes:
        raise ArgumentError(f"{where} begins at an address that is not a multiple of its element")
    if view.access is not ViewAccess.read and not argument.writable:
        raise ArgumentError(f"{where} is written, but the array is read-only")


def require_same_device(kernel: str, name: str, argument: Argument, first: Argument) -> None:
    """Refuse an argument on another device, or another device of that kind, than the first.

    Raises
    ------
    ArgumentError
        Naming the parameter and both devices.
    """
    if argument.device != first.device:
        here, there = (f"{kind}:{index}" for kind, index in (argument.device, first.device))
        raise ArgumentError(
            f"{kernel}: argument {name!r} is on {here}, the first argument on {there}"
        )


def at_call(kernel: str, error: ArgumentError) -> ArgumentError:
    """The error with the kernel's name and the caller's line, where it lacks them."""
    if error.location is not None:
        return error
    message = str(error) if str(error).startswith(kernel) else f"{kernel}: {error}"
    return type(error)(message, location=caller_location())


def overlapping(a: Argument, b: Argument) -> bool:
    """Whether two contiguous arguments share a byte of one device's memory."""
    if (a.device, a.memory) != (b.device, b.memory) or not a.bytes or not b.bytes:
        return False
    return a.address < b.address + b.bytes and b.address < a.address + a.bytes


def as_numpy(argument: Argument) -> np.ndarray:
    """The argument's memory as a NumPy array (processor memory only)."""
    tensor = argument.tensor
    if isinstance(tensor, _LazyNumpy):
        return tensor.array
    if argument.dtype == "bfloat16":
        import ml_dtypes
        import torch

        if isinstance(tensor, torch.Tensor):
            return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return np.from_dlpack(tensor)


def exported(argument: Argument) -> Any:
    """The tensor to call a compiled function with."""
    tensor = argument.tensor
    return tensor.export() if isinstance(tensor, _LazyNumpy) else tensor
