"""Compile options: frozen, validated by name, stable as JSON, part of every key."""

import dataclasses
import json

import pytest

import tvm_tilex as tx
from tvm_tilex.errors import OptionError


def test_json_round_trip_of_every_field():
    options = tx.CompileOptions(
        metal_subgroup_reductions=True,
        subgroup_reductions=False,
        noalias=True,
        threads_per_group=96,
        reduction_programs_per_group=3,
        reduction_lane_elements=4,
        reduction_unroll=8,
        shared_tile_materialization="preserve",
        max_reduction_striped_scalars_per_worker=16,
        max_thread_candidates=7,
        cost_policy="analytic",
    )
    text = options.to_json()
    assert tx.CompileOptions.from_json(text) == options
    assert tx.CompileOptions.from_json(tx.CompileOptions().to_json()) == tx.CompileOptions()
    names = {field.name for field in dataclasses.fields(options)}
    assert list(json.loads(text)) == sorted(names)


def test_frozen_and_hashable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tx.CompileOptions().noalias = True
    assert hash(tx.CompileOptions()) == hash(tx.CompileOptions())
    assert tx.CompileOptions(reduction_unroll=2) != tx.CompileOptions()


BAD = [
    ("threads_per_group", 48),
    ("threads_per_group", -32),
    ("threads_per_group", True),
    ("threads_per_group", 32.0),
    ("reduction_programs_per_group", -1),
    ("reduction_programs_per_group", 1.5),
    ("reduction_lane_elements", 3),
    ("reduction_lane_elements", 16),
    ("reduction_unroll", 0),
    ("reduction_unroll", 5),
    ("shared_tile_materialization", "sometimes"),
    ("max_reduction_striped_scalars_per_worker", 0),
    ("max_thread_candidates", 0),
    ("max_thread_candidates", "many"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_outside_its_domain_is_refused_by_name(name, value):
    with pytest.raises(OptionError, match=name):
        tx.CompileOptions(**{name: value})


@pytest.mark.parametrize("spelling", ["preserve", "PRESERVE", "expensive-only", "EXPENSIVE_ONLY"])
def test_materialization_by_name(spelling):
    mode = tx.CompileOptions(shared_tile_materialization=spelling).shared_tile_materialization
    assert mode.value == spelling.lower().replace("_", "-")


def test_options_travel_with_the_function():
    options = tx.CompileOptions(reduction_unroll=2)
    entry = tx.kernels.catalog()["row_sum"]
    function = tx.lower(entry.kernel, *entry.specs(3, 40), options=options)["row_sum"]
    assert tx.CompileOptions.from_json(str(function.attrs["tilex.options"])) == options
