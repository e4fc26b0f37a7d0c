"""Tensor views: composition, intersected validity, policies, gather and scatter."""

from __future__ import annotations

import enum
import gc
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.errors import LayoutError, ProofError
from tvm_tilex.ir.interp import interpret
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.layout import (
    Compose,
    Coordinate,
    FiniteTable,
    Identity,
    IndexSet,
    LayoutMap,
    MixedRadix,
    Project,
    choose,
    index_map,
    lt,
    parameter,
    parse_map,
    require_proven,
)
from tvm_tilex.layout.errors import DomainError
from tvm_tilex.layout.views import BoundsPolicy, Buffer, TensorView, gather, scatter
from tvm_tilex.layout.visitor import leaves

ZERO, PREDICATE, ASSUME = BoundsPolicy.zero, BoundsPolicy.predicate, BoundsPolicy.assume


def dense(bounds=ZERO, **extents):
    size = int(np.prod(list(extents.values())))
    return TensorView.dense(Buffer.linear("x", "float32", size), bounds, **extents)


def memory(view):
    return np.arange(1, view.buffer.space.shape[0] + 1, dtype=np.float32)


# What leads out of the values into the interpreter.
OUTSIDE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum)


def reachable(root, kind):
    """Every object of a type that the fields of ``root`` lead to."""
    found, seen, stack = [], set(), [root]
    while stack:
        node = stack.pop()
        if id(node) in seen or isinstance(node, OUTSIDE):
            continue
        seen.add(id(node))
        if isinstance(node, kind):
            found.append(node)
        stack.extend(r for r in gc.get_referents(node) if not isinstance(r, (str, int, bytes)))
    return found


def test_operations_keep_the_buffer_and_allocate_nothing():
    view = dense(rows=6, columns=10)
    chain = (
        view.slice(rows=(1, 8, 2), columns=slice(9, -3, -2))
        .permute("columns", "rows")
        .where(lambda columns, rows: lt(columns + rows, 5))
        .with_bounds(PREDICATE)
        .slice(rows=1)
    )
    assert chain.buffer is view.buffer
    assert [b is view.buffer for b in reachable(chain, Buffer)] == [True]
    assert reachable(chain, np.ndarray) == []
    assert view.address_map == dense(rows=6, columns=10).address_map  # the first view is unchanged


windows = st.tuples(st.integers(-7, 9), st.integers(0, 7), st.integers(-3, 3))


def oracle(grid, window_rows, window_columns):
    """NumPy's answer, point by point: value, or None outside."""

    def pick(i, j):
        r = window_rows[0] + window_rows[2] * i
        c = window_columns[0] + window_columns[2] * j
        inside = 0 <= r < grid.shape[0] and 0 <= c < grid.shape[1]
        return grid[r, c] if inside else None

    return [[pick(i, j) for j in range(window_columns[1])] for i in range(window_rows[1])]


@settings(max_examples=150, deadline=None)
@given(windows, windows, windows, windows)
def test_a_slice_of_a_slice_is_the_composed_window(first_r, first_c, second_r, second_c):
    view = dense(rows=5, columns=7)
    once = view.slice(rows=first_r, columns=first_c)
    grid = memory(view).reshape(5, 7)
    expected = oracle(grid, first_r, first_c)
    values, active = once.read(memory(view))
    assert values.shape == (first_r[1], first_c[1]) and active.all()
    assert values.tolist() == [[x or 0 for x in row] for row in expected]
    assert require_proven(once.address_map, ("totality", "bounds"), budget=0)
    twice = once.slice(rows=second_r, columns=second_c)
    inner = np.array([[x or 0 for x in row] for row in expected]).reshape(first_r[1], first_c[1])
    again = oracle(inner, second_r, second_c)
    assert twice.read(memory(view))[0].tolist() == [[x or 0 for x in row] for row in again]
    _, valid = twice.places()
    assert valid.tolist() == [[bool(x) for x in row] for row in again]  # memory holds no zero


def test_slices_intersect_bounds():
    """A window of a window can't see past the first one, though the buffer goes on."""
    row = dense(columns=10)
    wide = row.slice(columns=(2, 4)).slice(columns=(-1, 6))
    assert [str(g) for g in wide.validity] == ["0 <= columns + -1", "columns + -1 < 4"]
    assert wide.read(memory(row))[0].tolist() == [0, 3, 4, 5, 6, 0]
    assert row.slice(columns=(2, 4)).validity == ()  # proved inside: no guard is carried
    assert str(row.slice(columns=(2, 4)).address_map).endswith("4:1 + 2)")


