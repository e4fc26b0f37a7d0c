"""State of one chunk of threadgroups that run together: masks, clocks, faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_tilex.sim.errors import KernelFault, StepLimitError, UndefinedValueError
from tvm_tilex.sim.values import Tainted

if TYPE_CHECKING:
    from tvm_tilex.sim.counters import Counters
    from tvm_tilex.sim.kernel import Checks
    from tvm_tilex.sim.syntax import Node

__all__ = ["Loop", "Machine", "Mask"]


class Mask:
    """A set of lanes: ``array`` broadcasts to (threadgroups, threads), None means all lanes."""

    __slots__ = ("_flat", "array", "count")

    def __init__(self, array: np.ndarray | None, count: int) -> None:
        self.array, self.count = array, count
        self._flat: np.ndarray | None = None

    def flat(self, shape: tuple[int, int]) -> np.ndarray:
        """Return the flat indices of the lanes, ascending."""
        if self._flat is None:
            self._flat = np.flatnonzero(np.broadcast_to(self.array, shape))
        return self._flat


class Loop:
    """Lanes that left the current iteration of one loop."""

    __slots__ = ("continued", "left")

    def __init__(self) -> None:
        self.continued: Mask | None = None
        self.left = False


class Machine:
    """Lanes of ``groups`` whole threadgroups from ``first_group`` on, in row-major order.

    Ordering is kept as clocks: every barrier advances ``clock``; ``group_sync[space]`` and
    ``simd_sync[space]`` hold the clock of the last barrier that ordered memory of that space, per
    threadgroup (int or (groups, 1)) and per lane (int or (groups, threads)).
    """

    def __init__(
        self,
        grid: tuple[int, int, int],
        group: tuple[int, int, int],
        first_group: int,
        groups: int,
        simd_width: int,
        counters: Counters,
        checks: Checks,
        seed: int,
        step_limit: int,
        clock: int,
    ) -> None:
        self.grid, self.group = grid, group
        self.first_group, self.groups = first_group, groups
        self.threads = group[0] * group[1] * group[2]
        self.shape = (groups, self.threads)
        self.simd_width = simd_width
        self.simds = -(-self.threads // simd_width)
        self.counters, self.checks = counters, checks
        self.seed, self.step_limit = seed, step_limit
        self.arithmetic = counters.arithmetic
        self.everyone = Mask(None, groups * self.threads)
        self.nobody = Mask(np.zeros((1, 1), np.bool_), 0)
        self.mask, self.active = self.everyone, self.everyone.count
        self.returned: np.ndarray | None = None
        self.returns = 0
        self.loops: list[Loop] = []
        self.frame: list[Any] = []
        self.owner: list[Mask] = []
        self.clock = clock
        self.group_sync: dict[str, Any] = {"threadgroup": clock, "device": clock}
        self.simd_sync: dict[str, Any] = {"threadgroup": clock, "device": clock}
        self.thread = np.arange(self.threads, dtype=np.int64)[None, :]
        self.group_index = np.arange(groups, dtype=np.int64)[:, None]
        # Actors for the race check: the threads of a group, then its SIMD groups as wholes.
        self.actors_per_group = self.threads + self.simds
        wide = grid[0] * grid[1] * grid[2] * self.actors_per_group >= 1 << 31
        self.actor_dtype = np.dtype(np.int64 if wide else np.int32)
        self.actor = (
            (first_group + self.group_index) * self.actors_per_group + self.thread
        ).astype(self.actor_dtype)
        self.permutations: dict[int, np.ndarray] = {}

    # Masks.

    def set(self, mask: Mask) -> None:
        """Make ``mask`` the active lanes."""
        self.mask, self.active = mask, mask.count

    def make_mask(self, array: np.ndarray) -> Mask:
        """Return the mask of a boolean array that broadcasts to the lanes."""
        repeat = (self.groups // array.shape[0]) * (self.threads // array.shape[1])
        return Mask(array, int(np.count_nonzero(array)) * repeat)

    def split(self, condition: np.ndarray) -> tuple[Mask, Mask]:
        """Return the active lanes where the condition holds and where it doesn't."""
        outer = self.mask.array
        inside = condition if outer is None else np.logical_and(outer, condition)
        then = self.make_mask(inside)
        if then.count == self.active:
            return self.mask, self.nobody
        if then.count == 0:
            return self.nobody, self.mask
        inverse = np.logical_not(condition)
        outside = inverse if outer is None else np.logical_and(outer, inverse)
        return then, Mask(outside, self.active - then.count)

    def union(self, one: Mask, two: Mask) -> Mask:
        """Return the union of two disjoint masks."""
        if one.count == 0:
            return two
        if two.count == 0:
            return one
        count = one.count + two.count
        if count == self.everyone.count:
            return self.everyone
        return Mask(np.logical_or(one.array, two.array), count)

    def leave(self) -> None:
        """Take the active lanes out of this region (break, continue, return)."""
        self.set(self.nobody)

    def do_return(self) -> None:
        """Retire the active lanes for the rest of the kernel."""
        gone = np.broadcast_to(np.True_ if self.mask.array is None else self.mask.array, self.shape)
        self.returned = gone.copy() if self.returned is None else self.returned | gone
        self.returns += 1
        for loop in self.loops:
            loop.left = True
        self.leave()

    def without_returned(self, mask: Mask) -> Mask:
        """Return ``mask`` minus the lanes that returned."""
        if self.returned is None:
            return mask
        alive = ~self.returned
        return self.make_mask(alive if mask.array is None else np.logical_and(mask.array, alive))

    def active_array(self) -> np.ndarray:
        """Return the active lanes as a full boolean array."""
        return np.broadcast_to(np.True_ if self.mask.array is None else self.mask.array, self.shape)

    # Values of lanes.

    def compress(self, value: Any) -> np.ndarray:
        """Return the value at the active lanes as a flat array."""
        full = np.broadcast_to(value, self.shape).reshape(-1)
        return full if self.mask.array is None else full[self.mask.flat(self.shape)]

    def expand(self, flat: np.ndarray) -> np.ndarray:
        """Return a lane array from one value per active lane; other lanes are zero."""
        if self.mask.array is None:
            return flat.reshape(self.shape)
        out = np.zeros(self.groups * self.threads, flat.dtype)
        out[self.mask.flat(self.shape)] = flat
        return out.reshape(self.shape)

    def defined(self, value: Any, node: Node, use: str) -> Any:
        """Return the plain component, or fault where an active lane is undefined."""
        if value.__class__ is not Tainted:
            return value
        if self.checks.uninitialized == "off":
            return value.value
        bad = np.logical_and(value.undef, self.active_array())
        if bad.any():
            name, line = value.origin
            if name.startswith("simd_"):
                why = f"{name} on line {line} from a lane that does not exist"
                self.fault(UndefinedValueError, node, f"{use} depends on {why}", bad)
            why = f"{name!r}, read on line {line} where nothing wrote it"
            self.fault(UndefinedValueError, node, f"{use} depends on {why}", bad, memory=name)
        return value.value

    def all_defined(self, value: Any, node: Node, use: str) -> Any:
        """Apply :meth:`defined` to every component."""
        if isinstance(value, tuple):
            return tuple(self.defined(v, node, use) for v in value)
        return self.defined(value, node, use)

    # Faults.

    def coordinates(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return (thread, threadgroup) of a flat lane index."""
        group, thread = divmod(int(lane), self.threads)
        return self.thread_position(thread), self.group_position(self.first_group + group)

    def thread_position(self, thread: int) -> tuple[int, int, int]:
        """Return the position of a thread in its threadgroup."""
        x, y, _ = self.group
        return thread % x, thread // x % y, thread // (x * y)

    def group_position(self, group: int) -> tuple[int, int, int]:
        """Return the position of a threadgroup in the grid."""
        x, y, _ = self.grid
        return group % x, group // x % y, group // (x * y)

    def describe_actor(self, actor: int) -> str:
        """Return the words for a thread, or for a SIMD group acting as a whole."""
        group, within = divmod(int(actor), self.actors_per_group)
        where = f"threadgroup {self.group_position(group)}"
        if within >= self.threads:
            return f"SIMD group {within - self.threads} of {where}"
        return f"thread {self.thread_position(within)} of {where}"

    def fault(
        self,
        kind: type[KernelFault],
        node: Node,
        message: str,
        lanes: Any,
        *,
        memory: str | None = None,
        address: int | Callable[[int], int] | None = None,
    ) -> None:
        """Raise ``kind`` for the first lane of a boolean array, or for a flat lane index."""
        if isinstance(lanes, np.ndarray) or np.ndim(lanes):
            lane = int(np.argmax(np.broadcast_to(lanes, self.shape).reshape(-1)))
        else:
            lane = int(lanes)
        thread, threadgroup = self.coordinates(lane)
        raise kind(
            message,
            line=node.line,
            column=node.column,
            thread=thread,
            threadgroup=threadgroup,
            memory=memory,
            address=address(lane) if callable(address) else address,
        )

    def step(self, steps: int, node: Node) -> None:
        """Count one loop iteration and fault past the limit."""
        self.counters.loop_iterations += 1
        if steps > self.step_limit:
            self.fault(
                StepLimitError,
                node,
                f"the loop ran past the limit of {self.step_limit} steps",
                self.active_array(),
            )
