"""Loads and stores as accesses of tensor views, against an evaluation point by point."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_programs import programs

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.ir import BoundsPolicy, Load, Pipeline, Store
from tvm_tilex.ir.access_views import access_of, accesses, tensor_view
from tvm_tilex.ir.index import evaluate_index
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.ir.verify import verify
from tvm_tilex.ir.walk import walk, walk_scoped
from tvm_tilex.layout import views


def places(statement, enclosing):
    """The coordinates that a statement accesses, one row per event and tile element."""
    nests = [(nest.nest, d, axis.extent) for nest in enclosing for d, axis in enumerate(nest.axes)]
    tile = [axis for axis in statement.dimensions if axis is not None]
    for point in itertools.product(*(range(extent) for *_, extent in nests)):
        known = {(n, d): x for (n, d, _), x in zip(nests, point, strict=True)}
        for element in itertools.product(*(range(axis.extent) for axis in tile)):
            at = {axis.name: x for axis, x in zip(tile, element, strict=True)}
            yield tuple(
                evaluate_index(origin, known, {}) + (at[axis.name] if axis else 0)
                for origin, axis in zip(statement.origin, statement.dimensions, strict=True)
            )


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_definitions=4))
def test_every_access_of_random_programs(program):
    for statement, enclosing in walk_scoped(program):
        if not isinstance(statement, Load | Store):
            continue
        access = access_of(program, statement, enclosing)
        shape = program.view(statement.view).shape
        expected = list(places(statement, enclosing))
        inside = [all(0 <= i < n for i, n in zip(p, shape, strict=True)) for p in expected]
        found, valid = access.use.places()
        assert valid.reshape(-1).tolist() == inside
        rows = list(zip(*(column.reshape(-1).tolist() for column in found), strict=True))
        assert [row for row, kept in zip(rows, inside, strict=True) if kept] == [
            p for p, kept in zip(expected, inside, strict=True) if kept
        ]
        assert access.emission(0)  # total and in bounds by rules alone
        if statement.bounds is BoundsPolicy.checked:  # a second proof of what the verifier proved
            assert access.use.always_valid(0).proven and access.use.validity == ()
        kept = [p for p, ok in zip(expected, inside, strict=True) if ok]
        once = access.exclusive(0)
        assert not (once.proven and len(set(kept)) != len(kept))
        assert not (once.disproven and len(set(kept)) == len(kept))
        if isinstance(statement, Store) and len(kept) > 1:
            assert once.proven  # the generator's stores never meet


def test_policies_are_the_statement_s():
    text = """
    kernel k(x: in float32[4] zero, y: in float32[4] predicate, z: in float32[4] assume,
             out: out float32[2, 3]) {
      parallel n0(rows: 2) {
        %0: float32[c: 3] = load x[(n0.0 * 2)](c: 3) zero
        %1: float32[c: 3] = load y[-1](c: 3) predicate
        %2: float32[c: 3] = load z[2](c: 3) assume
        %3: float32[c: 3] = add %0, %1
        %4: float32[c: 3] = add %3, %2
        store out[n0.0, 0](_, c: 3) = %4
      }
    }
    """
    program = parse_program(text)
    verify(program)
    found = list(accesses(program))
    policies = [access.view.bounds.value for _, access in found]
    assert policies == ["zero", "predicate", "assume", "assume"]
    assert [[str(g) for g in access.use.validity] for _, access in found] == [
        ["n0_0 * 2 + c < 4"],
        ["0 <= -1 + c"],
        ["2 + c < 4"],
        [],
    ]
    assert all(access.use.buffer is access.view.buffer for _, access in found)
    assert found[0][1].events == ("n0_0",) and found[0][1].local == ("c",)
    whole = tensor_view(program.view("x"))
    assert whole.bounds is views.BoundsPolicy.zero and whole.buffer.space.shape == (4,)


@pytest.mark.parametrize("name", sorted(kernels.catalog()))
def test_the_library_s_dynamic_kernels_are_proved(name):
    """Whatever the extents, every access lies inside and no element is stored twice."""
    entry = kernels.catalog()[name]
    rows, columns = tx.dynamic("P"), tx.dynamic("N", max=300)
    specs = [
        tx.spec(tuple({5: rows, 7: columns}.get(n, n) for n in spec.shape), spec.dtype)
        for spec in entry.specs(5, 7)
    ]
    program = entry.kernel.capture(specs)
    found = list(accesses(program))
    assert found
    for statement, access in found:
        assert access.use.validity == () and access.emission(0), statement
        if isinstance(statement, Store):
            assert access.exclusive(0).proven, statement


def test_pipelines_are_events():
    @tx.tile_kernel
    def copy_steps(x: tx.TensorView[tx.float32, 2], out: tx.TensorView[tx.float32, 2, tx.Out]):
        rows, steps = tx.axis("rows", x.extent(0)), tx.axis("steps", 3)
        part = tx.axis("part", 4)
        for nest in tx.parallel(tx.shape(rows)):
            for _ in tx.group(tx.shape(part)):
                for step in tx.pipeline(steps, tx.full(tx.shape(part), 0.0)):
                    (total,) = step.state
                    at = tx.coord(nest.index(), step.index() * 4)
                    step.carry(total + x[at, tx.shape(1, part)])
                (total,) = step.result
                out(tx.coord(nest.index(), 0), tx.shape(1, part)).store(total)

    program = copy_steps.capture([tx.spec((2, 12), "float32"), tx.spec((2, 4), "float32")])
    (pipeline,) = [s for s in walk(program) if isinstance(s, Pipeline)]
    (_, load), (_, store) = accesses(program)
    assert load.events == ("n0_0", f"n{pipeline.nest}_0") and store.events == ("n0_0",)
    assert load.use.always_valid(0).proven and load.exclusive(0).proven
    values, _ = load.use.read(np.arange(24.0).reshape(2, 12))
    assert values.reshape(2, 3, 4)[1, 2].tolist() == [20, 21, 22, 23]


def test_names_that_meet():
    """A tile axis called like an event's coordinate, and one like a dynamic dimension."""
    text = """
    kernel k(x: in float32[2, N], out: out float32[2, N]) dynamic (N: 1..9) {
      parallel n0(rows: 2) {
        %0: float32[n0_0: 1, N: N] = load x[n0.0, 0](n0_0: 1, N: N)
        store out[n0.0, 0](n0_0: 1, N: N) = %0
      }
    }
    """
    program = parse_program(text)
    verify(program)
    for _, access in accesses(program):
        assert access.local == ("n0_0_", "N_") and access.use.always_valid(0).proven
