"""Each proof rule proves its case, and a near-miss mutant of that case is not proved."""

import pytest

from tvm_tilex.errors import LayoutError, ProofError
from tvm_tilex.layout import (
    DISPROVEN,
    PROVEN,
    UNKNOWN,
    Axis,
    BitLinear,
    IndexExpr,
    IndexSet,
    MixedRadix,
    Piecewise,
    Product,
    RegisteredTransform,
    Transform,
    TransformError,
    alignment,
    analyze_finite,
    cardinality,
    contiguity,
    coordinate,
    equal_maps,
    image,
    index_map,
    lt,
    parameter,
    parse_map,
    prove,
    register_transform,
    require_proven,
)
from tvm_tilex.layout.emission import ProvenMap

B = IndexSet.box
BIG = 2**62


def raw(domain, codomain, function):
    return index_map(domain, codomain, function, normal=False)


def kinds(map):
    return tuple(verdict.kind for _, verdict in prove(map, 0).items())


# Per rule: the fact, a map of which it is proved, and mutants of which it must not be proved.
RULES = {
    "affine ranges, no overflow": (
        "totality",
        raw(B(i=4), B(x=4), lambda i: i * (2**61) - i * 2**61 + i),
        [
            raw(B(i=5), B(x=5), lambda i: i * (2**61) - i * 2**61 + i),
            raw(B(i=4), B(x=4), lambda i: i * BIG - i * BIG + i),
        ],
    ),
    "no zero divisor": (
        "totality",
        raw(B(i=4), B(x=9), lambda i: 8 // (i + 1)),
        [raw(B(i=4), B(x=9), lambda i: 8 // i), raw(B(i=4), B(x=9), lambda i: 0 * (8 % (i - 2)))],
    ),
    "dominance": (
        "injectivity",
        raw(B(i=4, j=5), B(x=99), lambda i, j: 5 * i + j),
        [
            raw(B(i=4, j=6), B(x=99), lambda i, j: 5 * i + j),
            raw(B(i=4, j=5), B(x=99), lambda i, j: 4 * i + j),
        ],
    ),
    "dominance with signs": (
        "injectivity",
        raw(B(i=4, j=5), IndexSet((Axis("x", 99, -30),)), lambda i, j: j - 5 * i),
        [raw(B(i=4, j=5), IndexSet((Axis("x", 99, -30),)), lambda i, j: j - 4 * i)],
    ),
    "rank": (
        "injectivity",
        raw(B(i=9, j=9), B(x=99, y=99), lambda i, j: (i + j, i + 2 * j)),
        [
            raw(B(i=9, j=9), B(x=99, y=99), lambda i, j: (i + j, 2 * i + 2 * j)),
            raw(B(i=9, j=9), B(x=99), lambda i, j: i + 2 * j),
        ],
    ),
    "div and mod of a V + v": (
        "injectivity",
        raw(B(e=100), B(a=50, b=7), lambda e: (e // 7, e % 7)),
        [
            raw(B(e=100), B(a=50, b=7), lambda e: (e // 7, e % 6)),
            raw(B(e=100), B(a=50, b=7), lambda e: (e // 8, e % 7)),
        ],
    ),
    "padded rows of any base": (
        "injectivity",
        raw(B(e=60), B(x=99), lambda e: e // 10 * 12 + e % 10),
        [raw(B(e=60), B(x=99), lambda e: e // 10 * 9 + e % 10)],
    ),
    "range of a quotient": (
        "bounds",
        raw(B(e=50257), B(c=197), lambda e: e // 256),
        [raw(B(e=50257), B(c=196), lambda e: e // 256)],
    ),
    "gf2 rank": (
        "injectivity",
        raw(B(i=8, j=8), B(i=8, j=8), lambda i, j: (i ^ (j >> 1), j)),
        [
            raw(B(i=8, j=8), B(i=8, j=8), lambda i, j: (i ^ (j >> 1), j & 6)),
            raw(B(i=8, j=8), B(i=8, j=16), lambda i, j: (i ^ j, i + j)),
        ],
    ),
    "gf2 on a ragged prefix": (
        "injectivity",
        raw(B(i=11), B(x=16), lambda i: i ^ (i >> 1)),
        [raw(B(i=11), B(x=16), lambda i: (i ^ (i >> 1)) & 11)],
    ),
    "linear at unit points only": (
        "injectivity",
        raw(B(i=4), B(x=8), lambda i: i ^ (i << 1)),
        # (i * i) agrees with the identity at 0 and 1, with 4 at 2, yet is not linear.
        [raw(B(i=4), B(x=4), lambda i: (i * i) & 3)],
    ),
    "carry-free sum": (
        "surjectivity",
        raw(B(i=4, j=4), B(x=16), lambda i, j: ((i ^ 1) << 2) + j),
        [raw(B(i=4, j=4), B(x=16), lambda i, j: ((i ^ 1) << 1) + j)],
    ),
    "xor maximum": (
        "bounds",
        raw(B(i=4), B(x=7), lambda i: (i & 1) * 6 ^ (i >> 1) * 5),
        [raw(B(i=4), B(x=6), lambda i: (i & 1) * 6 ^ (i >> 1) * 5)],
    ),
    "product keeps high bits, shift drops them": (
        "totality",
        raw(B(i=8), IndexSet((Axis("x", 2**63 - 1, -BIG),)), lambda i: (i << 62) >> 62),
        [raw(B(i=8), IndexSet((Axis("x", 2**63 - 1, -BIG),)), lambda i: (i * BIG) >> 62)],
    ),
    "restriction": (
        "surjectivity",
        raw(
            B(c=4, w=32).where(lambda c, w: lt(32 * c + w, 100)), B(e=100), lambda c, w: 32 * c + w
        ),
        [
            raw(
                B(c=4, w=32).where(lambda c, w: lt(32 * c + w, 99)),
                B(e=100),
                lambda c, w: 32 * c + w,
            ),
            raw(
                B(c=3, w=32).where(lambda c, w: lt(32 * c + w, 100)),
                B(e=100),
                lambda c, w: 32 * c + w,
            ),
            raw(
                B(c=4, w=31).where(lambda c, w: lt(32 * c + w, 100)),
                B(e=100),
                lambda c, w: 32 * c + w,
            ),
        ],
    ),
    "counting": (
        "surjectivity",
        raw(B(i=4, j=5), B(x=20), lambda i, j: 5 * i + j),
        [raw(B(i=4, j=5), B(x=21), lambda i, j: 5 * i + j)],
    ),
    "onto although not injective": (
        "surjectivity",
        raw(B(i=4, j=6), B(x=9), lambda i, j: i + j),
        [
            raw(B(i=3, j=3), B(x=9), lambda i, j: 2 * i + 2 * j),
            raw(B(i=3, j=2), B(x=8), lambda i, j: 3 * i + j),
        ],
    ),
    "guard tightens a range": (
        "bounds",
        raw(B(i=9, j=9).where(lambda i, j: lt(i + j, 9)), B(x=9), lambda i, j: i + j),
        [raw(B(i=9, j=9).where(lambda i, j: lt(i + j, 10)), B(x=9), lambda i, j: i + j)],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_proves_its_case_and_not_the_mutants(rule):
    fact, good, mutants = RULES[rule]
    assert getattr(prove(good, 0), fact).kind is PROVEN, prove(good, 0)
    assert getattr(analyze_finite(good), fact).kind in (PROVEN, UNKNOWN)
    for mutant in mutants:
        assert getattr(prove(mutant, 0), fact).kind is not PROVEN, mutant


def test_unknown_is_decided_by_enumeration_only_with_a_budget():
    hard = raw(B(i=5, j=7), B(x=100), lambda i, j: i * i * 7 + j)
    assert prove(hard, 0).injectivity.kind is UNKNOWN
    assert prove(hard, 35).injectivity.kind is PROVEN
    assert "exhaustive" in prove(hard, 35).injectivity.reason
    assert prove(hard, 34).injectivity.kind is UNKNOWN


def test_verdicts_have_no_truth_value():
    proof = prove(parse_map("8:1"), 0)
    for thing in (proof, proof.bounds, proof.bounds.kind, image(parse_map("8:1"))):
        with pytest.raises(LayoutError, match="no truth value"):
            bool(thing)


DISPROOFS = {
    "zero column": (raw(B(i=4, j=5), B(x=4), lambda i, j: i + 0 * j), "injectivity"),
    "gcd collision": (raw(B(i=9, j=9), B(x=99), lambda i, j: 6 * i + 4 * j), "injectivity"),
    "opposite signs": (
        raw(B(i=9, j=9), IndexSet((Axis("x", 200, -99),)), lambda i, j: 6 * i - 4 * j),
        "injectivity",
    ),
    "pigeonhole": (raw(B(i=40), B(x=20), lambda i: i * i * 3 % 19), "injectivity"),
    "unit point": (raw(B(i=8), B(x=6), lambda i: i ^ 2), "bounds"),
    "overflow at a corner": (raw(B(i=8), B(x=8), lambda i: (i + (2**63 - 7)) % 8), "totality"),
    "gf2 kernel, ragged": (raw(B(i=6, j=5), B(x=8), lambda i, j: i ^ j), "injectivity"),
    "xor maximum reached": (raw(B(i=4), B(x=6), lambda i: (i & 1) * 6 ^ (i >> 1) * 1), "bounds"),
}


@pytest.mark.parametrize("name", DISPROOFS)
def test_disproofs_carry_evaluated_witnesses(name):
    map, fact = DISPROOFS[name]
    verdict = getattr(prove(map, 0), fact)
    assert verdict.kind is DISPROVEN, verdict
    points = verdict.witness.points
    if fact == "injectivity":
        a, b = points
        assert a != b and map(*a) == map(*b)
        assert all(map.domain.contains(dict(zip(map.domain.names, p, strict=True))) for p in points)
    else:
        with pytest.raises(LayoutError):
            map(*points[0])


def test_invalid_envelope_point_alone_disproves_nothing():
    # On 0..9 the greatest value is 13 (at 9); the enclosing 0..15 reaches 15.
    inside = raw(B(i=10), B(x=14), lambda i: i ^ (i >> 1))
    assert analyze_finite(inside).bounds.kind is not DISPROVEN
    assert prove(inside, 0).bounds.kind is not DISPROVEN
    whole = raw(B(i=16), B(x=15), lambda i: i ^ (i >> 1))
    assert prove(whole, 0).bounds.kind is DISPROVEN


def test_more_than_64_bits_in_total():
    wide = raw(B(i=2**40, j=2**40), B(a=2**40, b=2**40), lambda i, j: (i ^ j, j ^ 5))
    assert prove(wide, 0).all_proven
    lost = raw(B(i=2**40, j=2**40), B(a=2**40, b=2**40), lambda i, j: (i ^ j, i ^ j ^ 5))
    assert prove(lost, 0).injectivity.kind is DISPROVEN
    big = raw(B(i=2**31, j=2**31), B(x=2**62), lambda i, j: i * 2**31 + j)
    assert prove(big, 0).all_proven


def test_modular_rank_failure_is_unknown_not_aliasing():
    p = 2**31 - 1
    # The determinant is p: singular modulo p, regular over the integers.
    map = raw(B(i=3, j=3), B(x=2**40, y=2**40), lambda i, j: (i * 2 + j, i * (p - 1) + j * p))
    assert prove(map, 0).injectivity.kind is not DISPROVEN
    assert prove(map, 100).injectivity.kind is PROVEN


def test_empty_and_zero_rank_domains():
    empty = raw(B(i=0), B(x=3), lambda i: i)
    assert kinds(empty) == (PROVEN, PROVEN, PROVEN, DISPROVEN)
    point = IndexExpr(B(), B(x=1), (0,))
    assert kinds(point) == (PROVEN,) * 4 and point() == 0


def test_parameters_are_universal():
    n = parameter("n", 1, 9)
    domain = B(i=n)
    assert prove(IndexExpr(domain, B(x=n), (coordinate("i"),)), 0).all_proven
    shifted = IndexExpr(domain, B(x=n), (coordinate("i") + 1,))
    assert prove(shifted, 0).bounds.kind is DISPROVEN
    reversed_ = IndexExpr(domain, B(x=n), (n - 1 - coordinate("i"),))
    proof = prove(reversed_, 0)
    assert proof.totality.proven and proof.bounds.proven and proof.injectivity.proven
    assert analyze_finite(reversed_).all_proven


def test_queries_on_affine_gf2_and_registered_maps():
    padded = parse_map("(6,10):(12,1)")
    assert image(padded, 0).value.size == 60
    assert cardinality(parse_map("(4,4):(1,1)"), 0).value == 7
    assert cardinality(parse_map("(3,3):(4,6)"), 0).value == len(
        {4 * i + 6 * j for i in range(3) for j in range(3)}
    )
    assert alignment(parse_map("(4,4):(6,12) + 18"), budget=0).value == 6
    assert contiguity(parse_map("(8,(4,2)):(16,(1,8))"), budget=0).value == 4
    swizzled = Transform("xor_swizzle", (3, 2, 3), parse_map("(8,32):(32,1)"))
    assert contiguity(swizzled, "i1", budget=0).value == 4
    assert cardinality(swizzled, 0).value == 256
    assert image(swizzled, 0).value.intervals == ((0, 255),)
    # The first half is a run of 4, the second swaps neighbours.
    assert contiguity(raw(B(i=8), B(x=8), lambda i: i ^ (i >> 2)), budget=0).value == 1
    assert alignment(raw(B(i=8), B(x=80), lambda i: (i ^ 3) * 8), budget=0).value == 8
    hard = raw(B(i=9), B(x=999), lambda i: i * i * i)
    assert image(hard, 0).verdict.kind is UNKNOWN and image(hard, 9).value.size == 9
    assert alignment(hard, budget=0).value in (None, 1)


def test_equality_is_three_valued():
    a = raw(B(e=60), B(x=60), lambda e: e // 12 * 12 + e % 12)
    assert equal_maps(a, raw(B(e=60), B(x=60), lambda e: e), 0).kind is PROVEN
    assert (
        equal_maps(a, raw(B(e=60), B(x=60), lambda e: e // 12 * 12 + e % 11), 0).kind is not PROVEN
    )
    assert equal_maps(a, raw(B(e=60), B(x=60), lambda e: 59 - e), 0).kind is DISPROVEN
    x, y = (raw(B(i=9), B(x=99), f) for f in (lambda i: i * i, lambda i: i * i + 0 * (i * i - i)))
    assert equal_maps(x, y, 0).kind in (PROVEN, UNKNOWN) and equal_maps(x, y, 100).kind is PROVEN
    with pytest.raises(LayoutError, match="domains"):
        equal_maps(a, x)


def test_require_proven_is_the_only_door():
    assert require_proven(parse_map("(4,8):(8,1)"), ["injectivity", "bounds"]).facts
    with pytest.raises(ProofError, match=r"injectivity is DISPROVEN: .*\(1,"):
        require_proven(parse_map("(4,8):(1,1)"), ["injectivity"])
    hard = raw(B(i=5, j=7), B(x=100), lambda i, j: i * i * 7 + j)
    with pytest.raises(ProofError, match=r"injectivity is UNKNOWN.*budget 0"):
        require_proven(hard, ["injectivity"], budget=0)
    with pytest.raises(LayoutError, match="'owner' is not a valid Fact"):
        require_proven(hard, ["owner"])
    with pytest.raises(LayoutError, match="require_proven only"):
        ProvenMap(hard, prove(hard, 0), ())


def test_piecewise_disjointness_is_proved_or_refused():
    i = coordinate("i")
    low, high = (raw(B(i=8), B(x=8), f) for f in (lambda i: i, lambda i: 7 - i))
    assert prove(Piecewise(((lt(i, 4),), (lt(3, i),)), (low, low)), 0).all_proven
    with pytest.raises(LayoutError, match=r"overlap at \(3,\)"):
        Piecewise(((lt(i, 4),), (lt(2, i),)), (low, high))
    wide, n = B(i=10**6), 10**6
    wide_map = raw(wide, B(x=n), lambda i: i)
    with pytest.raises(LayoutError, match="not proved disjoint"):
        Piecewise(((lt(i * i % 7, 3),), (lt(i * i % 5, 2),)), (wide_map, wide_map))
    partial = Piecewise(((lt(i, 4),), (lt(4, i),)), (low, low))
    assert prove(partial, 0).totality.kind is not PROVEN
    assert prove(partial, 8).totality.kind is DISPROVEN


def test_structure_carries_facts_of_parts():
    odd = raw(B(x=5, y=7), B(e=100), lambda x, y: x * x * 7 + y)
    pair = Product((parse_map("4:1"), parse_map("(2,3):(3,1)")))
    assert prove(pair, 0).all_proven
    assert prove(Product((parse_map("4:1"), odd)), 0).injectivity.kind is UNKNOWN


def cube(x):
    return x * 3 % 16


def test_a_transform_whose_hooks_lie_is_caught():
    lies = {
        "lie_bijective": {"evaluate": lambda x: x // 2, "is_bijective": lambda n: True},
        "lie_image": {"evaluate": lambda x: x + 1, "image_extent": lambda n: n},
        "lie_dag": {"evaluate": cube, "expression": lambda x: x * 5 % 16},
        "lie_inverse": {"evaluate": cube, "inverse": lambda y: y},
        "lie_dag_fails": {"evaluate": cube, "expression": lambda x: 3 // x},
    }
    for name, parts in lies.items():
        register_transform(RegisteredTransform(name=name, **parts))
        with pytest.raises(TransformError, match=name):
            Transform(name, (), parse_map("16:1"))
    # A lie far out is found by the sample; a small one never becomes a proof.
    register_transform(
        RegisteredTransform(
            name="lie_far", evaluate=lambda x: 0 if x == 90_001 else x, is_bijective=lambda n: True
        )
    )
    far = Transform("lie_far", (), parse_map("100000:1"))
    assert prove(far, 0).injectivity.kind is not PROVEN


def test_an_honest_transform_without_a_dag_is_proved_by_its_checked_hook():
    register_transform(
        RegisteredTransform(
            name="times_three",
            evaluate=cube,
            inverse=lambda y: y * 11 % 16,
            is_bijective=lambda n: n == 16,
        )
    )
    map = Transform("times_three", (), parse_map("(4,4):(4,1)"))
    proof = prove(map, 0)
    assert proof.all_proven and "hook" in proof.injectivity.reason
    with pytest.raises(TransformError, match="no transform 'missing'"):
        Transform("missing", (), parse_map("4:1"))
    with pytest.raises(TransformError, match="shift"):
        Transform("xor_swizzle", (3, 0, 2), parse_map("64:1"))


def test_swizzle_codomain_covers_ragged_rows():
    # The greatest index of S<3,0,3> o (6,10):(10,1) is 63, past the 60 elements.
    map = Transform("xor_swizzle", (3, 0, 3), parse_map("(6,10):(10,1)"))
    assert map.codomain.shape == (64,)
    assert max(map(i, j) for i in range(6) for j in range(10)) == 63
    assert prove(map, 0).injectivity.proven


def test_bit_linear_and_mixed_radix_at_scale():
    n = 40
    wide = BitLinear(B(x=2**n), B(y=2**n), (tuple((1 << k ^ (1 << k) >> 3,) for k in range(n)),))
    assert prove(wide, 0).all_proven
    huge = MixedRadix((2**20, 2**20, 2**20), (2**40, 2**20, 1))
    assert prove(huge, 0).all_proven


def test_alignment_of_a_total_map_without_a_linear_form():
    # Found by scripts/fuzz_layout.py: x - x >> 3 is safe, but its shift leaves no linear form.
    found = parse_map(
        "compose(index_expr({m0: 1, m1: 1} -> {o0: 1}, [(0 + m0 * -4 + m1 * 5) // 2 * 12]), "
        "index_expr({x: 71} -> {o0: 1, o1: 1}, [(x < x) << 1, x - x >> 3]))"
    )
    assert prove(found, budget=0).totality.proven
    assert not alignment(found, budget=0).verdict.disproven
    exhaustive = alignment(found, budget=1000)
    assert exhaustive.verdict.proven and exhaustive.value == 0


@pytest.mark.parametrize("divisor", [2, 3, 7])
def test_a_quotient_of_a_parameter_stays_below_it(divisor):
    """The middle of a row lies in it, whatever its length n in [1, 300]: (n - 1) // d < n."""
    n = parameter("n", 1, 300)
    row, nothing = B(x=n), B(parameters=(n,))
    for start in ((n - 1) // divisor, n // divisor, (n * 2 - 1) // (2 * divisor)):
        assert prove(IndexExpr(nothing, row, (start,)), 0).bounds.proven
    for start in ((n - 1) // divisor + 1, (n + divisor - 1) // divisor):  # both are n for n = 1
        refuted = prove(IndexExpr(nothing, row, (start,)), 0).bounds
        assert refuted.disproven and refuted.witness.params == (("n", 1),)
    below = prove(IndexExpr(nothing, row, (n - n // divisor - 1,)), 0).bounds
    assert below.proven  # the other sign of the quotient
