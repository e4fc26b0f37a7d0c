"""Wall-clock samples of back-to-back calls with one synchronization at the end of each sample."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from tvm_tilex.tune.job import Timing
from tvm_tilex.tune.record import Measurement

__all__ = ["calls_for", "from_samples", "wall_clock"]


def wall_clock(launch: Callable[[], Any], wait: Callable[[], Any], timing: Timing) -> Measurement:
    """Measure ``launch`` end to end; ``wait`` returns when the device is idle."""
    estimate = _warm_up(launch, wait, timing.warmup_ms / 1e3)
    calls = calls_for(estimate, timing)
    samples = []
    for _ in range(timing.samples):
        begin = time.perf_counter()
        for _ in range(calls):
            launch()
        wait()
        samples.append((time.perf_counter() - begin) / calls)
    how = "wall clock over back-to-back calls with argument checks, one synchronization a sample"
    return from_samples("end_to_end", "seconds", samples, calls, how)


def calls_for(estimate: float, timing: Timing) -> int:
    """Calls of ``estimate`` seconds that fill a sample."""
    return max(1, round(timing.sample_ms / 1e3 / max(estimate, 1e-7)))


def from_samples(scope: str, unit: str, samples: list[float], calls: int, how: str) -> Measurement:
    """The measurement whose value is the median."""
    return Measurement(scope, unit, statistics.median(samples), tuple(samples), calls, how)


def _warm_up(launch: Callable[[], Any], wait: Callable[[], Any], seconds: float) -> float:
    """Call for at least that long, twice or more; the mean of all but the first call."""
    launch()
    wait()
    begin, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - begin < seconds:
        launch()
        wait()
        calls += 1
    return (time.perf_counter() - begin) / calls
