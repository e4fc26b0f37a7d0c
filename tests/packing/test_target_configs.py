"""Device facts in ``configs/targets``: every value has a source, a present device overrides."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tvm_tilex.build import target as target_module
from tvm_tilex.build.target import resolve_target
from tvm_tilex.build.target_config import (
    TargetConfig,
    config_folder,
    config_for_device,
    reported,
    target_configs,
)
from tvm_tilex.errors import OptionError, TargetError
from tvm_tilex.plan.cost import AnalyticCost, OccupancyCost, cost_policy

FAMILIES = ("apple-m1", "apple-m2", "apple-m3", "apple-m4")
NVIDIA = ("a100", "h100", "h200")


class Device:
    """A device whose runtime knows some attributes and fails on the others."""

    exist = True

    def __init__(self, **known):
        self.__dict__.update(known)

    def __getattr__(self, name):
        raise RuntimeError(f"the runtime does not report {name}")


ABSENT = SimpleNamespace(exist=False)


def test_every_value_has_a_source():
    assert set(target_configs()) == {"metal", "cuda", *FAMILIES, *NVIDIA}
    for config in target_configs().values():
        stated = set(config.attributes) | set(config.limits) | set(config.coefficients)
        assert set(config.sources) == stated
        assert all(len(source) > 20 for source in config.sources.values())


@pytest.mark.parametrize("name", ["metal", *FAMILIES])
def test_apple_gpus_assert_32_lanes(name):
    target = resolve_target(name)
    assert target.kind.name == "metal" and target.host is not None
    assert int(target.attrs["thread_warp_size"]) == 32
    assert int(target.attrs["max_num_threads"]) == 1024
    assert int(target.attrs["max_threads_per_block"]) == 1024
    assert int(target.attrs["max_shared_memory_per_block"]) == 32768


def test_a_family_is_a_target_by_name():
    import tvm_tilex as tx
    from tvm_tilex import kernels

    found = kernels.catalog()["row_sum"]
    artifact = tx.compile(found.kernel, *found.specs(3, 300), target="apple-m3")
    assert artifact.kind == "metal" and artifact.plan is not None


def test_an_unknown_name_is_an_error():
    with pytest.raises(TargetError, match="apple-m0"):
        resolve_target("apple-m0")


@pytest.mark.parametrize(
    ("device_name", "family"),
    [
        ("Apple M1", "apple-m1"),
        ("Apple M2 Max", "apple-m2"),
        ("Apple M4 Pro", "apple-m4"),
        ("Apple M17", "metal"),  # not a variant of M1
        ("AMD Radeon Pro 5500M", "metal"),
    ],
)
def test_a_present_device_is_found_by_its_name(device_name, family):
    assert config_for_device("metal", Device(device_name=device_name)).name == family


def test_a_runtime_that_reports_nothing_leaves_the_files():
    assert reported(Device()) == {} == reported(ABSENT)
    assert reported(Device(max_threads_per_block=0)) == {}
    assert config_for_device("metal", Device()).name == "metal"
    assert config_for_device("metal", ABSENT).name == "metal"


def test_what_the_runtime_reports_overrides():
    device = Device(device_name="Apple M2", max_threads_per_block=512, warp_size=16)
    described = config_for_device("metal", device).description(device)
    assert described["max_num_threads"] == described["max_threads_per_block"] == 512
    assert described["max_shared_memory_per_block"] == 32768  # not reported: from the file
    assert described["thread_warp_size"] == 32  # a constant of TVM's runtime, not a capability
    device = Device(max_shared_memory_per_block=65536)
    assert config_for_device("metal", device).description(device)[
        "max_shared_memory_per_block"
    ] == 65536  # fmt: skip


def test_the_metal_target_of_a_present_device(monkeypatch):
    device = Device(device_name="Apple M1 Max", max_threads_per_block=896)
    runtime = SimpleNamespace(device=lambda kind, index: device)
    monkeypatch.setattr(target_module, "tvm", SimpleNamespace(runtime=runtime))
    assert int(resolve_target("metal").attrs["max_num_threads"]) == 896
    assert int(resolve_target("apple-m1").attrs["max_num_threads"]) == 1024  # as described


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("attributes"),
        lambda d: d["attributes"].pop("thread_warp_size"),
        lambda d: d["attributes"]["thread_warp_size"].pop("source"),
        lambda d: d["attributes"]["thread_warp_size"].update(source=""),
    ],
)
def test_a_malformed_description_is_an_error(tmp_path, change):
    described = json.loads((config_folder() / "targets" / "metal.json").read_text())
    change(described)
    path = tmp_path / "metal.json"
    path.write_text(json.dumps(described))
    with pytest.raises(TargetError, match=r"metal\.json"):
        TargetConfig.read(path)


def test_a_file_that_is_no_json_is_an_error(tmp_path):
    path = tmp_path / "metal.json"
    path.write_text("thread_warp_size: 32")
    with pytest.raises(TargetError, match=r"metal\.json"):
        TargetConfig.read(path)


def test_the_wheel_carries_the_folder():
    project = Path(__file__).parents[2] / "pyproject.toml"
    _, _, section = project.read_text().partition("[tool.hatch.build.targets.wheel.force-include]")
    assert section.split("[")[0].strip() == '"configs" = "tvm_tilex/configs"'


class CudaDevice(Device):
    """A CUDA device as TVM's runtime reports it."""

    def dlpack_device_type(self):
        return 2


