"""Cache keys see what a kernel's body reads: closures, globals, helpers, containers, constants."""

import dataclasses
import functools
import types

import numpy as np
import pytest

import tvm_tilex as tx

VIEW = tx.TensorView
SCALE = 2.0
MODULE = types.ModuleType("user_configuration")
MODULE.scale = 2.0
MODULE.unrelated = 1


def helper(value, factor=2.0):
    return value * factor


def deep_helper(value):
    return helper(value)


def scaled_by(function):
    """A kernel that applies ``function`` to each element."""

    @tx.tile_kernel
    def scaled(x: VIEW[tx.float32, 1], out: VIEW[tx.float32, 1, tx.Out]):
        n = tx.axis("n", x.extent(0))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            out(tx.coord(0), tx.shape(n)).store(function(x[tx.coord(0), tx.shape(n)]))

    return scaled


def by_global(value):
    return value * SCALE


def by_global_in_a_comprehension(value):
    return [value * SCALE for _ in range(2)][1]


def by_global_in_a_lambda(value):
    return (lambda v: v * SCALE)(value)


def by_module(value):
    return value * MODULE.scale


@pytest.mark.parametrize(
    "function", [by_global, by_global_in_a_comprehension, by_global_in_a_lambda]
)
def test_a_global(monkeypatch, function):
    kernel = scaled_by(function)
    before = kernel.environment()
    assert before == kernel.environment() and hash(before) == hash(kernel.environment())
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert kernel.environment() != before
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert kernel.environment() == before


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1)])
def test_values_that_compare_equal_but_differ(monkeypatch, one, other):
    kernel = scaled_by(by_global)
    monkeypatch.setitem(globals(), "SCALE", one)
    before = kernel.environment()
    monkeypatch.setitem(globals(), "SCALE", other)
    assert kernel.environment() != before


def test_nan_equals_itself(monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", float("nan"))
    kernel = scaled_by(by_global)
    assert kernel.environment() == kernel.environment()


def test_a_closure_cell():
    scale = 2.0

    def by_cell(value):
        return value * scale

    kernel = scaled_by(by_cell)
    before = kernel.environment()
    scale = 3.0
    assert kernel.environment() != before


@pytest.mark.parametrize(
    ("container", "change"),
    [
        ([2.0], lambda c: c.__setitem__(0, 3.0)),
        ({"scale": 2.0}, lambda c: c.update(scale=3.0)),
        (([2.0],), lambda c: c[0].append(3.0)),
        (np.array([2.0]), lambda c: c.__setitem__(0, 3.0)),
        ({1, 2}, lambda c: c.add(3)),
    ],
    ids=["list", "dict", "nested", "numpy", "set"],
)
def test_the_contents_of_a_container(container, change):
    kernel = scaled_by(lambda value: value * len(str(container)))
    before = kernel.environment()
    change(container)
    assert kernel.environment() != before


def test_an_attribute_of_a_module(monkeypatch):
    kernel = scaled_by(by_module)
    before = kernel.environment()
    monkeypatch.setattr(MODULE, "unrelated", 5)
    assert kernel.environment() == before
    monkeypatch.setattr(MODULE, "scale", 3.0)
    assert kernel.environment() != before


def test_an_attribute_of_an_object():
    @dataclasses.dataclass
    class Configuration:
        scale: float

    configuration = Configuration(2.0)
    kernel = scaled_by(lambda value: value * configuration.scale)
    before = kernel.environment()
    configuration.scale = 3.0
    assert kernel.environment() != before


@pytest.mark.parametrize("function", [helper, deep_helper])
def test_the_defaults_of_a_helper(monkeypatch, function):
    kernel = scaled_by(function)
    before = kernel.environment()
    monkeypatch.setattr(helper, "__defaults__", (3.0,))
    assert kernel.environment() != before


def test_a_replaced_helper(monkeypatch):
    kernel = scaled_by(deep_helper)
    before = kernel.environment()
    monkeypatch.setitem(globals(), "helper", lambda value: value * 3.0)
    assert kernel.environment() != before


def test_a_partial():
    keys = [scaled_by(functools.partial(helper, factor=f)).environment() for f in (2.0, 3.0, 2.0)]
    assert keys[0] == keys[2] != keys[1]


def test_recursion_and_an_unfilled_cell_are_no_obstacle():
    def power(value, n):
        return value if n == 0 else power(value * 2.0, n - 1)

    hash(scaled_by(lambda value: power(value, 3)).environment())
    kernel = scaled_by(lambda value: value * later)
    hash(kernel.environment())
    later = 2.0
    assert kernel.environment() != scaled_by(lambda value: value).environment()


def test_the_language_itself_is_no_part_of_it(monkeypatch):
    kernel = scaled_by(tx.exp)
    before = kernel.environment()
    assert kernel.environment() == before


@tx.tile_kernel
def with_constant(x: VIEW[tx.float32, 1], out: VIEW[tx.float32, 1, tx.Out], *, scale: float = 2.0):
    n = tx.axis("n", x.extent(0))
    for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
        out(tx.coord(0), tx.shape(n)).store(x[tx.coord(0), tx.shape(n)] * scale)


def test_compile_time_constants(execute):
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    execute(with_constant, [x, out])
    np.testing.assert_array_equal(out, 2 * x)
    execute(with_constant, [x, out], scale=-0.5)
    np.testing.assert_array_equal(out, -x / 2)


def test_calls_follow_what_the_body_reads(monkeypatch):
    x, out = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
    kernel = scaled_by(by_global_in_a_comprehension)
    for scale in (2.0, 3.0, 0.0, -0.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        kernel(x, out)
        np.testing.assert_array_equal(out, x * np.float32(scale))
        np.testing.assert_array_equal(np.signbit(out), np.signbit(np.float32(scale)))


def test_calls_follow_the_constants():
    x, out = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
    for scale in (2.0, 3.0, 0.0, -0.0, 1, 2.0):
        with_constant(x, out, scale=scale)
        np.testing.assert_array_equal(out, x * np.float32(scale))
        np.testing.assert_array_equal(np.signbit(out), np.signbit(np.float32(scale)))
    with_constant(x, out)
    np.testing.assert_array_equal(out, 2 * x)


def test_it_is_taken_once_while_its_lookups_stand(monkeypatch):
    kernel = scaled_by(deep_helper)
    before = kernel.environment()
    assert kernel.environment() is before
    monkeypatch.setitem(globals(), "unrelated_name", 1)
    assert kernel.environment() is before
    monkeypatch.setitem(globals(), "helper", lambda value: value * 2.0)
    assert kernel.environment() is not before


def test_a_name_that_appears_or_goes_is_seen(monkeypatch):
    kernel = scaled_by(lambda value: value * getattr(MODULE, "scale", 1.0) * MODULE.later)
    before = kernel.environment()
    monkeypatch.setattr(MODULE, "later", None, raising=False)
    between = kernel.environment()
    assert between != before
    monkeypatch.delattr(MODULE, "later")
    assert kernel.environment() == before != between


def test_what_changes_in_place_is_never_taken_for_granted():
    container = [2.0]
    kernel = scaled_by(lambda value: value * container[0])
    assert kernel.environment() is not kernel.environment()
    assert kernel.environment() == kernel.environment()
