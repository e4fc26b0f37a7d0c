"""A finite product, refused before any work beyond the budget, in an order that rotates."""

import itertools

import pytest

import tvm_tilex as tx
from tvm_tilex.errors import OptionError
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune import Dimension, Space, Timing, default_space, tune
from tvm_tilex.tune.errors import BudgetError, ReportError, TuningError
from tvm_tilex.tune.space import has_odd_rows, require_budget, rotated

FULL = {
    "threads_per_group": (0, 64, 128),
    "reduction_lane_elements": (1, 4),
    "shared_tile_materialization": ("preserve", "recompute"),
}


def test_the_space_is_the_whole_product_and_the_default(quick):
    space = quick.space(**FULL)
    candidates = space.candidates()
    assert space.size == len(candidates) == 1 + 3 * 2 * 2
    assert candidates[0].choices == {} and candidates[0].options == CompileOptions()
    assert [c.index for c in candidates] == list(range(13))
    assert len({c.options for c in candidates}) == 13
    for candidate in candidates[1:]:
        assert list(candidate.choices) == list(FULL)
        stated = {n: getattr(candidate.options, n) for n in FULL}
        assert stated["threads_per_group"] == candidate.choices["threads_per_group"]
        assert (
            stated["shared_tile_materialization"].value
            == candidate.choices["shared_tile_materialization"]
        )


def test_a_product_point_that_is_the_default_is_not_repeated(quick):
    space = quick.space(threads_per_group=(0, 64), reduction_unroll=(1, 2))
    assert len(space.candidates()) == 4 and space.size == 5


@pytest.mark.parametrize("kind", ["llvm", "metal", "cuda"])
def test_default_spaces(kind):
    space = default_space(kind)
    assert 4 < space.size <= 900
    assert Space.from_dict(space.to_dict()) == space


@pytest.mark.parametrize(
    ("shapes", "dtype", "odd"),
    [
        (((8, 4096),), "float32", False),
        (((8, 4095),), "float32", True),
        (((8, 4092),), "float32", False),
        (((8, 4092),), "bfloat16", True),
        (((8, 4096), (4095,)), "float32", False),  # no row: every program reads it
        ((), "float32", False),
    ],
)
def test_rows_that_are_no_whole_number_of_vectors_are_odd(shapes, dtype, odd):
    assert has_odd_rows(shapes, dtype) == odd


def values_of(space):
    return {d.name: d.values for d in space.dimensions}


def test_default_dimensions_are_those_of_the_target_and_the_storage():
    wide, narrow = (
        values_of(default_space("cuda", dtype=dtype, clusters=True))
        for dtype in ("float32", "bfloat16")
    )
    assert wide["reduction_blocks_per_program"] == (1, 2, 4, 8)
    assert wide["shared_tile_materialization"] == ("preserve", "loaded")
    assert wide["reduction_stripe_storage"] == ("register", "shared")
    assert 8 in narrow["reduction_lane_elements"] and 8 not in wide["reduction_lane_elements"]
    assert "reduction_blocks_per_program" not in values_of(default_space("cuda"))
    assert values_of(default_space("cuda"))["reduction_programs_per_subgroup"] == (1, 2, 4)
    assert "reduction_peeled_rows" not in wide
    odd = values_of(default_space("cuda", odd_rows=True))
    assert odd["reduction_peeled_rows"] == (False, True)
    assert "reduction_peeled_rows" not in values_of(default_space("metal", odd_rows=True))
    assert list(values_of(default_space("metal"))) == [
        *("threads_per_group", "reduction_programs_per_group", "reduction_lane_elements"),
    ]


@pytest.mark.parametrize(
    ("dimensions", "text"),
    [
        ([("treads", (1,))], "'treads' is no tunable option"),
        ([("noalias", (True,))], "'noalias' is no tunable option"),
        ([("reduction_unroll", ())], "without values"),
        ([("reduction_unroll", (1,)), ("reduction_unroll", (2,))], "named twice"),
        ([("threads_per_group", (48,))], "multiple of 32"),
        ([("reduction_unroll", (3,))], "1, 2, 4 or 8"),
        ([("shared_tile_materialization", ("keep",))], "'preserve'"),
    ],
)
def test_a_space_is_checked_when_it_is_stated(dimensions, text):
    with pytest.raises(OptionError, match=text):
        Space(CompileOptions(), tuple(Dimension(*d) for d in dimensions))


def test_an_oversized_product_is_refused_with_its_count_before_any_work(
    quick, tmp_path, monkeypatch
):
    def work(*a, **k):
        raise AssertionError("work was done")

    monkeypatch.setattr("tvm_tilex.tune.session.Pool", work)
    monkeypatch.setattr("tvm_tilex.driver.compile", work)
    monkeypatch.setattr("tvm_tilex.lang.kernel.TileKernel.capture", work)
    output = tmp_path / "out"
    with pytest.raises(BudgetError, match="75 compilations exceed the budget of 74: 5 shapes of"):
        tune(
            tx.kernels.softmax,
            [(3, 64)] * 5,
            space=quick.space(**FULL),
            budget=74,
            output=output,
        )
    assert not output.exists()


def test_a_huge_product_is_counted_without_being_listed(quick):
    space = quick.space(
        threads_per_group=tuple(32 * n for n in range(1, 2000)),
        reduction_programs_per_group=tuple(range(1, 2000)),
        max_thread_candidates=tuple(range(1, 2000)),
    )
    with pytest.raises(BudgetError, match=str(1 + 1999**3)):
        require_budget(space, 1, 1000)
    assert require_budget(space, 1, 1000, trials=20) == 22


def test_the_order_rotates_across_shapes(quick):
    orders = [rotated(13, position, 4) for position in range(4)]
    assert all(sorted(order) == list(range(13)) for order in orders)
    assert len({order[0] for order in orders}) == 4
    for order in orders:  # a rotation, nothing else
        assert all((b - a) % 13 == 1 for a, b in itertools.pairwise(order))


def test_an_output_folder_must_be_new_or_empty(quick, tmp_path):
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ReportError, match="not empty"):
        tune(tx.kernels.row_sum, [(3, 64)], space=quick.space(), output=tmp_path)
    assert (tmp_path / "report.json").read_text() == "{}"


def test_nothing_to_tune():
    with pytest.raises(TuningError, match="no shape"):
        tune(tx.kernels.row_sum, [], timing=Timing())


def test_a_kernel_without_a_file_is_refused_by_name(tmp_path):
    namespace = {"tx": tx}
    text = "def f(x: tx.TensorView[tx.float32, 1], o: tx.TensorView[tx.float32, 1, tx.Out]): pass"
    exec(compile(text, "<typed in>", "exec"), namespace)
    with pytest.raises(tx.errors.ArgumentError, match="<typed in>, which is no file"):
        tune(tx.tile_kernel(namespace["f"]), [(3,)], output=tmp_path)
