"""Options of tuning that the command and the benchmark share: the space, timing, devices."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import click

from tvm_tilex.build.screening import has_clusters
from tvm_tilex.errors import OptionError
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune.api import DEFAULT_BUDGET
from tvm_tilex.tune.endpoint import LOCAL, Endpoint, parse_address
from tvm_tilex.tune.job import Timing
from tvm_tilex.tune.record import METRICS
from tvm_tilex.tune.search import DEFAULT_SEARCH, SEARCHES
from tvm_tilex.tune.space import Dimension, Space, default_space

__all__ = ["endpoints_of", "search_options", "space_of", "space_options", "timing_of"]

# Option of the command line -> the compile option that it is a dimension of.
DIMENSIONS = {
    "tune_group_threads": "threads_per_group",
    "tune_reduction_packing": "reduction_programs_per_group",
    "tune_reduction_unroll": "reduction_unroll",
    "tune_reduction_lane_elements": "reduction_lane_elements",
    "tune_shared_tile_materializations": "shared_tile_materialization",
}


class Values(click.ParamType):
    """Comma-separated values; ``auto`` is the option's automatic value, numbers are numbers."""

    name = "V,V,..."

    def __init__(self, automatic: Any = 0) -> None:
        self._automatic = automatic

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the values; an empty one is a usage error."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(parts):
            self.fail(f"{value!r}: write values as 32,64,128", param, ctx)
        return tuple(self._automatic if part == "auto" else _scalar(part) for part in parts)


class Choice(click.ParamType):
    """``OPTION=V,V,...``: any compile option as a dimension."""

    name = "OPTION=V,V,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Dimension:
        """Return the dimension; a malformed text is a usage error."""
        if isinstance(value, Dimension):
            return value
        option, equals, values = str(value).partition("=")
        if not equals:
            self.fail(f"{value!r}: write it as reduction_unroll=1,2", param, ctx)
        parsed = Values(None).convert(values, param, ctx)
        return Dimension(option.strip().replace("-", "_"), parsed)


def space_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the dimensions of the space, and how each candidate is measured."""
    for decorate in (
        click.option(
            "--tuning-metric",
            type=click.Choice(list(METRICS)),
            help="host-wall: a call, end to end. gpu-control: the device's own timestamps. "
            "sim-cost: modelled by the simulator's counters, no time. Default: host-wall; "
            "sim-cost for Metal where there is no Apple GPU.",
        ),
        click.option("--warmup-ms", default=50.0, show_default=True, help="Before the samples."),
        click.option("--sample-ms", default=20.0, show_default=True, help="Length of a sample."),
        click.option("--samples", default=9, show_default=True, help="Samples; their median."),
        click.option(
            "--metal-subgroup-reductions/--no-metal-subgroup-reductions",
            "subgroups",
            default=None,
            help="Consider SIMD-group maps; the target decides by default.",
        ),
        click.option("--tune", "others", type=Choice(), multiple=True, help="Any compile option."),
        click.option(
            "--tune-shared-tile-materializations",
            type=Values(None),
            help="preserve, expensive-only, recompute or auto.",
        ),
        click.option("--tune-reduction-lane-elements", type=Values(), help="V: 1, 2, 4, 8."),
        click.option("--tune-reduction-unroll", type=Values(1), help="1, 2, 4, 8."),
        click.option("--tune-reduction-packing", type=Values(), help="Q, programs a threadgroup."),
        click.option("--tune-group-threads", type=Values(), help="Threads a threadgroup."),
    ):
        command = decorate(command)
    return command


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the search, its bounds and the devices."""
    for decorate in (
        click.option("--rpc-key", default="", help="Key of the servers at the tracker."),
        click.option("--rpc-tracker", help="host:port of a tracker; every server of the key."),
        click.option(
            "--rpc-server", "rpc_servers", multiple=True, help="host:port of an RPC server."
        ),
        click.option(
            "--jobs",
            type=click.IntRange(min=0),
            help="Compilers beside the search (CUDA, nvcc); one a core but two by default.",
        ),
        click.option("--time-limit", default=120.0, show_default=True, help="Seconds of a trial."),
        click.option(
            "--budget",
            default=DEFAULT_BUDGET,
            show_default=True,
            help="Most compilations of the whole run; a larger space is refused.",
        ),
        click.option(
            "--patience",
            default=8,
            show_default=True,
            help="Fruitless trials that end a search by the model.",
        ),
        click.option("--trials", type=int, help="Most trials of a shape of --search optuna."),
        click.option(
            "--search", type=click.Choice(SEARCHES), default=DEFAULT_SEARCH, show_default=True
        ),
    ):
        command = decorate(command)
    return command


def space_of(
    target: Any,
    subgroups: bool | None,
    given: dict[str, Any],
    dtype: str = "float32",
    *,
    odd_rows: bool = False,
) -> Space:
    """The space that the command line states, or the target's default one.

    Takes the dimensions' options out of ``given``.
    """
    base = CompileOptions(metal_subgroup_reductions=subgroups)
    dimensions = [
        Dimension(option, values)
        for name, option in DIMENSIONS.items()
        if (values := given.pop(name)) is not None
    ]
    dimensions += given.pop("others")
    if not dimensions:
        kind = str(target.kind.name)
        clusters = has_clusters(target)
        space = default_space(kind, base, dtype=dtype, clusters=clusters, odd_rows=odd_rows)
        return space if subgroups is not False else dataclasses.replace(space, dimensions=())
    return Space(base, tuple(dimensions))


def timing_of(given: dict[str, Any]) -> Timing:
    """Timing as stated; takes its options out of ``given``."""
    samples, sample_ms = given.pop("samples"), given.pop("sample_ms")
    warmup_ms = given.pop("warmup_ms")
    if samples < 1 or not 0 < sample_ms < math.inf or not 0 <= warmup_ms < math.inf:
        raise OptionError(
            "--samples and --sample-ms must be positive, --warmup-ms not negative, all finite"
        )
    return Timing(samples, sample_ms, warmup_ms)


def endpoints_of(servers: Sequence[str], tracker: str | None, key: str) -> tuple[Endpoint, ...]:
    """The devices: this machine, the servers, or as many loans as the tracker has servers."""
    found = [Endpoint("server", *parse_address(server), key) for server in servers]
    if tracker is not None:
        from tvm_tilex.runtime.remote import servers_of

        host, port = parse_address(tracker)
        known = servers_of(host, port, key)
        if not known:
            raise OptionError(f"the tracker {tracker} has no server of the key {key!r}")
        found += [Endpoint("tracker", host, port, key, n) for n in range(len(known))]
    return tuple(found) or (LOCAL,)


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