def test_a_slice_without_ends_runs_to_those_of_the_axis():
    view = dense(rows=3, columns=7)
    whole = memory(view).reshape(3, 7)
    for window in (slice(None), slice(2, None), slice(None, 3, 2), slice(None, None, -1)):
        taken = view.slice(rows=window, columns=window)
        assert np.array_equal(taken.read(memory(view))[0], whole[window, window])
        assert taken.validity == ()


@pytest.mark.parametrize(
    ("policy", "word"), [(ZERO, "zero"), (PREDICATE, "predicate"), (ASSUME, "assume")]
)
def test_policies_are_metadata_of_the_invalid_part(policy, word):
    view = dense(policy, columns=5).slice(columns=(-1, 7))
    assert view.bounds is policy and str(view).endswith(word)
    assert view.address_map == dense(ZERO, columns=5).slice(columns=(-1, 7)).address_map
    if policy is ASSUME:
        with pytest.raises(DomainError, match=r"\(0,\) is invalid, though assumed not"):
            view.read(memory(view))
        return
    values, active = view.read(memory(view))
    assert values.tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert active.tolist() == [policy is ZERO or 0 < i < 6 for i in range(7)]
    out = np.full(5, -1, np.float32)
    view.write(out, np.arange(7, dtype=np.float32))
    assert out.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("policy", ["zero", "predicate"])
def test_a_view_means_what_the_interpreter_s_load_means(policy):
    text = f"""
    kernel load(x: in float32[4, 6] {policy}, out: out float32[4, 3, 8]) {{
      parallel n0(p: 4) {{
        %0: float32[r: 3, c: 8] = load x[(n0.0 - 1), -2](r: 3, c: 8) {policy}
        store out[n0.0, 0, 0](_, r: 3, c: 8) = %0
      }}
    }}
    """
    x = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    given_out = np.full((4, 3, 8), -1, np.float32)
    (expected,) = interpret(parse_program(text), [x, given_out])
    view = dense(BoundsPolicy(policy), rows=4, columns=6)
    tile = index_map(IndexSet.box(p=4, r=3, c=8), view.domain, lambda p, r, c: (p - 1 + r, c - 2))
    values, active = view.compose(tile).read(x.reshape(-1))
    assert np.array_equal(np.where(active, values, -1), expected)


def test_symbolic_origins_carry_their_guard():
    view = dense(rows=6, columns=10).slice(rows=(parameter("p", 0, 100) * 2, 2))
    assert [str(g) for g in view.validity] == ["rows + p * 2 < 6"]
    assert view.prove(0).bounds.proven and view.prove(0).totality.proven
    assert view.always_valid(0).disproven
    assert view.always_valid(0).witness.params == (("p", 100),)
    inside = dense(rows=6, columns=10).slice(rows=(parameter("q", 0, 2) * 2, 2))
    assert inside.validity == () and inside.always_valid(0).proven


def test_validity_is_three_valued():
    view = dense(columns=100)
    assert view.where(lambda columns: lt(columns, 200)).always_valid(0).proven
    holed = view.where(lambda columns: lt(columns * columns % 101, 100))
    assert holed.always_valid(0).unknown  # 10 * 10 % 101 == 100
    found = holed.always_valid()
    assert found.disproven and found.witness.points == ((10,),)


def test_composed_and_piecewise_layouts_are_views_too():
    swizzled = Compose(
        parse_map("transform(xor_swizzle(3, 0, 3), identity({x: 64}))"), parse_map("(8,8):(8,1)")
    )
    buffer = Buffer.linear("s", "float16", 64)
    view = TensorView.of(buffer, swizzled)
    column = view.slice(i1=0)
    assert column.read(np.arange(64.0))[0].tolist() == [0, 9, 18, 27, 36, 45, 54, 63]
    box = IndexSet.box(i=12)
    clamped = index_map(box, IndexSet.box(index=8), lambda i: choose(lt(i, 8), i, 7))
    tail = TensorView.of(Buffer.linear("t", "float32", 8), clamped, ZERO)
    assert tail.slice(i=(2, 10)).read(np.arange(8.0))[0].tolist() == [2, 3, 4, 5, 6, 7, 7, 7, 7, 7]
    with pytest.raises(LayoutError, match="two points write one place"):
        tail.write(np.zeros(8), np.arange(12.0))


