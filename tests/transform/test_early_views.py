"""What every program reads is loaded before the first reduction: where, and nothing else."""

import numpy as np
import pytest
import tvm

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.tirx.compat import structural_equal
from tvm_tilex.transform import EarlyViews

CATALOG = kernels.catalog()


def lowered(name, rows=3, columns=70, dtype="float32"):
    entry = CATALOG[name]
    return tx.lower(entry.kernel, *entry.specs(rows, columns, dtype))


def split_at_reduction(text):
    before, _, after = text.partition('"tilex.reduction"')
    return before, after


@pytest.mark.parametrize(
    "name, common", [("layernorm", ["weight", "bias"]), ("rmsnorm", ["weight"])]
)
def test_weights_are_loaded_before_the_first_reduction(name, common):
    before, after = split_at_reduction(EarlyViews()(lowered(name)).script())
    for view in common:
        assert f"{view}[" in before and f"{view}[" not in after
    assert "early0[" in after


@pytest.mark.parametrize("name", ["softmax", "residual_layernorm", "cross_entropy", "row_sum"])
def test_a_program_without_common_views_stays(name):
    module = lowered(name)
    assert structural_equal(EarlyViews()(module), module)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("columns", [1, 70, 256])
def test_results_keep_their_bits(dtype, columns):
    entry = CATALOG["layernorm"]
    outputs = []
    for passes in ((), (EarlyViews(),)):
        module = lowered("layernorm", 3, columns, dtype)
        for each in passes:
            module = each(module)
        compiled = tvm.compile(module, target="llvm", tir_pipeline="tilex")
        arrays = [tvm.runtime.tensor(a) for a in entry.arguments(3, columns, dtype)]
        compiled["layernorm"](*arrays)
        outputs.append(arrays[-1].numpy().view(np.uint8))
    np.testing.assert_array_equal(*outputs)


@tx.tile_kernel
def scaled(
    x: tx.TensorView[tx.float32, 2],
    w: tx.TensorView[tx.float32, 1, "zero"],  # noqa: F821
    out: tx.TensorView[tx.float32, 2, tx.Out],
):
    rows, one = tx.axis("rows", x.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at = tx.coord(nest.index(), 0)
        value = x[at, tx.shape(one, columns)]
        factor = w[tx.coord(1), tx.shape(columns)]
        total = tx.reduce(value, columns, tx.add)
        out(at, tx.shape(one, columns)).store(value * factor / total)


def test_a_guarded_load_stays_lazy():
    module = tx.lower(scaled, (3, 70), (70,), (3, 70))
    assert structural_equal(EarlyViews()(module), module)


def compiled(name, rows, columns, **options):
    entry = CATALOG[name]
    chosen = tx.CompileOptions(**options)
    return tx.compile(entry.kernel, *entry.specs(rows, columns), target="h200", options=chosen)


def test_the_option_decides_and_the_cost_where_it_does_not():
    kept = {"shared_tile_materialization": "preserve"}
    never = compiled("rmsnorm", 8192, 4096, reduction_early_views=False, **kept)
    always = compiled("rmsnorm", 8192, 4096, reduction_early_views=True, **kept)
    chosen = compiled("rmsnorm", 8192, 4096, **kept)
    assert (never.early_views, always.early_views) == (False, True)
    assert len(always.plan.stripes) == len(never.plan.stripes) + 1
    scores = {artifact.early_views: artifact.plan.score for artifact in (never, always)}
    assert chosen.early_views == min(scores, key=scores.get)
    assert chosen.plan.score == min(scores.values())
    assert not compiled("softmax", 8192, 4096, reduction_early_views=True).early_views


def test_common_views_are_never_staged():
    plan = compiled(
        "rmsnorm", 8192, 4096, reduction_early_views=True, reduction_stripe_storage="shared",
        threads_per_group=256, reduction_lane_elements=4,
    ).plan  # fmt: skip
    assert plan.staged_bytes == 4096 * 4  # the row; its weights are in registers
    assert plan.stripe_scalars == 4096 // 256


def test_late_reads_are_priced():
    facts = []

    def policy(found):
        facts.append(found)
        return 1.0

    tx.plan.register_cost_policy("records late reads", lambda: policy)
    for early in (False, True):
        facts.clear()
        compiled("layernorm", 8, 512, reduction_early_views=early, cost_policy="records late reads")
        assert {f.late_reads for f in facts} == {0 if early else 2 * 512}
