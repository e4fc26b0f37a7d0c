"""Nodes: structure, text, application, composition and its refusals, units, visitors, oracle."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest

from tvm_tilex.errors import LayoutError, ParseError
from tvm_tilex.layout import (
    DISPROVEN,
    ArithmeticRangeError,
    Axis,
    BitLinear,
    CodomainError,
    Compose,
    DomainError,
    ExprVisitor,
    FiniteTable,
    Identity,
    IndexExpr,
    IndexSet,
    MixedRadix,
    Permute,
    Piecewise,
    Product,
    Project,
    Recast,
    Transform,
    Translate,
    analyze_finite,
    compose,
    coordinate,
    equal_maps,
    index_map,
    lt,
    parameter,
    parse_map,
    prove,
    restrict,
)
from tvm_tilex.layout.visitor import substitute

B = IndexSet.box
N = parameter("n", 1, 9)
i = coordinate("i")


def samples():
    swizzled = Transform("xor_swizzle", (3, 0, 3), parse_map("(8,8):(8,1)"))
    ragged = B(i=9, j=4).where(lambda i, j: lt(i + j, 9))
    return [
        Identity(ragged),
        Project(B(i=2, j=3), ("j",)),
        Permute(ragged, ("j", "i")),
        parse_map("(4,(2,2)):(2,(1,8))"),
        parse_map("4:-1"),
        parse_map("4:-1 + 3"),
        parse_map("(8,4,2):(4@lane+1@m,1@lane,1@m) + 3@lane"),
        parse_map("(8,):(2,)"),
        BitLinear(B(x=5, y=2), B(u=8, v=4), (((1, 0), (2, 1), (4, 2)), ((0, 3),)), (3, 1)),
        Translate((-2,), parse_map("8:1")),
        Translate((2,), parse_map("8:1"), B(index=10)),
        Compose(parse_map("8:2"), parse_map("(2,4):(4,1)")),
        Product((parse_map("4:1"), parse_map("4:2"))),
        Recast(4, parse_map("(3,8):(8,1)")),
        Recast(Fraction(1, 4), parse_map("(3,8):(8,1)")),
        swizzled,
        FiniteTable(B(a=2, b=2), B(v=9), ((3,), (8,), (0,), (1,))),
        Piecewise(((lt(i, 3),), (lt(2, i),)), (parse_map_on("8:1"), parse_map_on("8:1"))),
        IndexExpr(B(i=N), B(x=N), (N - 1 - i,)),
        IndexExpr(
            B(i=8),
            IndexSet((Axis("x", 64, -9),)),
            ((i * 3 - (i - 1) % 5) ^ (i & 3) << 2 ^ (i >> 1) // 3,),
        ),
        IndexExpr(B(i=8), B(x=2), (lt(i, 3) & (5 - (i - (2 - i))),)),
    ]


def parse_map_on(text):
    base = parse_map(text)
    return MixedRadix(base.shape, base.stride, 0, B(i=8), B(x=8))


@pytest.mark.parametrize("number", range(21))
def test_text_parses_back_to_an_equal_hashable_map(number):
    map = samples()[number]
    again = parse_map(str(map))
    assert again == map and hash(again) == hash(map) and str(again) == str(map)
    assert map == samples()[number] and len({map, again}) == 1


@pytest.mark.parametrize("number", range(21))
def test_scalar_array_and_oracle_agree_at_every_point(number):
    from tvm_tilex.layout.finite import oracle_value

    map = samples()[number]
    params = {p.name: p.upper for p in map.domain.parameters}
    points = list(map.domain.points(params))
    arrays = [np.array([p[k] for p in points]) for k in range(map.domain.rank)]
    whole = map.apply_array(*arrays, params=params)
    columns = whole if isinstance(whole, tuple) else (whole,)
    for k, point in enumerate(points):
        value = map.apply(*point, params=params)
        value = value if isinstance(value, tuple) else (value,)
        assert value == tuple(int(c[k]) for c in columns) == oracle_value(map, point, params)


@pytest.mark.parametrize("number", range(21))
def test_maps_survive_pickle_and_deepcopy(number):
    map = samples()[number]
    prove(map, 0)
    for again in (pickle.loads(pickle.dumps(map)), copy.deepcopy(map)):
        assert again == map and hash(again) == hash(map) and str(again) == str(map)
        assert prove(again, 0) == prove(map, 0)


def test_structurally_equal_and_frozen():
    a, b = parse_map("(4,8):(8,1)"), MixedRadix((4, 8), (8, 1))
    assert a == b and hash(a) == hash(b) and a != parse_map("(4,8):(1,4)")
    with pytest.raises(AttributeError):
        a.offset = 3


MALFORMED = [
    "",
    "8",
    "8:",
    "(4,2):(1)",
    "(4,2):(1,2",
    "8:1 extra",
    "(4,(2,2)):(2,1)",
    "x:1",
    "identity({i: 4, i: 5})",
    "recast(3, i1, (2,8):(8,1))",
    "8:1 + 1@m",
    "-4:1",
    "recast(1/0, i0, 8:1)",
    "index_expr({i: 4} -> {x: 4}, [j])",
    "transform(nope(1), 8:1)",
    "compose(4:1, 8:1)",
    "index_expr({i: 4} -> {x: 4}, [i, i])",
]


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_text_is_one_clear_error(text):
    with pytest.raises(ParseError, match="layout text: "):
        parse_map(text)


def both(map, *point):
    """Return the errors of the scalar and of the array form."""
    found = []
    for run in (
        lambda: map.apply(*point),
        lambda: map.apply_array(*(np.array([0, p]) for p in point)),
    ):
        with pytest.raises(LayoutError) as caught:
            run()
        found.append(caught.value)
    return found


def test_outside_domain_or_codomain_names_the_axis_in_both_forms():
    map = IndexExpr(B(row=4, col=8), B(a=30), (coordinate("row") * 8 + coordinate("col"),))
    for point, kind, name in [
        ((4, 0), DomainError, "'row'"),
        ((0, -1), DomainError, "'col'"),
        ((3, 7), CodomainError, "'a'"),
    ]:
        for error in both(map, *point):
            assert type(error) is kind and name in str(error)
        assert str(both(map, *point)[0]) == str(both(map, *point)[1])
    guarded = restrict(parse_map("(4,8):(8,1)"), lambda r, c: lt(r + c, 6))
    for error in both(guarded, 3, 3):
        assert type(error) is DomainError and "i0 + i1 < 6" in str(error)
    with pytest.raises(DomainError, match="2 coordinates"):
        parse_map("4:1").apply(1, 2)
    with pytest.raises(DomainError, match="not an integer"):
        parse_map("4:1").apply(1.0)
    with pytest.raises(DomainError, match="dtype float64"):
        parse_map("4:1").apply_array(np.array([1.0]))
    with pytest.raises(DomainError, match="signed 64-bit"):
        parse_map("4:1").apply_array(np.array([2**64 - 1], dtype=np.uint64))
    assert parse_map("(4,8):(8,1)").apply(i1=3, i0=1) == 11
    with pytest.raises(DomainError, match="'i0' has no coordinate"):
        parse_map("(4,8):(8,1)").apply(i1=3)


def test_overflow_and_division_raise_in_both_forms():
    wide = IndexSet((Axis("x", 2**63 - 1, -(2**62)),))
    for function in (
        lambda i: i * 2**62 - i * 2**62,
        lambda i: 8 // (i - 3),
        lambda i: 1 << (i * 22),
    ):
        map = index_map(B(i=4), wide, function, normal=False)
        for error in both(map, 3):
            assert type(error) is ArithmeticRangeError


def test_piecewise_evaluates_the_chosen_branch_only():
    from tvm_tilex.layout import choose

    map = index_map(B(i=6), B(x=13), lambda i: choose(lt(0, i), 12 // i, 0))
    assert [map(k) for k in range(6)] == [0, 12, 6, 4, 3, 2]
    assert map.apply_array(np.arange(6)).tolist() == [0, 12, 6, 4, 3, 2]
    assert prove(map, 0).totality.proven


def test_composition_past_a_domain_names_the_mode():
    a, b = parse_map("(4,5):(5,1)"), parse_map("(3,2):(1,3)")
    assert [compose(a, b)(x, y) for y in range(2) for x in range(3)] == [0, 5, 10, 15, 1, 6]
    with pytest.raises(LayoutError, match=r"past the domain: mode 0 'i0' .*extent 4.*has 8"):
        compose(parse_map("4:1"), parse_map("8:1"))
    with pytest.raises(LayoutError, match="2 codomain axes"):
        compose(parse_map("4:1"), Identity(B(a=2, b=2)))
    short = compose(parse_map("(2,3):(4,1)"), parse_map("(3,2):(2,1)"))
    assert short(2, 1) == 6
    # CuTe's documented example leaves the domain: only with the explicit option.
    with pytest.raises(LayoutError, match="past the domain"):
        compose(parse_map("(2,3):(4,1)"), parse_map("(3,4):(3,1)"))
    loose = compose(parse_map("(2,3):(4,1)"), parse_map("(3,4):(3,1)"), unbounded_last_mode=True)
    values = [loose(x, y) for y in range(4) for x in range(3)]
    assert values == [4 * (k % 2) + k // 2 for k in (3 * x + y for y in range(4) for x in range(3))]


def test_composition_is_closed_where_nothing_is_flat():
    # (4,6,8):(2,3,5) o 6:3 is 0, 6, 7, 8, 9, 15: no shape:stride.
    composed = compose(parse_map("(4,6,8):(2,3,5)"), parse_map("6:3"))
    assert isinstance(composed, Compose)
    assert [composed(k) for k in range(6)] == [
        2 * (x % 4) + 3 * (x // 4 % 6) for x in range(0, 18, 3)
    ]
    assert analyze_finite(composed).totality.proven
    # A wider codomain is fine where the values are proved to fit.
    masked = index_map(B(i=100), B(x=100), lambda i: i % 4)
    assert compose(parse_map("4:2"), masked)(7) == 6


def test_product_is_pairwise_and_renames_clashing_axes():
    f, g = parse_map("4:2"), parse_map("(2,3):(3,1)")
    pair = Product((f, g))
    assert pair.domain.names == ("i0_0", "i0_1", "i1")
    assert all(
        pair(x, y, z) == (f(x), g(y, z)) for x in range(4) for y in range(2) for z in range(3)
    )


def test_recast_follows_its_unit_rule():
    f = parse_map("(3,8):(8,1)")
    up, down = Recast(4, f), Recast(Fraction(1, 4), f)
    assert up.domain.shape == (3, 2) and up(2, 1) == f(2, 4) // 4
    assert down.domain.shape == (3, 32) and down(1, 7) == 4 * f(1, 1) + 3
    assert equal_maps(Recast(4, down), f, 0).proven
    assert equal_maps(Recast(Fraction(1, 4), up), f, 0).proven
    for text, r in (("(3,8):(9,1)", 4), ("(3,8):(8,1)", 3), ("(8,3):(1,8)", 3), ("8:2", 2)):
        with pytest.raises(LayoutError, match="recast"):
            Recast(r, parse_map(text))
    with pytest.raises(LayoutError, match="neither"):
        Recast(Fraction(2, 3), f)
    swizzled = Transform("xor_swizzle", (2, 2, 3), parse_map("(8,32):(32,1)"))
    assert Recast(4, swizzled)(1, 0) == swizzled(1, 0) // 4
    with pytest.raises(LayoutError, match="recast"):
        Recast(8, swizzled)


def test_symbolic_strides_offset_and_codomain_of_bare_text():
    assert parse_map("8:2").codomain.shape == (15,)
    assert parse_map("4:-1").codomain.axes[0].bounds() == (-3, 0)
    assert parse_map("4:-1 + 3").codomain.axes[0].bounds() == (0, 3)
    assert parse_map("(8,4):(4@lane,1@m)").codomain.names == ("lane", "m")
    with pytest.raises(LayoutError, match="scalar stride 2 mixed"):
        parse_map("(8,4):(4@lane,2)")


def test_index_sets_refuse_what_they_cannot_decide():
    with pytest.raises(LayoutError, match="not distinct"):
        IndexSet((Axis("i", 2), Axis("i", 3)))
    with pytest.raises(LayoutError, match="not safe on the box"):
        B(i=4).where(lambda i: lt(8 // i, 3))
    with pytest.raises(LayoutError, match="two ranges"):
        B({"i": parameter("n", 1, 2), "j": parameter("n", 1, 3)})
    with pytest.raises(LayoutError, match=r"extent ranges over \[-1, 3\]"):
        B(i=parameter("m", 0, 4) - 1)
    with pytest.raises(LayoutError, match="does not declare parameter 'n'"):
        IndexExpr(B(i=4), B(x=99), (coordinate("i") + N,))
    with pytest.raises(DomainError, match="'n' = 10 is outside"):
        IndexExpr(B(i=N), B(x=N), (coordinate("i"),)).apply(0, params={"n": 10})
    guarded = B(i=N, j=4).where(lambda i, j: lt(i, j))
    assert len(list(guarded.points({"n": 9}))) == 6


def test_typed_visitor_and_interning():
    class Depth(ExprVisitor[int]):
        def visit_constant(self, node):
            return 0

        visit_coordinate = visit_parameter = visit_constant

        def visit_operation(self, node, left, right):
            return 1 + max(left, right)

    deep = i
    for _ in range(5000):
        deep = deep + deep
    assert Depth().visit(deep) == 5000
    assert (i + 1) * 2 is (i + 1) * 2
    assert substitute((i + 1,), {"i": coordinate("j")})[0] is coordinate("j") + 1


def test_deep_and_shared_expressions_stay_cheap():
    chain = shared = i
    for _ in range(3000):
        chain = chain + 1 - 1
    for _ in range(200):
        shared = shared + shared
    map = IndexExpr(B(i=8), B(x=8), (chain,))
    assert prove(map, 0).all_proven and analyze_finite(map).all_proven and map(3) == 3
    wide = IndexExpr(B(i=8), B(x=8), (shared,))
    assert prove(wide, 0).totality.kind is DISPROVEN
    assert "large expression" in str(wide.values[0])
    with pytest.raises(LayoutError, match="shares too much"):
        str(wide)


def test_finite_table_is_checked():
    with pytest.raises(LayoutError, match="3 table rows"):
        FiniteTable(B(a=4), B(v=9), ((1,), (2,), (3,)))
    with pytest.raises(LayoutError, match="static domain"):
        FiniteTable(B(a=N), B(v=9), ((1,),))
    assert analyze_finite(FiniteTable(B(a=3), B(v=3), ((2,), (0,), (1,)))).all_proven


def test_oracle_is_bounded():
    assert analyze_finite(parse_map("2000000:1")).totality.unknown


def test_layout_imports_only_support_and_errors():
    import ast
    from pathlib import Path

    import tvm_tilex.layout

    allowed = ("tvm_tilex.layout", "tvm_tilex.support", "tvm_tilex.errors")
    for file in Path(tvm_tilex.layout.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.split(".")[0] in ("tvm", "tvm_tilex"):
                    assert name.startswith(allowed), f"{file.name} imports {name}"


def test_the_oracle_uses_no_proof_machinery():
    import ast
    from pathlib import Path

    import tvm_tilex.layout.finite as finite

    forbidden = (
        "affine",
        "context",
        "forms",
        "gf2",
        "interval",
        "proof",
        "bounds",
        "evaluate",
        "application",
        "normalize",
    )
    for node in ast.walk(ast.parse(Path(finite.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.module.split(".")[-1] not in forbidden
