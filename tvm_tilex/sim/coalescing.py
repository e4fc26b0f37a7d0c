"""Distinct 128-byte segments and bank conflicts of SIMD accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine
    from tvm_tilex.sim.memory import Access

__all__ = ["BANKS", "BANK_BYTES", "SEGMENT_BYTES", "bank_conflicts", "segments"]

SEGMENT_BYTES = 128
BANKS = 32
BANK_BYTES = 4
_SEGMENT_SHIFT = 7


def segments(machine: Machine, flat: Any, size: int) -> tuple[int, int]:
    """Return (SIMD accesses, distinct 128-byte segments) of one load or store.

    Parameters
    ----------
    machine
        The lanes; its active mask tells which of them access.
    flat
        Byte addresses: an integer, an array that broadcasts to the lanes when all of them are
        active, otherwise one entry per active lane.
    size
        Bytes of one access; a lane that crosses a segment boundary touches two.
    """
    rows, copies = _rows(machine, flat)
    if rows is None:
        accesses = machine.groups * machine.simds
        crossing = np.asarray((flat >> _SEGMENT_SHIFT) != ((flat + size - 1) >> _SEGMENT_SHIFT))
        repeat = accesses // max(crossing.size, 1)
        return accesses, accesses + int(np.count_nonzero(crossing)) * repeat
    address, row, accesses = rows
    first = address >> _SEGMENT_SHIFT
    touched = _distinct(row, first)
    if size > 1:
        last = (address + (size - 1)) >> _SEGMENT_SHIFT
        if not np.array_equal(first, last):
            both = np.concatenate((first, last), axis=-1)
            touched = _distinct(row if row is None else np.concatenate((row, row)), both)
    return accesses * copies, touched * copies


def bank_conflicts(machine: Machine, flat: Any, access: Access) -> tuple[int, int]:
    """Return (SIMD accesses, extra passes) of one threadgroup load or store."""
    size = access.dtype.itemsize
    rows, copies = _rows(machine, flat)
    if rows is None:
        return machine.groups * machine.simds, 0
    address, row, accesses = rows
    extra = 0
    for c in range(max(access.lanes * size // BANK_BYTES, 1)):
        word = (address + c * BANK_BYTES) // BANK_BYTES
        extra += _conflicts(machine, row, word)
    return accesses * copies, extra * copies


def _rows(machine: Machine, flat: Any) -> tuple[Any, int]:
    """Return ((addresses, row ids or None for one row per SIMD group, accesses), copies).

    The first is None where all lanes of a SIMD group share the address.
    """
    width = machine.simd_width
    if machine.mask.array is None:
        if np.ndim(flat) == 0 or flat.shape[1] == 1:
            return None, 1
        copies = machine.groups // flat.shape[0]
        if machine.threads % width == 0:
            rows = flat.reshape(-1, width)
            return (rows, None, rows.shape[0]), copies
        row = np.arange(flat.shape[0])[:, None] * machine.simds + machine.thread // width
        row = row.reshape(-1)
        return (flat.reshape(-1), row, flat.shape[0] * machine.simds), copies
    lane = machine.mask.flat(machine.shape)
    if machine.threads % width == 0:
        row = lane // width
    else:
        row = lane // machine.threads * machine.simds + lane % machine.threads // width
    changes = int(np.count_nonzero(row[1:] != row[:-1])) + 1 if row.size else 0
    return (np.asarray(flat).reshape(-1), row, changes), 1


def _distinct(row: np.ndarray | None, value: np.ndarray) -> int:
    """Count distinct (row, value) pairs."""
    if row is None:
        before, after = value[:, :-1], value[:, 1:]
        if not np.all(before <= after):
            value = np.sort(value, axis=1)
            before, after = value[:, :-1], value[:, 1:]
        return value.shape[0] + int(np.count_nonzero(before != after))
    if value.size == 0:
        return 0
    key = row * (int(value.max()) + 1) + value
    if not np.all(key[:-1] <= key[1:]):
        key = np.sort(key)
    return 1 + int(np.count_nonzero(key[:-1] != key[1:]))


def _conflicts(machine: Machine, row: np.ndarray | None, word: np.ndarray) -> int:
    """Return the sum over rows of (largest number of distinct words in one bank) - 1."""
    if row is None:
        step = word[:, 1:] - word[:, :-1]
        # A row that runs through consecutive words (or repeats them) has no conflict.
        if step.size == 0 or (step.min() >= 0 and step.max() <= 1):
            return 0
        row = np.repeat(np.arange(word.shape[0]), word.shape[1])
        word = word.reshape(-1)
    if word.size == 0:
        return 0
    key = np.unique(row * (int(word.max()) + 1) + word)
    rows, words = np.divmod(key, int(word.max()) + 1)
    banks, counts = np.unique(rows * BANKS + words % BANKS, return_counts=True)
    worst = np.zeros(int(rows.max()) + 1, np.int64)
    np.maximum.at(worst, banks // BANKS, counts)
    return int((worst[worst > 0] - 1).sum())
