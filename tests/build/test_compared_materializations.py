"""On CUDA two materializations of a wide row are planned and the cheaper one is mapped."""

from pathlib import Path

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build import schedule as schedule_module
from tvm_tilex.build.materializations import materializations
from tvm_tilex.build.pipeline import mapping, planning, realization
from tvm_tilex.build.screening import Screened, screen
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import MappingError
from tvm_tilex.lowering import SharedTileMaterialization

PRESERVE, LOADED, RECOMPUTE = (
    SharedTileMaterialization(name) for name in ("preserve", "loaded", "recompute")
)
WIDE = (1024, 32000, "bfloat16")


def compiled(name, rows, columns, dtype="float32", target="h200", dump=None, **options):
    entry = kernels.catalog()[name]
    asked, specs = tx.CompileOptions(**options), entry.specs(rows, columns, dtype)
    return tx.compile(entry.kernel, *specs, target=target, options=asked, dump=dump)


def choices(columns, kind="cuda", **options):
    entry = kernels.catalog()["softmax"]
    program = entry.kernel.capture(entry.specs(64, columns))
    ranks, _ = materializations(program, kind, tx.CompileOptions(**options))
    assert not any(choice.early_views for rank in ranks for choice in rank)
    return tuple(tuple(choice[:2] for choice in rank) for rank in ranks)


def test_what_is_considered():
    kept, loaded, again = (PRESERVE, True), (LOADED, True), (RECOMPUTE, False)
    last = (((PRESERVE, False),), ((RECOMPUTE, False),))
    assert choices(1023) == ((kept,), *last)
    assert choices(1024) == choices(8191) == ((kept, again), *last)
    assert choices(8192) == choices(16384) == ((kept, loaded, again), *last)
    assert choices(16385) == ((kept, loaded), *last)
    assert choices(8192, "metal") == (((PRESERVE, False),), ((RECOMPUTE, False),))
    assert choices(8192, threads_per_group=64) == ((kept, loaded, again),)
    # A policy that does not price what is computed again compares nothing.
    assert choices(8192, cost_policy="analytic") == choices(1023)
    assert choices(8192, cost_policy="occupancy") == choices(8192)
    assert choices(8192, shared_tile_materialization="loaded") == (((LOADED, True),),)
    # Staging is asked for exactly: what keeps views as they stand is considered of any width.
    assert choices(64, reduction_stripe_storage="shared") == (((PRESERVE, True), (LOADED, True)),)
    # Where a row is to be kept in registers, it is not read again for its cost.
    assert choices(8192, reduction_stripe_storage="register") == ((kept, loaded), *last)


@pytest.mark.parametrize("name", ["softmax", "layernorm", "residual_layernorm", "logsumexp"])
def test_the_cheaper_one_is_chosen(name):
    artifact = compiled(name, *WIDE)
    scores = {
        mode: compiled(name, *WIDE, shared_tile_materialization=mode.value).plan.score
        for mode in (PRESERVE, LOADED)
    }
    assert artifact.plan.score == min(scores.values())
    assert scores[artifact.materialization] == artifact.plan.score
    if scores[PRESERVE] == scores[LOADED]:
        assert artifact.materialization is PRESERVE


def test_each_is_chosen_somewhere():
    shapes = ((1024, 4096), (1024, 32000), (512, 131072))
    found = {
        compiled(name, *shape, "bfloat16").materialization
        for name in ("softmax", "layernorm", "residual_layernorm")
        for shape in shapes
    }
    assert found == {PRESERVE, LOADED}


def test_an_exact_map_that_only_one_fits_is_realized():
    """With its views kept the sum of residual and row is not a stripe of a view; without, it is."""
    plan = {"threads_per_group": 128, "reduction_stripe_storage": "shared"}
    for columns in (4096, 32768):
        artifact = compiled("residual_layernorm", 64, columns, "float16", **plan)
        assert artifact.materialization is LOADED
        assert artifact.plan.staged_bytes == 2 * 2 * columns
        with pytest.raises(MappingError, match="no stripe holds a view's own elements"):
            compiled(
                "residual_layernorm",
                64,
                columns,
                "float16",
                shared_tile_materialization="preserve",
                **plan,
            )


def test_where_none_fits_the_first_reason_is_given():
    plan = {"threads_per_group": 32, "reduction_stripe_storage": "register"}
    with pytest.raises(MappingError, match=r"softmax_family\.py:\d+: .* striped scalars") as caught:
        compiled("softmax", *WIDE, **plan)
    with pytest.raises(MappingError) as alone:
        compiled("softmax", *WIDE, shared_tile_materialization="preserve", **plan)
    assert str(caught.value) == str(alone.value)


