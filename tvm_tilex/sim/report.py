"""Counters as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tvm_tilex.sim.counters import Counters

__all__ = ["counters_table", "format_counters"]


def counters_table(counters: Counters) -> Group:
    """Return a rich renderable: memory traffic per buffer, then barriers and arithmetic."""
    memory = Table(title=f"{counters.kernel}: memory", title_justify="left")
    columns = ("memory", "space", "loads", "load bytes", "stores", "store bytes", "segments/access")
    for name in (*columns, "bank conflicts"):
        memory.add_column(name, justify="left" if name in ("memory", "space") else "right")
    for name, device in counters.device.items():
        accesses = device.load_accesses + device.store_accesses
        segments = device.load_segments + device.store_segments
        memory.add_row(
            name,
            "device",
            f"{device.load_elements:,}",
            f"{device.load_bytes:,}",
            f"{device.store_elements:,}",
            f"{device.store_bytes:,}",
            f"{segments / accesses:.2f}" if accesses else "-",
            "-",
        )
    for name, group in counters.threadgroup.items():
        memory.add_row(
            name,
            "threadgroup",
            f"{group.load_elements:,}",
            f"{group.load_bytes:,}",
            f"{group.store_elements:,}",
            f"{group.store_bytes:,}",
            "-",
            f"{group.bank_conflicts:,}",
        )
    work = Table(title="work", title_justify="left")
    work.add_column("operation")
    work.add_column("count", justify="right")
    work.add_row("threadgroup barriers", f"{counters.barriers:,}")
    work.add_row("SIMD-group barriers", f"{counters.simdgroup_barriers:,}")
    for counter in (counters.collectives, counters.arithmetic):
        for name, count in sorted(counter.items()):
            work.add_row(name, f"{count:,}")
    head = (
        f"{counters.threadgroups:,} threadgroups x {counters.threads_per_threadgroup:,} threads, "
        f"{counters.threadgroup_bytes:,} threadgroup bytes, "
        f"{counters.private_bytes_per_thread:,} private bytes per thread"
    )
    return Group(Text(head), memory, work)


def format_counters(counters: Counters, width: int = 120) -> str:
    """Return the table as plain text."""
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(counters_table(counters))
    return captured.get()