@pytest.mark.parametrize(
    ("device_name", "family"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "cuda"),  # fewer multiprocessors and less bandwidth
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "cuda"),
        ("NVIDIA GeForce RTX 4090", "cuda"),
    ],
)
def test_a_present_nvidia_device_is_found_by_its_name(device_name, family):
    assert config_for_device("cuda", CudaDevice(device_name=device_name)).name == family


def test_the_cuda_target_of_a_present_device(monkeypatch):
    """Its compute capability is taken; a name that no file lists is the general family."""
    device = CudaDevice(device_name="NVIDIA A100-SXM4-80GB", compute_version="8.0")
    runtime = SimpleNamespace(device=lambda kind, index: device)
    monkeypatch.setattr(target_module, "tvm", SimpleNamespace(runtime=runtime))
    found = resolve_target("cuda")
    assert (str(found.attrs["arch"]), str(found.tag)) == ("sm_80", "tilex/a100")
    device.device_name, device.compute_version = "NVIDIA GeForce RTX 4090", "8.9"
    found = resolve_target("cuda")
    assert (str(found.attrs["arch"]), str(found.tag)) == ("sm_89", "")


def test_without_a_device_cuda_code_is_for_hopper(monkeypatch):
    runtime = SimpleNamespace(device=lambda kind, index: ABSENT)
    monkeypatch.setattr(target_module, "tvm", SimpleNamespace(runtime=runtime))
    assert str(resolve_target("cuda").attrs["arch"]) == "sm_90"


@pytest.mark.parametrize("name", NVIDIA)
def test_nvidia_families_state_their_limits(name):
    config = target_configs()[name]
    limits = config.limits
    assert limits["threads_per_multiprocessor"] % 32 == 0
    assert limits["multiprocessors"] > 100 and limits["registers_per_thread"] == 255
    assert limits["shared_bytes_per_multiprocessor"] >= 3 * 49152
    assert 1e12 < limits["memory_bytes_per_second"] < 5e12
    target = resolve_target(name)
    assert target.kind.name == "cuda" and target.host is not None
    assert int(target.attrs["thread_warp_size"]) == 32


def test_the_measured_device_has_the_fitted_coefficients():
    assert target_configs()["h200"].cost_policy() == OccupancyCost()


@pytest.mark.parametrize(
    ("name", "policy"), [("a100", "occupancy_in_turn"), ("h100", "occupancy")], ids=["a100", "h100"]
)
def test_coefficients_that_were_not_measured_say_so_and_follow_from_the_limits(name, policy):
    h200, other = target_configs()["h200"], target_configs()[name]
    assert other.policy == policy
    fitted = dataclasses.asdict(cost_policy(policy))
    assert all("not measured" in other.sources[key] for key in other.coefficients)

    def share(config):
        return config.limits["memory_bytes_per_second"] / config.limits["multiprocessors"]

    wanted = fitted["bandwidth"] * share(other) / share(h200)
    assert other.coefficients["bandwidth"] == pytest.approx(wanted, abs=0.5)
    device = ("bandwidth", "multiprocessors", *(key for key in fitted if "resident" in key))
    others = [key for key in fitted if key not in device]
    assert [other.coefficients[k] for k in others] == [fitted[k] for k in others]


@pytest.mark.parametrize("name", FAMILIES)
def test_apple_families_state_the_uncalibrated_prior(name):
    assert target_configs()[name].cost_policy() == AnalyticCost()


def test_the_planner_takes_the_familys_coefficients():
    import tvm_tilex as tx
    from tvm_tilex import kernels

    entry = kernels.catalog()["softmax"]
    specs = entry.specs(4096, 4096)
    plans = {name: tx.compile(entry.kernel, *specs, target=name).plan for name in (*NVIDIA, "cuda")}
    assert plans["h200"] == plans["cuda"]  # the general family has the measured default
    chosen = cost_policy("default", "cuda", "a100")
    assert chosen.bandwidth == target_configs()["a100"].coefficients["bandwidth"]
    assert cost_policy("occupancy_in_turn", "cuda", "a100") == chosen
    assert cost_policy("analytic", "cuda", "a100") == AnalyticCost()
    assert cost_policy("default", "cuda", "unheard-of") == OccupancyCost()


def test_a_coefficient_of_no_policy_is_an_error(tmp_path):
    described = json.loads((config_folder() / "targets" / "h200.json").read_text())
    described["cost"]["coefficients"]["speed"] = {"value": 1.0, "source": "nobody knows this one"}
    path = tmp_path / "h200.json"
    path.write_text(json.dumps(described))
    with pytest.raises(OptionError, match=r"h200\.json: .*speed are not the coefficients"):
        TargetConfig.read(path).cost_policy()