def test_a_view_of_one_element():
    view = dense(columns=5)
    assert view.slice(columns=3).read(memory(view))[0].tolist() == 4
    outside = view.slice(columns=5)
    assert outside.domain.rank == 0 and outside.always_valid(0).disproven
    assert outside.read(memory(view))[0].tolist() == 0
    with pytest.raises(DomainError, match="is invalid"):
        outside.with_bounds(ASSUME).read(memory(view))


def test_named_physical_coordinates():
    space = IndexSet.box(bank=4, word=8)
    layout = MixedRadix((4, 8), ((("bank", 1),), (("word", 1),)), 0, None, space)
    view = TensorView.of(Buffer("shared", "float32", space), layout, ZERO).slice(i0=(2, 3))
    data = np.arange(1, 33, dtype=np.float32).reshape(4, 8)
    assert np.array_equal(view.read(data)[0], np.concatenate([data[2:], np.zeros((1, 8))]))


def test_contradictions_are_refused():
    buffer = Buffer.linear("x", "float32", 10)
    domain = IndexSet.box(i=10)
    layout = MixedRadix(10, 1, 0, domain, buffer.space)
    guard = lt(domain.coordinates[0], 5)
    with pytest.raises(LayoutError, match="not on the valid part"):
        TensorView(buffer, domain, layout, (guard,))
    with pytest.raises(LayoutError, match="the address map has the axes"):
        TensorView(buffer, IndexSet.box(j=10), layout)
    with pytest.raises(LayoutError, match="addresses have 1 coordinates, the buffer 2"):
        TensorView(Buffer("b", "float32", IndexSet.box(a=2, b=5)), domain, layout)
    view = TensorView.of(buffer, layout)
    for windows, message in (
        ({"j": 1}, "'j' is not an axis"),
        ({"i": slice(0, 3, 0)}, "'i' has a step of 0"),
        ({"i": (0, -1)}, "has the extent -1"),
    ):
        with pytest.raises(LayoutError, match=message):
            view.slice(**windows)
    with pytest.raises(LayoutError, match="is no order of the axes"):
        view.permute("j")
    with pytest.raises(LayoutError, match="has the shape"):
        view.read(np.zeros(9))
    with pytest.raises(LayoutError, match="2 coordinates for the axes"):
        view.compose(Identity(IndexSet.box(a=2, b=5)))


def test_an_address_past_the_buffer_is_not_emitted():
    domain = IndexSet.box(i=10)
    small = Buffer.linear("y", "float32", 5)
    view = TensorView.of(small, MixedRadix(10, 1, 0, domain, small.space), ZERO)
    assert view.prove(0).bounds.disproven
    with pytest.raises(ProofError, match="bounds is DISPROVEN"):
        require_proven(view.address_map, ("bounds",), budget=0)
    kept = view.where(lambda i: lt(i, 5))
    assert (
        kept.prove(0).bounds.proven
        and kept.read(np.arange(5.0))[0].tolist() == [0, 1, 2, 3, 4] + [0] * 5
    )


# -- gather and scatter ------------------------------------------------------------------------


def index_of(**extents):
    size = int(np.prod(list(extents.values())))
    return TensorView.dense(Buffer.linear("at", "int32", size), ZERO, **extents)


def test_an_index_is_a_coordinate_and_no_layout_node():
    access = gather(dense(rows=3, columns=7), "columns", index_of(picks=4))
    assert access.domain.names == ("rows", "picks")
    assert isinstance(access.selection, Project)
    assert access.selection.domain.names == ("rows", "picks", "columns")
    addressed = access.addressed
    assert addressed.buffer is access.view.buffer
    assert all(isinstance(leaf, Coordinate) for leaf in leaves(addressed.address_map.outputs))
    nodes = reachable(addressed.address_map, LayoutMap)
    assert nodes and not any(isinstance(node, FiniteTable) for node in nodes)
    assert [b.name for b in reachable(addressed, Buffer)] == ["x"]  # not the index's buffer


