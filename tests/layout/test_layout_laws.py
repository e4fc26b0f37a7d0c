"""The laws of the specification on raw and on normalized forms, and the soundness fuzz."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tvm_tilex.layout import (
    Compose,
    Identity,
    IndexExpr,
    IndexSet,
    MixedRadix,
    Product,
    analyze_finite,
    equal_maps,
    normalize,
    prove,
)
from tvm_tilex.layout.finite import oracle_value

LAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXTENTS = st.integers(1, 6)


def table(map):
    return {point: oracle_value(map, point, {}) for point in map.domain.points()}


@st.composite
def maps_into(draw, domain, size):
    """A total, bounded map from ``domain`` to a box of ``size`` points and one axis."""
    x = sum((c * draw(st.integers(0, 9)) for c in domain.coordinates), domain.coordinates[0] * 0)
    shape = draw(st.sampled_from(("plain", "xor", "digits")))
    if shape == "xor":
        x = x ^ draw(st.integers(0, 15))
    if shape == "digits":
        base = draw(st.integers(2, 5))
        x = x // base * draw(st.integers(1, 4)) + x % base
    name = draw(st.sampled_from(("u", "v")))
    return IndexExpr(domain, IndexSet.box({name: size}), (x % size,))


@st.composite
def chains(draw, length):
    """Composable maps f1, f2, .. with f(k+1) defined on the codomain of f(k)."""
    domain = IndexSet.box({"ab"[k]: draw(EXTENTS) for k in range(draw(st.integers(1, 2)))})
    found = []
    for _ in range(length):
        size = draw(st.sampled_from((1, 2, 4, 5, 8, 12)))
        found.append(draw(maps_into(domain, size)))
        domain = found[-1].codomain
    return found


def forms(map):
    """The raw map and its normal form, which agree at every point."""
    normal = normalize(map)
    assert table(normal) == table(map)
    return (map, normal)


@LAWS
@given(chains(1))
def test_identity_is_neutral(chain):
    for f in forms(chain[0]):
        left, right = Compose(Identity(f.codomain), f), Compose(f, Identity(f.domain))
        for side in (*forms(left), *forms(right)):
            assert table(side) == table(f)
        assert equal_maps(left, f, 0).proven and equal_maps(right, f, 0).proven


@LAWS
@given(chains(3))
def test_composition_is_associative_and_pointwise(chain):
    for f, g, h in (chain, [normalize(m) for m in chain]):
        left, right = Compose(h, Compose(g, f)), Compose(Compose(h, g), f)
        expected = {p: oracle_value(h, oracle_value(g, v, {}), {}) for p, v in table(f).items()}
        for side in (*forms(left), *forms(right)):
            assert table(side) == expected
            assert {p: _tuple(side(*p)) for p in expected} == expected


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


@settings(LAWS, max_examples=25)
@given(chains(2), chains(2))
def test_product_is_pairwise_and_functorial(first, second):
    f1, g1 = first
    f2, g2 = second
    both = Product((f1, f2))
    for side in forms(both):
        for p, v in table(f1).items():
            for q, w in table(f2).items():
                assert oracle_value(side, p + q, {}) == v + w
    composed = Compose(Product((g1, g2)), both)
    separate = Product((Compose(g1, f1), Compose(g2, f2)))
    for a, b in zip(forms(composed), forms(separate), strict=True):
        assert list(table(a).values()) == list(table(b).values())


@LAWS
@given(chains(2))
def test_facts_agree_on_raw_and_normalized_forms(chain):
    composed = Compose(chain[1], chain[0])
    truth = analyze_finite(composed)
    for side in forms(composed):
        for name, verdict in prove(side, 0).items():
            assert verdict.unknown or verdict.kind is getattr(truth, name).kind


@LAWS
@given(st.lists(st.tuples(EXTENTS, st.integers(-9, 9)), min_size=1, max_size=3))
def test_mixed_radix_is_the_digit_sum(digits):
    map = MixedRadix((tuple(n for n, _ in digits),), (tuple(s for _, s in digits),))
    for (x,) in map.domain.points():
        rest, total = x, 0
        for n, s in digits:
            rest, digit = divmod(rest, n)
            total += digit * s
        assert map(x) == total


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_proofs_never_contradict_the_oracle(fuzz_layout, seed):
    tally = fuzz_layout.run(900, seed)
    for kind in fuzz_layout.CLASSES:
        decided = sum(n for key, n in tally[kind].items() if key.endswith("PROVEN"))
        assert decided > 180, (kind, tally[kind])


def test_the_fuzzer_notices_an_unsound_prover(fuzz_layout, monkeypatch):
    from tvm_tilex.layout import proof

    monkeypatch.setattr(proof, "prove_injective", lambda context, forms: "wishful thinking")
    with pytest.raises(fuzz_layout.Contradiction, match="injectivity"):
        fuzz_layout.run(200, 3)
