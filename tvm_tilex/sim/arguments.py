"""Arguments of a launch: overlapping arrays in one storage, scalars in an argument struct."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from tvm_tilex.sim.errors import LaunchError
from tvm_tilex.sim.memory import Storage
from tvm_tilex.sim.types import ArrayType, ScalarType, StructType

__all__ = ["bind_storages", "pack_struct"]


def _span(array: np.ndarray) -> tuple[int, int]:
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes


def bind_storages(arrays: list[np.ndarray]) -> list[tuple[Storage, int]]:
    """Return (storage, byte offset in it) per array; arrays that overlap share a storage."""
    order = sorted(range(len(arrays)), key=lambda k: _span(arrays[k]))
    clusters: list[list[int]] = []
    end = -1
    for k in order:
        start, stop = _span(arrays[k])
        if clusters and start < end and arrays[k].nbytes:
            clusters[-1].append(k)
        else:
            clusters.append([k])
            end = start
        end = max(end, stop)
    placed: dict[int, tuple[Storage, int]] = {}
    for cluster in clusters:
        unit = min(arrays[k].itemsize for k in cluster)
        if len(cluster) == 1:
            array = arrays[cluster[0]]
            placed[cluster[0]] = (Storage(array.reshape(-1).view(np.uint8), unit), 0)
            continue
        start = min(_span(arrays[k])[0] for k in cluster) // 16 * 16
        stop = max(_span(arrays[k])[1] for k in cluster)
        raw = (ctypes.c_uint8 * (stop - start)).from_address(start)
        storage = Storage(np.ctypeslib.as_array(raw), unit)
        for k in cluster:
            placed[k] = (storage, _span(arrays[k])[0] - start)
    return [placed[k] for k in range(len(arrays))]


def pack_struct(
    kernel: str, name: str, struct: StructType, rest: list[Any]
) -> tuple[np.ndarray, list[Any]]:
    """Return the bytes of an argument struct and the arguments that remain.

    A ``T field[2]`` holds its value in element 0, as TVM lays out 32-bit scalars.
    """
    if rest and isinstance(rest[0], Mapping):
        given, rest = dict(rest[0]), rest[1:]
    else:
        names = [field for field, _, _ in struct.fields]
        if len(rest) < len(names):
            raise LaunchError(
                f"kernel {kernel}: struct {name!r} takes {len(names)} scalars "
                f"({', '.join(names)}), not {len(rest)}"
            )
        given, rest = dict(zip(names, rest, strict=False)), rest[len(names) :]
    data = np.zeros(struct.size, np.uint8)
    for field, kind, offset in struct.fields:
        if field not in given:
            raise LaunchError(f"kernel {kernel}: struct {name!r} has no value for {field!r}")
        element = kind.element if isinstance(kind, ArrayType) else kind
        if not isinstance(element, ScalarType):
            raise LaunchError(f"kernel {kernel}: field {field!r} of type {kind} takes no scalar")
        value = np.asarray(given.pop(field))
        if value.ndim or (value.dtype.kind not in "biuf" and value.dtype.itemsize != 2):
            raise LaunchError(f"kernel {kernel}: field {field!r} takes a scalar")
        packed = value.astype(element.dtype)
        if element.kind in "iu" and int(packed) != value:
            raise LaunchError(f"kernel {kernel}: {value} does not fit field {field!r} ({element})")
        data[offset : offset + element.size] = np.frombuffer(packed.tobytes(), np.uint8)
    if given:
        raise LaunchError(f"kernel {kernel}: struct {name!r} has no field {min(given)!r}")
    return data, rest
