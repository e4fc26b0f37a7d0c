"""Facts of an LLVM target's processor: those of this machine where the target is this machine."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tvm_tilex.build.target import host_target
from tvm_tilex.plan.processor import ProcessorFacts

__all__ = ["processor_facts"]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def processor_facts(target: Any) -> ProcessorFacts:
    """Cache sizes of an LLVM target.

    A target describes no caches; one for this machine's processor has this machine's, where Linux
    tells them, any other the sizes that every current processor has.
    """
    own = str(host_target().attrs.get("mcpu", ""))
    return _host_facts() if own and str(target.attrs.get("mcpu", "")) == own else ProcessorFacts()


@functools.cache
def _host_facts() -> ProcessorFacts:
    sizes: dict[str, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        try:
            kind, level, size = (
                (index / name).read_text().strip() for name in ("type", "level", "size")
            )
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            sizes[level] = int(size[:-1]) << 10
    generic = ProcessorFacts()
    return ProcessorFacts(
        first_level=sizes.get("1", generic.first_level),
        second_level=sizes.get("2", generic.second_level),
    )
