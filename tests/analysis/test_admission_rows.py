"""Every row of the admission table: accepted programs, and single edits refused for that row."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import raw_tirx as raw
from admission_mutations import MUTATIONS

from tvm_tilex.analysis.admission import ROWS
from tvm_tilex.errors import LoweringError, MappingError
from tvm_tilex.tirx import attrs
from tvm_tilex.transform.options import CompileOptions

# name -> whether its snapshots must be forwarded first (a gather crosses workers otherwise)
ACCEPTED = {
    "softmax": False,
    "log_softmax": False,
    "logsumexp": False,
    "layernorm": False,
    "layernorm_no_affine": False,
    "rmsnorm": False,
    "residual_layernorm": False,
    "minmax": False,
    "row_sum": False,
    "cross_entropy": True,
}


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("forward", [False, True])
def test_every_row_accepts_the_library(name, forward):
    if ACCEPTED[name] and not forward:
        pytest.skip("a gather of a private snapshot declines: test_ownership_audit.py")
    found = raw.admission(raw.exported(name, forward=forward))
    assert [row.name for row in found.rows] == list(ROWS)
    assert all(row.verdict.proven and row.verdict.reason for row in found.rows)
    assert found.admitted and found.declined is None and found.facts is not None


def test_every_row_that_text_can_break_has_two_mutations():
    counted = collections.Counter(mutation.row for mutation in MUTATIONS.values())
    assert {row for row in ROWS if counted[row] >= 2} == set(ROWS) - {"guarded input views"}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_single_edit_is_refused_for_its_row_alone(name):
    mutation = MUTATIONS[name]
    raw.assert_only_declines(raw.admission(mutation.text), mutation.row, mutation.reason)


@pytest.mark.parametrize("name", MUTATIONS)
def test_automatic_mode_falls_back_and_names_the_row(name):
    mutation = MUTATIONS[name]
    if '"subgroup"' in mutation.text:
        pytest.skip("a subgroup binding is an explicit request")
    try:
        function = raw.realized(mutation.text)
    except LoweringError as error:
        # The reference map takes marked roots alone: nothing is emitted, and nothing is wrong.
        assert "outside" in mutation.reason and "not parallel" in str(error)
        return
    assert attrs.PLAN not in function.attrs
    assert str(function.attrs[attrs.STAGE]) == "scheduled"
    assert "T.tilex.subgroup" not in function.script() and "storage_sync" not in function.script()
    proof = raw.proof_of(function)
    assert not proof.admitted and not proof.explicit
    assert (proof.declined.name, mutation.reason in proof.declined.reason) == (mutation.row, True)


EXPLICIT = {
    "threads": CompileOptions(threads_per_group=64),
    "programs": CompileOptions(reduction_programs_per_group=2),
    "lane elements": CompileOptions(reduction_lane_elements=2),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_an_explicit_request_is_an_error_with_the_same_reason(name):
    mutation = MUTATIONS[name]
    for options in EXPLICIT.values():
        with pytest.raises(MappingError) as error:
            raw.realized(mutation.text, options=options)
        assert mutation.row in str(error.value) and mutation.reason in str(error.value)
        assert len(str(error.value).splitlines()) <= 2


@pytest.mark.parametrize("name", [n for n in MUTATIONS if "warp" not in n and "outside" not in n])
def test_a_subgroup_binding_is_an_error_with_the_same_reason(name):
    mutation = MUTATIONS[name]
    if "T.parallel(3" not in mutation.text:
        pytest.skip("its root is not parallel, so nothing of it can be bound")
    with pytest.raises(MappingError, match=mutation.row):
        raw.realized(raw.bound(mutation.text))


@pytest.mark.parametrize("name", [n for n, m in MUTATIONS.items() if m.meaning is not None])
def test_the_fallback_computes_what_the_edited_program_means(name):
    mutation = MUTATIONS[name]
    if 'tilex.binding": "subgroup' in mutation.text:
        with pytest.raises(MappingError, match="llvm"):  # an explicit request is never ignored
            raw.run_on_llvm(mutation.text, np.zeros((3, 70), np.float32))
        return
    x = np.random.default_rng(5).normal(size=(3, 70)).astype(np.float32)
    _, found = raw.run_on_llvm(mutation.text, x, np.full_like(x, np.nan))
    np.testing.assert_allclose(found, mutation.meaning(x), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("lanes", "kind", "reason"),
    [(16, "metal", "thread_warp_size 16"), (32, "llvm", "llvm"), (64, "metal", "64")],
)
@pytest.mark.parametrize("name", ["softmax", "layernorm_no_affine"])
def test_targets_without_32_lane_groups_decline(name, lanes, kind, reason):
    found = raw.admission(raw.exported(name), lanes=lanes, kind=kind)
    raw.assert_only_declines(found, "target and binding", reason)


def test_a_bare_metal_target_falls_back_and_refuses_requests():
    bare = {"kind": "metal", "max_num_threads": 256}
    forced = CompileOptions(metal_subgroup_reductions=True)
    function = raw.realized(raw.exported("softmax"), bare, forced)
    assert raw.proof_of(function).declined.name == "target and binding"
    with pytest.raises(MappingError, match="thread_warp_size"):
        raw.realized(raw.exported("softmax"), bare, CompileOptions(threads_per_group=64))


@pytest.mark.parametrize("name", ["layernorm_no_affine", "softmax"])
def test_a_second_root_declines(name):
    text = raw.exported(name)
    doubled = text.rstrip() + "\n" + text[text.index("        for program in") :]
    raw.assert_only_declines(raw.admission(doubled), "execution nesting", "2 root loops")


def test_ordered_reductions_alone_keep_the_reference_map():
    text = raw.exported("row_sum", forward=True).replace("unordered_tree", "fold_left")
    raw.assert_only_declines(
        raw.admission(text), "numerical permission", "every reduction is ordered"
    )


def test_one_bad_reduction_declines_the_good_one_beside_it():
    function = raw.realized(MUTATIONS["wrong operator under the marker"].text)
    assert attrs.PLAN not in function.attrs and "T.tilex.subgroup" not in function.script()
