"""A device family that is registered for a process: resolved by name, planned by its own costs."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build import target_config
from tvm_tilex.build.target import resolve_target
from tvm_tilex.build.target_config import config_for_device, register_target, target_configs
from tvm_tilex.errors import OptionError, TargetError
from tvm_tilex.plan import register_cost_policy


@dataclass(frozen=True)
class Widest:
    """Prefers the most workers; ``weight`` scales the score."""

    weight: float = 1.0

    def __call__(self, facts):
        return self.weight * 1000.0 / facts.workers


register_cost_policy("widest of the registered", Widest, kind="metal")


@pytest.fixture
def described(tmp_path, monkeypatch):
    """Writes a description under a name, with changes; no family stays registered.

    Its cost policy does: each test has a name of its own.
    """
    monkeypatch.setattr(target_config, "_REGISTERED", {})

    def write(name, **changes):
        def stated(value):
            return {"value": value, "source": "a manual that does not exist"}

        facts = {
            "kind": "metal",
            "summary": "made up",
            "device_names": ["Made Up"],
            "attributes": {
                "thread_warp_size": stated(32),
                "max_num_threads": stated(256),
                "max_threads_per_block": stated(256),
                "max_shared_memory_per_block": stated(8192),
            },
            "cost": {
                "policy": "widest of the registered",
                "coefficients": {"weight": stated(2.0)},
            },
            **changes,
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(facts))
        return path

    return write


def test_a_registered_family_is_a_target_with_its_limits_and_costs(described):
    register_target(described("made-up"))
    assert "made-up" in target_configs() and "h200" in target_configs()
    assert int(resolve_target("made-up").attrs["max_num_threads"]) == 256
    entry = kernels.catalog()["softmax"]
    plan = tx.compile(entry.kernel, *entry.specs(7, 4096), target="made-up").plan
    assert plan.threads == 256 and plan.score == 2.0 * 1000.0 / 256
    other = tx.compile(entry.kernel, *entry.specs(7, 4096), target="metal").plan
    assert other.threads > 256


def test_a_present_device_is_known_by_its_name(described):
    config = register_target(described("present"))
    device = SimpleNamespace(exist=True, device_name="Made Up Max")
    assert config_for_device("metal", device) is config
    assert (
        config_for_device("metal", SimpleNamespace(exist=True, device_name="Made Upper")) != config
    )


def test_registering_again_changes_nothing_and_another_description_is_refused(described):
    first = register_target(described("again"))
    assert register_target(described("again")) is first
    with pytest.raises(TargetError, match="described already"):
        register_target(described("again", summary="another one"))
    assert target_configs()["again"] is first


@pytest.mark.parametrize("name", ["metal", "h200"])
def test_a_shipped_family_cannot_be_replaced(described, name):
    with pytest.raises(TargetError, match=f"{name}: .*described already"):
        register_target(described(name))


def test_what_cannot_be_used_is_refused_and_not_kept(described):
    with pytest.raises(TargetError, match="kind 'vulkan' is not one of metal, cuda"):
        register_target(described("one", kind="vulkan"))
    with pytest.raises(OptionError, match="nobody's"):
        register_target(described("two", cost={"policy": "nobody's", "coefficients": {"a": SOME}}))
    with pytest.raises(OptionError, match=r"three\.json: a are not the coefficients"):
        register_target(
            described("three", cost={"policy": "analytic", "coefficients": {"a": SOME}})
        )
    with pytest.raises(TargetError, match=r"nowhere\.json"):
        register_target("nowhere.json")
    assert not {"one", "two", "three", "nowhere"} & set(target_configs())


SOME = {"value": 1.0, "source": "a manual that does not exist"}
