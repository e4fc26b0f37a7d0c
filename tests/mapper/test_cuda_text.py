"""What CUDA text looks like where a target has an instruction for it, and early loads."""

import numpy as np
import pytest
from tvm import tirx

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.analysis.structure import Domain, ReductionLoop
from tvm_tilex.transform.early_loads import early_loads

VIEW = tx.TensorView


def source(name, shape, dtype="float32", target="cuda"):
    entry = kernels.catalog()[name]
    return tx.compile(entry.kernel, *entry.specs(*shape, dtype), target=target).source


def kernel_of(text):
    return text[text.rindex("__global__") :]


def test_extrema_are_one_instruction():
    text = source("minmax", (64, 4096))
    assert 'asm("max.NaN.f32' in text and 'asm("min.NaN.f32' in text
    assert "tilex_maximum(" in kernel_of(text) and "?" not in kernel_of(text).replace("condval", "")


def test_a_collective_extremum_is_one_integer_reduction():
    text = source("minmax", (64, 4096))
    assert "__reduce_max_sync(0xFFFFFFFFu" in text and "__reduce_min_sync(0xFFFFFFFFu" in text
    assert "__shfl_xor_sync" not in kernel_of(text)


def test_an_older_device_takes_the_butterfly():
    older = {"kind": "cuda", "arch": "sm_75", "max_num_threads": 1024, "thread_warp_size": 32}
    text = source("row_max", (64, 4096), target=older)
    assert "__reduce_max_sync" not in text
    assert kernel_of(text).count("__shfl_xor_sync") % 5 == 0


def float_of(key):
    return np.array([key ^ ((key >> 31) & 0x7FFFFFFF)], "int32").view("float32")[0]


def key_of(value, nan):
    """The integer that stands for a float: what the emitted device function computes."""
    bits = nan if np.isnan(value) else int(np.array([value], "float32").view("int32")[0])
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def test_the_integers_are_ordered_as_the_floats():
    tiny = np.finfo("float32").smallest_subnormal
    values = [-np.inf, -3.0, -tiny, -0.0, 0.0, tiny, 2.0, np.inf]
    keys = [key_of(value, 0x7FFFFFFF) for value in values]
    assert keys == sorted(set(keys)) and [float_of(key) for key in keys] == values
    assert key_of(np.nan, 0x7FFFFFFF) > max(keys) and key_of(np.nan, -1) < min(keys)
    assert np.isnan(float_of(key_of(np.nan, 0x7FFFFFFF))) and np.isnan(float_of(key_of(np.nan, -1)))
    text = source("minmax", (64, 4096))
    assert "0x7FFFFFFFu" in text and "0xFFFFFFFFu" in text and "(key >> 31) & 0x7FFFFFFF" in text


def test_bfloat16_rounds_in_one_conversion():
    text = source("softmax", (64, 4096), "bfloat16")
    assert 'asm("cvt.rn.bf16.f32' in text
    assert "tilex_round_bfloat16(" in kernel_of(text) and "32767" not in kernel_of(text)


def test_the_gather_of_a_loss_starts_before_its_reductions():
    text = kernel_of(source("cross_entropy", (64, 4096)))
    assert text.index("labels_ptr[") < text.index("__shfl_xor_sync")
    assert "labels_ptr[" not in text[text.index("__shfl_xor_sync") :]
    assert text.count("early0_ptr[0] =") == 1


def test_metal_keeps_the_source_order():
    text = source("cross_entropy", (64, 4096), target="metal")
    assert "early0" not in text


@tx.tile_kernel
def adds_old(x: VIEW[tx.float32, 2], total: VIEW[tx.float32, 1, tx.InOut]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    one = tx.axis("one", 1)
    for nest in tx.parallel(tx.shape(rows)):
        row = x[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        old = total[tx.coord(nest.index()), tx.shape(one)]
        total(tx.coord(nest.index()), tx.shape(one)).store(old + tx.reduce(row, columns, tx.add))


def test_what_the_function_writes_is_not_read_early():
    text = tx.compile(adds_old, (64, 4096), (64,), target="cuda").source
    assert "early0" not in text


def reduction():
    return ReductionLoop.__new__(ReductionLoop)


@pytest.mark.parametrize("count", [1, 8])
def test_only_results_of_one_element_load_early(count):
    x, out = (tirx.decl_buffer((8,), "float32", name) for name in ("x", "out"))
    e = tirx.Var("e", "int32")
    loop = tirx.For(
        e,
        tirx.IntImm("int32", 0),
        tirx.IntImm("int32", count),
        tirx.ForKind.SERIAL,
        tirx.Evaluate(tirx.IntImm("int32", 0)),
    )
    domain = Domain((loop,), tirx.BufferStore(out, x[e], [e]), None)
    found = early_loads((reduction(), domain), frozenset({out}))
    assert (found is not None) == (count == 1)
    assert early_loads((domain, reduction()), frozenset({out})) is None
    assert early_loads((reduction(), domain), frozenset({out, x})) is None
