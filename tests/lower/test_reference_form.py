"""The reference TIRx: markers, carries, sharing, and text that parses back."""

import numpy as np
import pytest
import tvm

import tvm_tilex as tx
from tvm_tilex.analysis.purity import loads
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import structural_walk, tirx
from tvm_tilex.tirx.wellformed import verify_function

VIEW = tx.TensorView
F32 = tx.float32
MODES = {mode: tx.CompileOptions(shared_tile_materialization=mode) for mode in
         ("preserve", "expensive-only")}  # fmt: skip
CATALOG = tx.kernels.catalog()


def lowered(name, options=None, rows=3, columns=40):
    entry = CATALOG[name]
    return tx.lower(entry.kernel, *entry.specs(rows, columns), options=options)


def nodes(module, kind):
    (function,) = module.functions.values()
    found = []
    structural_walk(function.body, (kind, found.append))
    return found


def marked(module):
    loops = [loop for loop in nodes(module, tirx.For) if attrs.annotation(loop, attrs.REDUCTION)]
    return sorted(loops, key=lambda loop: attrs.annotation(loop, attrs.VALUE))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CATALOG)
def test_printed_text_parses_back_structurally_equal(name, mode):
    module = lowered(name, MODES[mode])
    back = tvm.script.from_source(module.script())
    tvm.ir.assert_structural_equal(back, module)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CATALOG)
def test_well_formed_by_tvm_and_by_our_rules(name, mode):
    module = lowered(name, MODES[mode])
    assert tirx.analysis.verify_well_formed(module[name], assert_mode=False)
    verify_function(module[name])
    assert str(module[name].attrs[attrs.STAGE]) == "reference"


# rescaled_tree is a policy of sums alone: tests/rescaling
POLICY = [policy.value for policy in tx.ReductionPolicy if policy.value != "rescaled_tree"]
IDENTITY = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf}


@tx.tile_kernel
def all_reductions(x: VIEW[F32, 2], out: VIEW[F32, 2, tx.Out], *, policy: str = "unordered_tree"):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        tile = x[tx.coord(nest.index(), 0), tx.shape(1, columns)]
        for place, op in enumerate((tx.add, tx.maximum, tx.minimum)):
            value = tx.reduce(tile, columns, op, policy=policy)
            out(tx.coord(nest.index(), place), tx.shape(1, 1)).store(value)


@pytest.mark.parametrize("policy", POLICY)
def test_markers_carry_kind_policy_and_value(policy):
    module = tx.lower(all_reductions, (4, 40), (4, 3), policy=policy)
    program = all_reductions.capture([tx.spec((4, 40)), tx.spec((4, 3))], {"policy": policy})
    numbers = [s.result.number for s in program.body[0].body if type(s).__name__ == "Reduce"]
    loops = marked(module)
    assert [attrs.annotation(loop, attrs.REDUCTION) for loop in loops] == list(IDENTITY)
    assert [attrs.annotation(loop, attrs.POLICY) for loop in loops] == [policy] * 3
    assert [attrs.annotation(loop, attrs.VALUE) for loop in loops] == numbers
    precise = attrs.PRECISE in module["all_reductions"].attrs
    assert precise is (policy != "unordered_tree")


@pytest.mark.parametrize("policy", ["unordered_tree", "fold_left", "fold_right"])
def test_one_local_scalar_carry_with_exact_identity_and_one_update(policy):
    module = tx.lower(all_reductions, (4, 40), (4, 3), policy=policy)
    stores = nodes(module, tirx.BufferStore)
    for loop in marked(module):
        update = loop.body
        assert isinstance(update, tirx.BufferStore)
        carry = update.buffer
        assert carry.scope() == "local" and [int(n) for n in carry.ty.shape] == [1]
        assert str(carry.ty.dtype) == "float32"
        own = [store for store in stores if store.buffer.same_as(carry)]
        assert len(own) == 2  # the identity and the update
        (identity,) = [store.value for store in own if isinstance(store.value, tirx.FloatImm)]
        wanted = IDENTITY[attrs.annotation(loop, attrs.REDUCTION)]
        assert identity.value == wanted and np.signbit(identity.value) == (wanted < 0)
        assert sum(load.source.same_as(carry) for load in loads(update.value)) == 1
        assert isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 40
        assert loop.kind == tirx.ForKind.SERIAL


