"""Device facts that TVM's bare targets state wrongly or not at all, from ``configs/targets``.

Each file describes one device family: its target kind, the names that a runtime reports for its
devices, and for every target attribute the value with its source.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tilex.errors import TargetError

__all__ = ["TargetConfig", "config_folder", "config_for_device", "reported", "target_configs"]

_REQUIRED = ("thread_warp_size", "max_num_threads", "max_shared_memory_per_block")


@dataclass(frozen=True)
class TargetConfig:
    """One device family: attributes of its TVM target, and where each value comes from."""

    name: str
    kind: str
    summary: str
    device_names: tuple[str, ...]
    attributes: Mapping[str, Any]
    sources: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> TargetConfig:
        """Read one JSON file.

        Raises
        ------
        TargetError
            If a key is missing, or a value has no source.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            stated = found["attributes"]
            config = cls(
                name=path.stem,
                kind=found["kind"],
                summary=found["summary"],
                device_names=tuple(found["device_names"]),
                attributes={key: stated[key]["value"] for key in stated},
                sources={key: stated[key]["source"] for key in stated},
            )
        except (ValueError, KeyError, TypeError) as error:
            raise TargetError(f"{path.name}: not a target description ({error!r})") from None
        missing = [key for key in _REQUIRED if key not in config.attributes]
        if missing or not all(config.sources.values()):
            raise TargetError(
                f"{path.name}: needs {', '.join(missing) or 'a source of each value'}"
            )
        return config

    def description(self, device: Any | None = None) -> dict[str, Any]:
        """The target as TVM's dictionary; what ``device`` reports overrides the file."""
        known = {} if device is None else reported(device)
        return {"kind": self.kind, **self.attributes, **known}


def config_folder() -> Path:
    """``configs`` inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


@functools.cache
def target_configs() -> Mapping[str, TargetConfig]:
    """Every described device family by name."""
    paths = sorted((config_folder() / "targets").glob("*.json"))
    return {path.stem: TargetConfig.read(path) for path in paths}


def config_for_device(kind: str, device: Any | None) -> TargetConfig:
    """The family of a present device by the name it reports, or the general one of that kind.

    ``"Apple M1 Max"`` belongs to the family that lists ``"Apple M1"``.
    """
    name = _ask(device, "device_name") if device is not None and device.exist else None
    for config in target_configs().values():
        listed = any(str(name).split()[: len(n.split())] == n.split() for n in config.device_names)
        if name is not None and config.kind == kind and listed:
            return config
    return target_configs()[kind]


def reported(device: Any) -> dict[str, Any]:
    """Target attributes that a present device's runtime knows; the rest is left to the files.

    TVM's Metal runtime reports the thread limit, but no threadgroup memory; its SIMD width is a
    constant of the runtime and not asked for.
    """
    if not device.exist:
        return {}
    found: dict[str, Any] = {}
    threads = _ask(device, "max_threads_per_block")
    if isinstance(threads, int) and threads > 0:
        found |= {"max_num_threads": threads, "max_threads_per_block": threads}
    shared = _ask(device, "max_shared_memory_per_block")
    if isinstance(shared, int) and shared > 0:
        found["max_shared_memory_per_block"] = shared
    return found


def _ask(device: Any, name: str) -> Any:
    """A device attribute, or None where the runtime does not know it."""
    try:
        return getattr(device, name)
    except Exception:
        return None
