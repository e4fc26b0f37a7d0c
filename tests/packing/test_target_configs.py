"""Device facts in ``configs/targets``: every value has a source, a present device overrides."""

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
from tvm_tilex.errors import TargetError

FAMILIES = ("apple-m1", "apple-m2", "apple-m3", "apple-m4")


class Device:
    """A device whose runtime knows some attributes and fails on the others."""

    exist = True

    def __init__(self, **known):
        self.__dict__.update(known)

    def __getattr__(self, name):
        raise RuntimeError(f"the runtime does not report {name}")


ABSENT = SimpleNamespace(exist=False)


def test_every_value_has_a_source():
    assert set(target_configs()) == {"metal", "cuda", *FAMILIES}
    for config in target_configs().values():
        assert set(config.sources) == set(config.attributes)
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
