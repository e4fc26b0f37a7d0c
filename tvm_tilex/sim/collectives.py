"""SIMD-group functions. Every lane of the SIMD group has to reach them together.

Reductions combine the lanes as a tree over a permutation that the launch's seed and the place in
the text choose, so that a result that depends on the order differs between seeds, while equal
launches agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.errors import CollectiveDivergenceError, KernelFault
from tvm_tilex.sim.values import Tainted

if TYPE_CHECKING:
    from tvm_tilex.sim.machine import Machine
    from tvm_tilex.sim.syntax import Node

__all__ = ["PERMUTES", "REDUCTIONS", "SCANS", "reduce_lanes", "scan_lanes", "shuffle", "together"]


def _identity_sum(dtype: np.dtype) -> Any:
    return dtype.type(0) if dtype.kind in "iu" else dtype.type(-0.0)


def _identity_max(dtype: np.dtype) -> Any:
    return dtype.type(np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf)


def _identity_min(dtype: np.dtype) -> Any:
    return dtype.type(np.iinfo(dtype).max if dtype.kind in "iu" else np.inf)


# name: (function, identity, needs integers)
REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[[np.dtype], Any], bool]] = {
    "simd_sum": (np.add, _identity_sum, False),
    "simd_product": (np.multiply, lambda dtype: dtype.type(1), False),
    "simd_max": (np.fmax, _identity_max, False),
    "simd_min": (np.fmin, _identity_min, False),
    "simd_and": (np.bitwise_and, lambda dtype: np.invert(dtype.type(0)), True),
    "simd_or": (np.bitwise_or, lambda dtype: dtype.type(0), True),
    "simd_xor": (np.bitwise_xor, lambda dtype: dtype.type(0), True),
}
# name: (function, exclusive, identity)
SCANS: dict[str, tuple[Any, bool, Callable[[np.dtype], Any]]] = {
    "simd_prefix_inclusive_sum": (np.add, False, lambda dtype: dtype.type(0)),
    "simd_prefix_exclusive_sum": (np.add, True, lambda dtype: dtype.type(0)),
    "simd_prefix_inclusive_product": (np.multiply, False, lambda dtype: dtype.type(1)),
    "simd_prefix_exclusive_product": (np.multiply, True, lambda dtype: dtype.type(1)),
}
# name: whether the second argument has to be uniform over the SIMD group
PERMUTES: dict[str, bool] = {
    "simd_shuffle": False,
    "simd_shuffle_xor": True,
    "simd_shuffle_up": True,
    "simd_shuffle_down": True,
    "simd_shuffle_rotate_up": True,
    "simd_shuffle_rotate_down": True,
    "simd_broadcast": True,
}


def together(
    machine: Machine,
    node: Node,
    name: str,
    kind: type[KernelFault] = CollectiveDivergenceError,
) -> int:
    """Fault unless each SIMD group is active as a whole or not at all; return the active ones."""
    if machine.mask.array is None:
        return machine.groups * machine.simds
    array = machine.mask.array
    if array.shape[1] == 1:
        return machine.active // machine.threads * machine.simds
    active = by_simd(machine, machine.active_array(), np.False_)
    exists = by_simd(machine, np.ones(machine.shape, np.bool_), np.False_)
    some = active.any(axis=2)
    missing = some[:, :, None] & exists & ~active
    if missing.any():
        lanes = flatten(machine, missing)
        lane = int(np.argmax(lanes.reshape(-1)))
        group, thread = divmod(lane, machine.threads)
        simd = thread // machine.simd_width
        reached = int(np.argmax(active[group, simd])) + simd * machine.simd_width
        machine.fault(
            kind,
            node,
            f"{name} is reached by only part of SIMD group {simd}: by thread "
            f"{machine.thread_position(reached)}, not by the thread below",
            lane,
        )
    return int(np.count_nonzero(some))


def by_simd(machine: Machine, value: Any, padding: Any) -> np.ndarray:
    """Return the value as (threadgroups, SIMD groups, lanes); missing lanes hold ``padding``."""
    full = np.broadcast_to(value, machine.shape)
    extra = machine.simds * machine.simd_width - machine.threads
    if extra:
        tail = np.full((machine.groups, extra), padding, full.dtype)
        full = np.concatenate((full, tail), axis=1)
    return full.reshape(machine.groups, machine.simds, machine.simd_width)


def flatten(machine: Machine, value: np.ndarray) -> np.ndarray:
    """Return (threadgroups, SIMD groups, lanes or 1) as (threadgroups, threads)."""
    shape = (machine.groups, machine.simds, machine.simd_width)
    full = np.broadcast_to(value, shape).reshape(machine.groups, -1)
    return full[:, : machine.threads]


def _permutation(machine: Machine, site: int) -> np.ndarray:
    found = machine.permutations.get(site)
    if found is None:
        generator = np.random.default_rng((machine.seed, site))
        found = machine.permutations[site] = generator.permutation(machine.simd_width)
    return found


def reduce_lanes(machine: Machine, name: str, value: Any, site: int) -> Any:
    """Return the reduction of a defined component over each SIMD group, in every lane."""
    function, identity, _ = REDUCTIONS[name]
    if not isinstance(value, np.ndarray):
        value = np.asarray(value)
    lanes = by_simd(machine, value, identity(value.dtype))[:, :, _permutation(machine, site)]
    width = lanes.shape[2]
    while width > 1:
        half = width // 2
        head = function(lanes[:, :, :half], lanes[:, :, half : 2 * half])
        if width % 2:
            head = np.concatenate((head, lanes[:, :, 2 * half :]), axis=2)
        lanes, width = head, half + width % 2
    return flatten(machine, lanes)


def scan_lanes(machine: Machine, name: str, value: Any) -> Any:
    """Return the prefix scan of a defined component over each SIMD group, in lane order."""
    function, exclusive, identity = SCANS[name]
    value = np.asarray(value)
    first = identity(value.dtype)
    lanes = by_simd(machine, value, first)
    if exclusive:
        start = np.full((*lanes.shape[:2], 1), first, lanes.dtype)
        lanes = np.concatenate((start, lanes[:, :, :-1]), axis=2)
    return flatten(machine, function.accumulate(lanes, axis=2, dtype=lanes.dtype))


def shuffle(machine: Machine, name: str, value: Any, amount: Any, node: Node) -> Any:
    """Return a component moved between lanes; undefinedness moves with it.

    ``simd_shuffle_up`` and ``_down`` keep a lane's own value where the source would lie outside
    the SIMD group (Metal Shading Language specification, SIMD-group functions).
    """
    width = machine.simd_width
    lane = np.arange(width)
    amount = by_simd(machine, np.asarray(amount).astype(np.int64), 0)
    if PERMUTES[name]:
        exists = by_simd(machine, np.ones(machine.shape, np.bool_), np.False_)
        differs = (amount != amount[:, :, :1]) & exists
        differs &= by_simd(machine, machine.active_array(), np.False_)
        if differs.any():
            machine.fault(
                CollectiveDivergenceError,
                node,
                f"the second argument of {name} differs within the SIMD group",
                flatten(machine, differs),
            )
    source = _source(name, lane, amount, width)
    if name in ("simd_shuffle_up", "simd_shuffle_down"):
        source = np.where((source < 0) | (source >= width), lane, source)
    threads = np.minimum(
        machine.threads - np.arange(machine.simds) * width, width
    )  # lanes that exist
    nowhere = (source < 0) | (source >= threads[None, :, None])
    source = np.where(nowhere, 0, source)
    plain, undef, origin = value, np.False_, (name, node.line)
    if value.__class__ is Tainted:
        plain, undef = value.value, value.undef
        origin = origin if nowhere.any() else value.origin
    moved = np.take_along_axis(by_simd(machine, plain, np.zeros((), plain.dtype)), source, axis=2)
    gone = np.take_along_axis(by_simd(machine, undef, np.False_), source, axis=2) | nowhere
    result = np.ascontiguousarray(flatten(machine, moved))
    if not gone.any():
        return result
    return Tainted(result, flatten(machine, gone), origin)


def _source(name: str, lane: np.ndarray, amount: np.ndarray, width: int) -> np.ndarray:
    if name in ("simd_shuffle", "simd_broadcast"):
        return np.broadcast_to(amount, (*amount.shape[:2], width))
    if name == "simd_shuffle_xor":
        return lane ^ amount
    if name == "simd_shuffle_up":
        return lane - amount
    if name == "simd_shuffle_down":
        return lane + amount
    if name == "simd_shuffle_rotate_up":
        return (lane - amount) % width
    return (lane + amount) % width