def test_a_wide_result_updates_one_carry_per_element():
    @tx.tile_kernel
    def columns_sum(x: VIEW[F32, 2], out: VIEW[F32, 1, tx.Out]):
        a, b = tx.axis("a", x.extent(0)), tx.axis("b", x.extent(1))
        for _ in tx.parallel(tx.shape(tx.axis("one", 1))):
            total = tx.reduce(x[tx.coord(0, 0), tx.shape(a, b)], a, tx.add)
            out(tx.coord(0), tx.shape(b)).store(total)

    module = tx.lower(columns_sum, (5, 7), (7,))
    (loop,) = marked(module)
    assert int(loop.extent) == 5
    assert [int(n) for n in loop.body.buffer.ty.shape] == [1]


# Sharing (spec section 5.1).


def stored_tiles(module):
    return {buffer.buffer.name for buffer in nodes(module, tirx.AllocBuffer)
            if int(buffer.buffer.ty.shape[0]) > 1}  # fmt: skip


def loads_per_element(module, view):
    """Loads of a view in the whole program, weighted by the loops around them."""
    (function,) = module.functions.values()
    total = 0

    def visit(statement, times):
        nonlocal total
        if isinstance(statement, tirx.For):
            visit(statement.body, times * int(statement.extent))
        elif isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                visit(part, times)
        elif isinstance(statement, tirx.BufferStore):
            total += times * sum(load.source.name == view for load in loads(statement.value))

    visit(function.body, 1)
    return total / (3 * 40)


def test_preserve_keeps_both_shared_tiles_of_residual_layernorm():
    module = lowered("residual_layernorm", MODES["preserve"])
    assert len(stored_tiles(module)) == 2  # combined and centered
    assert loads_per_element(module, "x") == loads_per_element(module, "residual") == 1


def test_expensive_only_recomputes_cheap_arithmetic_of_residual_layernorm():
    module = lowered("residual_layernorm", MODES["expensive-only"])
    assert stored_tiles(module) == set()
    assert loads_per_element(module, "x") == loads_per_element(module, "residual") == 4


def test_lowering_preserves_by_default():
    default, preserve = (
        lowered("residual_layernorm", options).script() for options in (None, MODES["preserve"])
    )
    assert default == preserve.replace('\\"preserve\\"', "null")


def test_both_modes_are_right_numerically():
    entry = CATALOG["residual_layernorm"]
    results = []
    for options in MODES.values():
        arrays = entry.arguments(7, 257, seed=3)
        tx.compile(entry.kernel, *arrays, options=options)(*arrays)
        assert all(comparison.within for comparison in entry.check(arrays))
        results.append(arrays[-1])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_softmax_computes_each_exponential_once(mode):
    module = lowered("softmax", MODES[mode])
    # PRESERVE also keeps the row, which the maximum and the difference read.
    assert len(stored_tiles(module)) == {"preserve": 2, "expensive-only": 1}[mode]
    text = module.script()
    assert text.count("T.exp(") == 1


def test_the_target_chooses_and_the_artifact_records_it():
    entry = CATALOG["residual_layernorm"]
    llvm = tx.compile(entry.kernel, *entry.specs(3, 40))
    metal = tx.compile(entry.kernel, *entry.specs(3, 40), target="metal")
    assert llvm.materialization.value == "expensive-only"
    assert metal.materialization.value == "preserve"
    stated = tx.compile(entry.kernel, *entry.specs(3, 40), options=MODES["preserve"])
    assert stated.materialization.value == "preserve"
