"""Lowered maps give the same values through TVM on LLVM; what cannot be lowered is refused."""

import numpy as np
import pytest
import tvm

from tvm_tilex.errors import LoweringError
from tvm_tilex.layout import (
    Axis,
    BitLinear,
    Compose,
    FiniteTable,
    IndexExpr,
    IndexSet,
    RegisteredTransform,
    Transform,
    choose,
    compose,
    index_map,
    lt,
    parameter,
    parse_map,
    prove,
    register_transform,
    unflatten,
)
from tvm_tilex.tirx.layout_bridge import lower_function, lower_values
from tvm_tilex.tirx.tile_layout import to_tile_layout

B = IndexSet.box
WIDE = IndexSet((Axis("o", 2**63 - 1, -(2**62)),))


def run(map, params=None):
    """Evaluate every domain point through TVM on LLVM; return (computed, expected) columns."""
    library = tvm.compile(lower_function(map), target="llvm")
    points = np.array(list(map.domain.points(params)), dtype=np.int64).reshape(-1, map.domain.rank)
    inputs = [np.ascontiguousarray(points[:, k]) for k in range(map.domain.rank)]
    outputs = [tvm.runtime.tensor(np.zeros(len(points), np.int64)) for _ in map.codomain.axes]
    scalars = [params[p.name] for p in map.domain.parameters]
    library["layout_map"](*map_tensors(inputs), *scalars, *outputs)
    expected = map.apply_array(*inputs, params=params)
    return [o.numpy() for o in outputs], expected if isinstance(expected, tuple) else (expected,)


def map_tensors(arrays):
    return [tvm.runtime.tensor(array) for array in arrays]


def signed(function, extent=200):
    return index_map(IndexSet((Axis("i", extent, -extent // 2),)), WIDE, function, normal=False)


N = parameter("n", 1, 40)
MAPS = {
    "mixed radix": parse_map("(4,(2,2)):(2,(1,8)) + 3"),
    "negative strides": parse_map("(5,3):(-7,2)"),
    "vector strides": parse_map("(8,4,2):(4@lane,1@lane,1@m)"),
    "floor division": signed(lambda i: i // 7 * 100 + i // -7),
    "floor modulo": signed(lambda i: i % 7 * 100 + i % -7),
    "logical right shift of negatives": signed(lambda i: (i >> 2) % 1000003),
    "logical right shift by 63": signed(lambda i: i >> 63),
    "left shift drops high bits": signed(lambda i: ((i << 60) >> 62) + i),
    "xor and and of negatives": signed(lambda i: (i ^ -5) + (i & -8)),
    "comparisons": signed(lambda i: lt(i, 3) * 4 + (i <= 3) * 2 + lt(-i, i)),
    "variable shift": index_map(B(i=62), WIDE, lambda i: (1 << i) >> (63 - i), normal=False),
    "64-bit product": index_map(B(i=8), B(o=2**62), lambda i: i * 2**40 * 2**10, normal=False),
    "bit linear": BitLinear(B(x=11, y=4), B(u=32), (((1,), (6,), (4,), (9,)), ((16,), (8,))), (5,)),
    "swizzle": Transform("xor_swizzle", (3, 0, 3), parse_map("(8,8):(8,1)")),
    "finite table": FiniteTable(B(a=5, b=3), B(v=99), tuple((k * k * 7 % 97,) for k in range(15))),
    "composition": compose(unflatten(B(a=3, b=4, c=5)), parse_map("(6,10):(10,1)")),
    "table in a composition": Compose(
        FiniteTable(B(a=4), B(v=9), ((8,), (0,), (3,), (1,))), parse_map("(2,2):(2,1)")
    ),
    "lazy pieces": index_map(B(i=20), B(o=13), lambda i: choose(lt(0, i), 12 // i, 0)),
    "nested pieces": index_map(
        B(i=20), B(o=20), lambda i: choose(lt(i, 9), i, choose(lt(i, 15), 19 - i, i // 2))
    ),
    "symbolic": IndexExpr(B(i=N), B(x=N), (N - 1 - B(i=N).coordinates[0],)),
}


@pytest.mark.parametrize("name", MAPS)
def test_same_values_through_llvm(name):
    params = {"n": 37} if name == "symbolic" else None
    for computed, expected in zip(*run(MAPS[name], params), strict=True):
        np.testing.assert_array_equal(computed, expected)


def test_lowering_is_64_bit_and_lazy():
    text = lower_function(MAPS["lazy pieces"]).script()
    assert "if_then_else" in text and "int32" not in text and "Select" not in text
    (value,) = lower_values(parse_map("8:4"), [tvm.tirx.IntImm("int32", 3)])
    assert str(value.ty.dtype) == "int64"


def test_unknown_facts_may_be_lowered_as_computation():
    hard = index_map(B(i=5, j=7), B(x=200), lambda i, j: i * i * 7 + j)
    assert prove(hard, 0).injectivity.unknown
    for computed, expected in zip(*run(hard), strict=True):
        np.testing.assert_array_equal(computed, expected)


def test_a_transform_without_a_dag_is_refused_by_name():
    register_transform(RegisteredTransform(name="no_dag", evaluate=lambda x: x))
    with pytest.raises(LoweringError, match="transform 'no_dag\\(\\)' has no index DAG"):
        lower_function(Transform("no_dag", (), parse_map("8:1")))


def test_unsafe_subexpressions_are_refused():
    for function in (lambda i: i * 2**62 - i * 2**62, lambda i: 8 // i, lambda i: 1 << i):
        map = index_map(B(i=70), WIDE, function, normal=False)
        with pytest.raises(LoweringError, match="no safe 64-bit lowering"):
            lower_function(map)
    with pytest.raises(LoweringError, match="2 coordinates"):
        lower_values(parse_map("8:1"), [1, 2])
    with pytest.raises(LoweringError, match="parameter 'n'"):
        lower_values(MAPS["symbolic"], [1])


def test_tile_layout_of_the_shard_replica_subset():
    map = parse_map("(8,4,2):(4@laneid,1@laneid,1@m) + 2@m")
    native = to_tile_layout(map)
    assert [int(it.extent) for it in native.shard] == [8, 4, 2]
    flat = parse_map("(4,(2,2)):(2,(1,8))")
    native = to_tile_layout(flat)
    for x, y in flat.domain.points():
        # TVM's digits are row-major: the nested mode's digits are given slowest first.
        value = native.apply(x, y // 2, y % 2)
        assert int(tvm.sym.Analyzer().simplify(value["m"])) == flat(x, y)
    copies = to_tile_layout(parse_map("(8,4):(1@laneid,8@laneid)"), replica=["i1"])
    assert len(copies.shard) == 1 and int(copies.replica[0].extent) == 4
    for refused in (MAPS["bit linear"], MAPS["composition"]):
        with pytest.raises(LoweringError, match="not in the shard/replica subset"):
            to_tile_layout(refused)
    with pytest.raises(LoweringError, match="names several"):
        to_tile_layout(parse_map("8:1@laneid+1@m"))


def test_a_finite_table_is_a_constant_table_filled_once():
    table = FiniteTable(B(a=5, b=3), B(v=99), tuple((k * k * 7 % 97,) for k in range(15)))
    text = lower_function(table).script()
    assert text.count("table0 = T.alloc_local((T.int64(15),)") == 1
    assert "if_then_else" not in text
    body = text[text.index("for v") :] if "for v" in text else text[text.index("for ") :]
    assert "table0[" in body and "table0[T.int64(0)] =" not in body
