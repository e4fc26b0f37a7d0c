"""``index_map``: the node each lambda becomes, what is refused, and that it runs once."""

import numpy as np
import pytest

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout import (
    BitLinear,
    FiniteTable,
    Identity,
    IndexExpr,
    IndexSet,
    MixedRadix,
    Permute,
    Piecewise,
    Project,
    TracingError,
    Transform,
    analyze_finite,
    choose,
    eq,
    index_map,
    le,
    lt,
)
from tvm_tilex.layout.finite import oracle_value

B = IndexSet.box
LAMBDAS = {
    "identity": (B(i=4, j=6), B(i=4, j=6), lambda i, j: (i, j), Identity),
    "identity through modulo": (B(i=4), B(i=4), lambda i: i % 4, Identity),
    "transpose": (B(i=4, j=6), B(j=6, i=4), lambda i, j: (j, i), Permute),
    "projection": (B(i=4, j=6), B(j=6), lambda i, j: j, Project),
    "row major": (B(i=4, j=6), B(x=24), lambda i, j: i * 6 + j, MixedRadix),
    "column major": (B(i=4, j=6), B(x=24), lambda i, j: i + 4 * j, MixedRadix),
    "padded": (B(i=6, j=10), B(x=72), lambda i, j: i * 12 + j, MixedRadix),
    "reversed": (B(i=10), B(x=10), lambda i: 9 - i, MixedRadix),
    "broadcast": (B(i=4, j=6), B(x=6), lambda i, j: 0 * i + j + 0, MixedRadix),
    "constant": (B(i=4), B(x=8), lambda i: 5, MixedRadix),
    "unflatten": (B(e=24), B(a=2, b=3, c=4), lambda e: (e // 12, e // 4 % 3, e % 4), MixedRadix),
    "blocked cyclic": (
        B(e=96),
        B(c=2, w=6, v=8),
        lambda e: (e // 48, e // 8 % 6, e % 8),
        MixedRadix,
    ),
    "tile 8x8": (B(x=64), B(x=64), lambda x: x // 16 * 16 + x % 4 * 4 + x // 4 % 4, MixedRadix),
    "shifts and masks": (B(x=64), B(x=64), lambda x: ((x & 7) << 3) + (x >> 3), MixedRadix),
    "fragment": (
        B(i=8, j=16),
        B(t=32, l=4),
        lambda i, j: (i * 4 + j % 8 // 2, j // 8 * 2 + j % 2),
        MixedRadix,
    ),
    "ragged execution": (
        B(c=4, w=32).where(lambda c, w: lt(32 * c + w, 100)),
        B(e=100),
        lambda c, w: 32 * c + w,
        MixedRadix,
    ),
    "swizzle 3,0,3": (B(x=64), B(x=64), lambda x: x ^ ((x & 56) >> 3), Transform),
    "swizzle of rows": (
        B(i=8, j=8),
        B(x=64),
        lambda i, j: (i * 8 + j) ^ (((i * 8 + j) & 56) >> 3),
        Transform,
    ),
    "two-axis swizzle": (B(i=8, j=8), B(i=8, j=8), lambda i, j: (i, j ^ i), BitLinear),
    "xor with constant": (B(i=16), B(x=16), lambda i: i ^ 5, BitLinear),
    "gray code": (B(i=16), B(x=16), lambda i: i ^ (i >> 1), BitLinear),
    "boolean times constant": (B(i=16), B(x=32), lambda i: (i & 7) ^ ((i >= 8) * 24), BitLinear),
    "ragged unflatten": (B(e=10), B(a=3, b=4), lambda e: (e // 4, e % 4), BitLinear),
    "ragged mixed radix": (B(e=50), B(a=8, b=7), lambda e: (e // 7, e % 7), IndexExpr),
    "square": (B(i=10), B(x=100), lambda i: i * i, IndexExpr),
    "carry": (B(i=8, j=8), B(x=16), lambda i, j: (i ^ 1) + j, IndexExpr),
    "clamp": (
        B(b=3, q=8),
        B(p=17),
        lambda b, q: choose(lt(b * 8 + q, 17), b * 8 + q, 16),
        Piecewise,
    ),
}


@pytest.mark.parametrize("name", LAMBDAS)
def test_strongest_node_and_equal_values(name):
    domain, codomain, function, node = LAMBDAS[name]
    built = index_map(domain, codomain, function)
    assert type(built) is node, built
    assert built.domain == domain and built.codomain == codomain
    raw = index_map(domain, codomain, function, normal=False)
    for point in domain.points():
        assert oracle_value(built, point, {}) == oracle_value(raw, point, {})


def test_the_table_is_large_enough_and_never_a_finite_table():
    assert len(LAMBDAS) >= 20
    for domain, codomain, function, _ in LAMBDAS.values():
        assert not isinstance(index_map(domain, codomain, function), FiniteTable)


def test_an_unsafe_subexpression_is_not_normalized_away():
    built = index_map(B(i=4), B(x=4), lambda i: i * 2**62 - i * 2**62 + i)
    assert type(built) is IndexExpr
    divided = index_map(B(i=4), B(x=4), lambda i: i + 0 * (7 // i))
    assert type(divided) is IndexExpr
    assert analyze_finite(divided).totality.disproven


def test_the_function_runs_exactly_once():
    calls = []

    class Counting:
        def __call__(self, i):
            calls.append(i)
            return i

    index_map(B(i=4), B(i=4), Counting())
    assert len(calls) == 1


def test_branch_on_a_symbol_names_the_users_line():
    def branching(i):
        if lt(i, 2):
            return i
        return 0

    with pytest.raises(TracingError, match=r"test_layout_index_map\.py:\d+: .*no truth value"):
        index_map(B(i=4), B(x=4), branching)
    with pytest.raises(TracingError, match=r"test_layout_index_map\.py:\d+: '==' .*use eq"):
        index_map(B(i=4), B(x=4), lambda i: i if i == 3 else 0)
    with pytest.raises(TracingError, match="use eq"):
        index_map(B(i=4, j=4), B(x=4), lambda i, j: i if i == j else 0)
    with pytest.raises(TracingError, match="no truth value"):
        index_map(B(i=4), B(x=4), lambda i: i and 3)


@pytest.mark.parametrize("container", [np.arange(4), [0, 1, 2, 3]], ids=["array", "list"])
def test_a_load_is_refused_by_name(container):
    with pytest.raises(LayoutError, match=r"load|not an integer"):
        index_map(B(i=4), B(x=4), lambda i: container[i])


def test_effects_are_refused_by_name():
    store = {}

    def writes(i):
        store["x"] = i
        return i

    def prints(i):
        print(i)
        return i

    def globally(i):
        global _written
        _written = i
        return i

    with pytest.raises(TracingError, match=r"\.py:\d+: .*a store to an element"):
        index_map(B(i=4), B(i=4), writes)
    assert store == {}
    with pytest.raises(TracingError, match="a call of 'print'"):
        index_map(B(i=4), B(i=4), prints)
    with pytest.raises(TracingError, match="a store to the global '_written'"):
        index_map(B(i=4), B(i=4), globally)
    with pytest.raises(TracingError, match="'float' is not an integer"):
        index_map(B(i=4), B(i=4), lambda i: 1.5)
    with pytest.raises(TracingError, match="floor division"):
        index_map(B(i=4), B(i=4), lambda i: i / 2)


def test_wrong_number_of_values_and_nested_choice():
    with pytest.raises(LayoutError, match="returns 2 values"):
        index_map(B(i=4), B(x=4), lambda i: (i, i))
    with pytest.raises(TracingError, match="whole tuple"):
        index_map(B(i=4), B(x=4, y=4), lambda i: (choose(lt(i, 2), i, 0), i))
    with pytest.raises(TracingError, match="branch to return"):
        index_map(B(i=4), B(x=4), lambda i: choose(lt(i, 2), i, 0) + 1)


def test_symbolic_comparisons_are_values():
    built = index_map(B(i=4), B(x=2), lambda i: eq(i, 2))
    assert [built(i) for i in range(4)] == [0, 0, 1, 0]
    other = index_map(B(i=4), B(x=2), lambda i: le(2, i))
    assert [other(i) for i in range(4)] == [0, 0, 1, 1]
