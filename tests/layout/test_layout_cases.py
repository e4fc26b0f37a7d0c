"""Facts by cases: a selection or a minimum written as arithmetic is two branches."""

import pytest

from tvm_tilex.layout import IndexSet, analyze_finite, index_map, lt, prove
from tvm_tilex.layout.bridges import parse_tilelang

KNOWN = [
    ("Layout([8], lambda i: if_then_else(i < 4, i*2, 15-i))", True, False),
    ("Layout([8], lambda i: if_then_else(i < 1, 7, i-1))", True, True),
    ("Layout([8], lambda i: if_then_else(i < 4, i + 4, i - 4))", True, True),
    ("Layout([8], lambda i: if_then_else(i < 4, i*2, i))", False, False),
    ("Layout([8, 8], lambda i, j: min(i, 3)*8 + j)", False, True),
    ("Layout([8, 8], lambda i, j: max(i - 4, 0)*8 + j)", False, True),
]


@pytest.mark.parametrize(("text", "injective", "onto"), KNOWN)
def test_selections_are_decided_without_enumeration(text, injective, onto):
    map = parse_tilelang(text).map
    found, oracle = prove(map, budget=0), analyze_finite(map, 4096)
    assert (oracle.injectivity.proven, oracle.surjectivity.proven) == (injective, onto)
    assert found.injectivity.proven == injective and not found.injectivity.unknown
    assert found.bounds.proven
    if not found.surjectivity.unknown:
        assert found.surjectivity.proven == onto


def test_a_branch_that_is_not_taken_still_counts_for_totality():
    # 8 // (4 - i) is evaluated at i = 4, although its product with 0 is added
    partial = index_map(
        IndexSet.box(i=8), IndexSet.box(x=9), lambda i: lt(i, 4) * (8 // (4 - i)), normal=False
    )
    found = prove(partial, budget=0)
    assert found.totality.disproven and not found.injectivity.proven


def test_a_large_selection():
    half = 1 << 30
    map = index_map(
        IndexSet.box(i=2 * half),
        IndexSet.box(x=2 * half),
        lambda i: i + half - lt(half - 1, i) * (2 * half),
    )
    assert prove(map, budget=0).all_proven
