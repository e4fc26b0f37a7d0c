"""Device facts that TVM's bare targets state wrongly or not at all, from ``configs/targets``.

Each file describes one device family: its target kind, the names that a runtime reports for its
devices, and with the source of each value its target attributes, its limits beyond those that TVM
knows, and the coefficients of its cost policy. A device that no file names is the general one of
its kind.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tilex.errors import OptionError, TargetError
from tvm_tilex.plan.cost import CostPolicy, cost_policy, register_cost_policy

__all__ = [
    "TargetConfig",
    "config_folder",
    "config_for_device",
    "register_cost_policies",
    "register_target",
    "reported",
    "target_configs",
]

_CUDA = 2  # kDLCUDA
_KINDS = ("metal", "cuda")
_REQUIRED = ("thread_warp_size", "max_num_threads", "max_shared_memory_per_block")


@dataclass(frozen=True)
class TargetConfig:
    """One device family, and where each of its values comes from.

    ``limits`` are integers: multiprocessors, threads, registers and shared bytes of each, registers
    of a thread, bytes of the L2 cache, and the published bytes a second of the memory. ``policy``
    names the cost policy that ``coefficients`` belong to; empty where the kind's default serves.
    """

    name: str
    kind: str
    summary: str
    device_names: tuple[str, ...]
    attributes: Mapping[str, Any]
    limits: Mapping[str, int]
    policy: str
    coefficients: Mapping[str, float]
    sources: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> TargetConfig:
        """Read one JSON file.

        Raises
        ------
        TargetError
            If the file cannot be read, a key is missing, or a value has no source.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            stated, limits = found["attributes"], found.get("limits", {})
            cost = found.get("cost", {"policy": "", "coefficients": {}})
            coefficients = cost["coefficients"]
            config = cls(
                name=path.stem,
                kind=found["kind"],
                summary=found["summary"],
                device_names=tuple(found["device_names"]),
                attributes={key: stated[key]["value"] for key in stated},
                limits={key: int(limits[key]["value"]) for key in limits},
                policy=cost["policy"],
                coefficients={key: float(coefficients[key]["value"]) for key in coefficients},
                sources={
                    key: values[key]["source"]
                    for values in (stated, limits, coefficients)
                    for key in values
                },
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
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
        tag = {"tag": f"tilex/{self.name}"} if self.coefficients else {}
        return {"kind": self.kind, **tag, **self.attributes, **known}

    def cost_policy(self) -> CostPolicy:
        """The family's cost policy with its coefficients.

        Raises
        ------
        OptionError
            If a coefficient is none of the policy's.
        """
        policy = cost_policy(self.policy, self.kind)
        try:
            return dataclasses.replace(policy, **self.coefficients)  # type: ignore[type-var]
        except TypeError:
            fields = ", ".join(field.name for field in dataclasses.fields(policy))  # type: ignore[arg-type]
            raise OptionError(
                f"configs/targets/{self.name}.json: {', '.join(self.coefficients)} are not the "
                f"coefficients of cost policy {self.policy!r} ({fields})"
            ) from None


def config_folder() -> Path:
    """``configs`` inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


_REGISTERED: dict[str, TargetConfig] = {}


def target_configs() -> Mapping[str, TargetConfig]:
    """Every described device family by name: those that were registered, and the shipped ones."""
    return {**_REGISTERED, **_shipped()}


@functools.cache
def _shipped() -> Mapping[str, TargetConfig]:
    paths = sorted((config_folder() / "targets").glob("*.json"))
    return {path.stem: TargetConfig.read(path) for path in paths}


def register_target(path: str | Path) -> TargetConfig:
    """Add a device family for this process, as if its file were among ``configs/targets``.

    Its name, the file's, is a target from then on; a present device whose name it lists is it.
    Registering the same description again changes nothing.

    Raises
    ------
    TargetError
        If the description is malformed, of a kind other than metal or cuda, or its name is taken.
    OptionError
        If its cost policy or a coefficient of it does not exist.
    """
    config = TargetConfig.read(Path(path))
    if config.kind not in _KINDS:
        raise TargetError(f"{config.name}: kind {config.kind!r} is not one of {', '.join(_KINDS)}")
    known = target_configs().get(config.name)
    if known == config:
        return known
    if known is not None:
        raise TargetError(f"{config.name}: a family of that name is described already")
    _register_cost_policy(config)
    _REGISTERED[config.name] = config
    return config


@functools.cache
def register_cost_policies() -> None:
    """Make each shipped family's coefficients its default, and those of the policy's name."""
    for config in _shipped().values():
        _register_cost_policy(config)


def _register_cost_policy(config: TargetConfig) -> None:
    if not config.coefficients:
        return
    policy = config.cost_policy()
    for name in ("default", config.policy):
        register_cost_policy(name, lambda: policy, kind=config.name)


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
    constant of the runtime and not asked for. Its CUDA runtime also reports the compute capability.
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
    capability = _ask(device, "compute_version") if _is_cuda(device) else None
    if capability:
        found["arch"] = "sm_" + str(capability).replace(".", "")
    return found


def _is_cuda(device: Any) -> bool:
    kind = _ask(device, "dlpack_device_type")
    return bool(kind is not None and kind() == _CUDA)


def _ask(device: Any, name: str) -> Any:
    """A device attribute, or None where the runtime does not know it."""
    try:
        return getattr(device, name)
    except Exception:
        return None