@pytest.mark.parametrize("together", [False, True], ids=["apart", "together"])
def test_gather_means_what_tile_ir_s_gather_means(together):
    own, dim, first = ("rows: 3, ", "3, ", "0, ") if together else ("", "", "")
    text = f"""
    kernel pick(x: in float32[3, 7], at: in int32[{dim}4],
                out: out float32[3, 4]) {{
      parallel n0(one: 1) {{
        %0: float32[rows: 3, columns: 7] = load x[0, 0](rows: 3, columns: 7)
        %1: int32[{own}picks: 4] = load at[{first}0]({own}picks: 4)
        %2: float32[rows: 3, picks: 4] = gather %0 over columns at %1 fill -5.0
        store out[0, 0](rows: 3, picks: 4) = %2
      }}
    }}
    """
    x = np.arange(1, 22, dtype=np.float32).reshape(3, 7)
    at = np.array([0, -1, 6, 7], np.int32)
    if together:
        at = np.stack([at, at[::-1], np.array([3, 3, 3, 100], np.int32)])
    (expected,) = interpret(parse_program(text), [x, at])
    index = index_of(rows=3, picks=4) if together else index_of(picks=4)
    access = gather(dense(rows=3, columns=7), "columns", index, fill=-5)
    values, active = access.read(x.reshape(-1), at.reshape(-1))
    assert active.all() and np.array_equal(values, expected)


def test_gather_from_a_window_keeps_its_policy():
    x = np.arange(1, 8, dtype=np.float32)
    at = np.array([0, 1, 4, 5, -1], np.int32)
    window = dense(columns=7).slice(columns=(4, 5))  # columns 4..8: two of them outside
    for policy, inside in ((ZERO, 0), (PREDICATE, -1)):
        access = gather(window.with_bounds(policy), "columns", index_of(picks=5), fill=-1)
        assert access.read(x, at)[0].tolist() == [5, 6, inside, -1, -1]
    with pytest.raises(LayoutError, match="an index selects an invalid point"):
        gather(window.with_bounds(ASSUME), "columns", index_of(picks=5)).read(x, at)


def test_scatter_writes_each_place_at_most_once():
    view, index = dense(rows=2, columns=5), index_of(picks=3)
    out = np.zeros(10, np.float32)
    scatter(view, "columns", index).write(
        out, np.array([4, -1, 0], np.int32), np.arange(6.0).reshape(2, 3)
    )
    assert out.reshape(2, 5).tolist() == [[2, 0, 0, 0, 0], [5, 0, 0, 0, 3]]
    with pytest.raises(LayoutError, match="two points select one place"):
        scatter(view, "columns", index).write(out, np.array([1, 1, 0], np.int32), 0)


def test_what_cannot_be_indexed_is_refused():
    view = dense(rows=2, columns=5)
    with pytest.raises(LayoutError, match="'z' is not an axis"):
        gather(view, "z", index_of(picks=3))
    with pytest.raises(LayoutError, match="has the axis 'columns' that it selects"):
        gather(view, "columns", index_of(columns=5))
    with pytest.raises(LayoutError, match="'rows' has two extents"):
        gather(view, "columns", index_of(rows=3))
    with pytest.raises(LayoutError, match="the index is float32"):
        gather(view, "columns", dense(picks=3))
    with pytest.raises(LayoutError, match="a scatter is not read"):
        scatter(view, "columns", index_of(picks=3)).read(np.zeros(10), np.zeros(3, np.int32))
    with pytest.raises(LayoutError, match="a gather is not written"):
        gather(view, "columns", index_of(picks=3)).write(np.zeros(10), np.zeros(3, np.int32), 0)


def test_a_gather_from_a_symbolic_window_is_stated_and_proved():
    origin = parameter("p", 0, 100)
    window = dense(rows=6, columns=10).slice(rows=(origin * 2, 2))
    access = gather(window, "columns", index_of(picks=3))
    assert access.domain.parameters == (origin,) == access.selection.domain.parameters
    addressed = access.addressed
    assert [str(g) for g in addressed.validity] == ["rows + p * 2 < 6"]
    assert addressed.prove(0).totality.proven and addressed.prove(0).bounds.proven
    with pytest.raises(LayoutError, match="evaluated at static extents only"):
        access.read(np.zeros(60), np.zeros(3, np.int32))