def test_rows_of_a_stated_place_are_kept_there_or_refused():
    plan = {"threads_per_group": 32, "reduction_stripe_storage": "register"}
    with pytest.raises(MappingError, match="128 striped scalars"):
        compiled("softmax", 64, 4096, **plan)
    assert compiled("softmax", 64, 4096, threads_per_group=32).materialization is RECOMPUTE


def test_a_program_without_common_views_has_no_early_ones():
    plan = {"threads_per_group": 32, "reduction_early_views": True}
    again = compiled("softmax", 64, 4096, **plan)
    assert again.materialization is RECOMPUTE and not again.early_views
    many = {**plan, "max_reduction_striped_scalars_per_worker": 128}
    weighted = compiled("rmsnorm", 64, 4096, **many)
    assert weighted.early_views


def test_a_choice_without_a_plan_is_never_the_cheapest(monkeypatch):
    """Where one of the two is not even admitted, the other is taken."""
    real = schedule_module._planned

    def unplanned(program, target, reference, choice, dump):
        mode, module, function = real(program, target, reference, choice, dump)
        if mode.tiles is LOADED:
            function = module
        return mode, module, function

    monkeypatch.setattr(schedule_module, "_planned", unplanned)
    artifact = compiled("log_softmax", 1024, 31104, "bfloat16")
    assert artifact.materialization is PRESERVE and artifact.plan is not None


def test_planning_and_mapping_are_the_realization():
    for name in ("cuda", "metal", "llvm"):
        target = resolve_target(name)
        whole = [type(p).__name__ for p in realization(target)]
        parts = [*planning(target), *mapping(target)]
        assert [type(p).__name__ for p in parts] == whole
        assert (mapping(target) == []) == (name == "llvm")


def test_screening_says_what_compiling_does():
    entry = kernels.catalog()["residual_layernorm"]
    program = entry.kernel.capture(entry.specs(64, 32000, "float16"))
    asked = [
        tx.CompileOptions(threads_per_group=256, reduction_stripe_storage="shared"),
        tx.CompileOptions(threads_per_group=512, reduction_stripe_storage="register"),
        tx.CompileOptions(threads_per_group=32),
        tx.CompileOptions(threads_per_group=32, shared_tile_materialization="preserve"),
        tx.CompileOptions(),
    ]
    answers = screen(program, resolve_target("h200"), asked)
    assert answers[-1] == Screened()
    for options, answer in zip(asked[:-1], answers[:-1], strict=True):
        specs = entry.specs(64, 32000, "float16")
        try:
            artifact = tx.compile(entry.kernel, *specs, target="h200", options=options)
        except MappingError as error:
            assert str(answer.refusal) == str(error)
        else:
            assert answer.refusal is None and answer.score == artifact.plan.score


# Dumps


def stages(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_the_stages_of_both_are_told_apart(tmp_path):
    artifact = compiled("softmax", 1023, 32000, "bfloat16", dump=tmp_path)
    found = stages(tmp_path)
    numbers = [int(name[:2]) for name in found]
    assert numbers == list(range(len(found)))
    (chosen,) = [at for at, name in enumerate(found) if name.endswith("_chosen.txt")]
    for mode in (PRESERVE, LOADED):
        own = [at for at, name in enumerate(found) if f"_{mode.value}." in name]
        assert own == list(range(own[0], own[-1] + 1)) and own[-1] < chosen
        assert found[own[0]].endswith(f"_{mode.value}.reference.py")
        assert found[own[-1]].endswith("PlanGroups.py")
    assert "MapSubgroups" in found[chosen + 1]
    told = (tmp_path / found[chosen]).read_text()
    first, second = told.removeprefix("shared_tile_materialization: ").split(", not ")
    assert first.startswith(f"{artifact.materialization.value} (score {artifact.plan.score:g})")
    assert second.startswith(("preserve (score", "loaded (score"))


def test_one_materialization_has_stages_without_its_name(tmp_path):
    compiled("softmax", 1023, 1000, dump=tmp_path)
    assert not [name for name in stages(tmp_path) if "preserve" in name or "chosen" in name]
    assert stages(tmp_path)[1] == "01_reference.py"


def test_early_views_that_are_asked_for_are_had_in_every_choice():
    entry = kernels.catalog()["rmsnorm"]
    program = entry.kernel.capture(entry.specs(64, 4096))
    for asked in (True, False):
        options = tx.CompileOptions(reduction_early_views=asked)
        (first, *_), _ = materializations(program, "cuda", options)
        assert {choice.early_views for choice in first} == {asked}
        assert RECOMPUTE in {choice.tiles for choice in first}
