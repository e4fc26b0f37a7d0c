"""64 private scalars a worker, and the map that reads a row again beyond them."""

import numpy as np
import pytest
from packing_runs import assert_right, compiled, entry, shape_of

import tvm_tilex as tx
from tvm_tilex.errors import MappingError
from tvm_tilex.lowering import SharedTileMaterialization

BUDGET = "max_reduction_striped_scalars_per_worker=64"
PRESERVE = SharedTileMaterialization.PRESERVE
RECOMPUTE = SharedTileMaterialization.RECOMPUTE


@pytest.mark.parametrize(("threads", "scalars"), [(32, 256), (64, 128)])
def test_residual_layernorm_refuses_narrow_widths(threads, scalars):
    with pytest.raises(MappingError, match=f"{scalars} striped scalars.*{BUDGET}"):
        compiled("residual_layernorm", 3, 4096, threads_per_group=threads)


@pytest.mark.parametrize(("threads", "scalars"), [(128, 64), (256, 32)])
def test_residual_layernorm_accepts_wider_ones(threads, scalars):
    artifact = compiled("residual_layernorm", 3, 4096, threads_per_group=threads)
    assert artifact.plan.stripe_scalars == scalars
    assert artifact.plan.stripes == (scalars // 2,) * 2
    assert artifact.materialization is PRESERVE
    arguments = entry("residual_layernorm").arguments(3, 4096)
    artifact.simulate(*arguments)
    assert_right("residual_layernorm", arguments)


def test_the_bound_is_an_option():
    options = {"threads_per_group": 64, "max_reduction_striped_scalars_per_worker": 128}
    assert compiled("residual_layernorm", 3, 4096, **options).plan.stripe_scalars == 128
    with pytest.raises(MappingError, match="worker=127"):
        compiled(
            "residual_layernorm", 3, 4096, threads_per_group=64,
            max_reduction_striped_scalars_per_worker=127,
        )  # fmt: skip


def test_automatic_mode_leaves_out_what_does_not_fit():
    plan = compiled("residual_layernorm", 8, 4096).plan
    rejected = {c.subgroups for c in plan.candidates if c.rejection and BUDGET in c.rejection}
    assert rejected == {1, 2, 3}
    assert plan.stripe_scalars <= 64


WIDE = 131_072


@pytest.mark.parametrize("name", ["softmax", "residual_layernorm", "log_softmax"])
def test_rows_beyond_every_width_are_read_again(name):
    artifact = compiled(name, 2, WIDE)
    assert artifact.materialization is RECOMPUTE
    assert artifact.proof.admitted and artifact.plan.stripes == ()
    assert artifact.plan.reduction_subgroups_per_program > 1
    assert len(artifact.plan.candidates) == 33  # costed like every other family
    arguments = entry(name).arguments(2, WIDE)
    (counters,) = artifact.simulate(*arguments)
    assert_right(name, arguments)
    assert counters.collectives.total() > 0
    first = entry(name).parameters[0]
    assert counters.loads_per_element(f"{first}_ptr", 2 * WIDE) >= 3


def test_kernels_without_stripes_need_no_other_choice():
    artifact = compiled("row_sum", 2, WIDE)
    assert artifact.materialization is PRESERVE and artifact.plan.stripe_scalars == 0


@pytest.mark.parametrize("threads", [32, 1024])
@pytest.mark.parametrize("mode", [None, "preserve"])
def test_an_explicit_width_is_an_error_that_names_the_budget(threads, mode):
    with pytest.raises(MappingError, match=BUDGET):
        compiled("softmax", 2, WIDE, threads_per_group=threads, shared_tile_materialization=mode)


def test_stated_preserve_without_a_width_falls_back_and_says_why():
    found = entry("softmax")
    artifact = tx.compile(
        found.kernel, *found.specs(2, WIDE), target="metal",
        options=tx.CompileOptions(shared_tile_materialization="preserve"),
    )  # fmt: skip
    assert artifact.plan is None and artifact.materialization is PRESERVE
    assert BUDGET in artifact.fallback


@pytest.mark.parametrize(("threads", "packed", "elements"), [(32, 0, 0), (1024, 0, 4), (512, 2, 1)])
def test_recompute_is_an_explicit_choice(threads, packed, elements):
    artifact = compiled(
        "softmax", 3, 9000, threads_per_group=threads, reduction_programs_per_group=packed,
        reduction_lane_elements=elements, shared_tile_materialization="recompute",
    )  # fmt: skip
    assert artifact.materialization is RECOMPUTE and artifact.plan.stripe_scalars == 0
    assert shape_of(artifact.plan)[0] == threads // 32 // max(packed, 1)
    arguments = entry("softmax").arguments(3, 9000)
    artifact.simulate(*arguments)
    assert_right("softmax", arguments)


def test_the_published_wide_softmax():
    """65537 columns: 65 scalars even with 1024 workers."""
    x = ((np.arange(3 * 65537) * 31) % 29).astype(np.float32).reshape(3, 65537) / 8
    out = np.full_like(x, np.nan)
    artifact = compiled("softmax", 3, 65537)
    assert artifact.materialization is RECOMPUTE
    artifact.simulate(x, out)
    np.testing.assert_allclose(out.sum(axis=1, dtype=np.float64), 1, rtol=1e-5)
    np.testing.assert_allclose(out[2, :3], [1.3506021e-05, 1.7342074e-05, 2.2267664e-05], rtol=2e-5)
    with pytest.raises(MappingError, match=f"65 striped scalars.*{BUDGET}"):
        compiled("softmax", 3, 65537, threads_per_group=1024)
