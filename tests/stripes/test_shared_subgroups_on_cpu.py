"""Rows that share a SIMD group: the CUDA text, and its results on the processor."""

import itertools
import re

import cuda_on_cpu
import numpy as np
import pytest
from stripe_runs import compiled, kernel_of, launched

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.build.screening import screen
from tvm_tilex.build.target import resolve_target
from tvm_tilex.errors import MappingError, OptionError

on_cpu = pytest.mark.skipif(not cuda_on_cpu.available(), reason="no g++")
LIBRARY = ("row_sum", "softmax", "rmsnorm", "layernorm", "residual_layernorm", "cross_entropy")
MORE = ("log_softmax", "minmax", "logsumexp", "row_min")


def sharing(programs, packed=0, elements=0, **more):
    """The options of R programs a SIMD group, Q a threadgroup, V elements a worker."""
    return {
        "reduction_programs_per_subgroup": programs,
        "reduction_programs_per_group": packed,
        "reduction_lane_elements": elements,
        "max_reduction_striped_scalars_per_worker": 255,
        **more,
    }


# Rows, columns, Q / R and V: full and ragged threadgroups, whole and partial packs.
PLACES = (
    (3, 256, 1, 0),
    (5, 255, 2, 1),
    (1, 7, 1, 1),
    (7, 1, 2, 8),
    (8, 256, 2, 4),
    (5, 257, 1, 2),
    (16, 128, 4, 8),
)
CASES = [
    (name, dtype, programs, *PLACES[number % len(PLACES)])
    for number, (name, (dtype, programs)) in enumerate(
        itertools.product((*LIBRARY, *MORE), itertools.product(("float32", "bfloat16"), (2, 4)))
    )
]


@on_cpu
@pytest.mark.parametrize(
    ("name", "dtype", "programs", "rows", "columns", "groups", "elements"), CASES
)
def test_against_fp64(name, dtype, programs, rows, columns, groups, elements, tmp_path):
    options = sharing(programs, programs * groups, elements)
    launched(name, rows, columns, dtype, tmp_path, **options)
    plan = compiled(name, rows, columns, dtype, **options).plan
    assert plan.programs_per_subgroup == programs and plan.workers == 32 // programs
    assert plan.threads == 32 * groups and plan.replays == (rows % (programs * groups) != 0)


@on_cpu
@pytest.mark.parametrize("columns", [7, 256])
@pytest.mark.parametrize("name", LIBRARY)
def test_a_ragged_launch_has_the_bits_of_a_full_one(name, columns, tmp_path):
    """And stores nothing past its rows."""
    entry, options = kernels.catalog()[name], sharing(4, 8, 1)
    dynamic = compiled(name, tx.dynamic("P"), columns, "bfloat16", **options)
    arguments = entry.arguments(8, columns, "bfloat16")
    counted = [a.shape[:1] == (8,) for a in arguments]
    found = []
    for rows in (8, 5):
        given = [a.copy() for a in arguments]
        for position in entry.outputs:
            given[position][...] = -77
        views = [a[:rows] if has else a for a, has in zip(given, counted, strict=True)]
        folder = tmp_path / str(rows)  # a library is loaded once by its path
        folder.mkdir()
        cuda_on_cpu.run(dynamic, views, folder, P=rows)
        found.append([given[position] for position in entry.outputs])
    for full, part in zip(*found, strict=True):
        assert part[:5].tobytes() == full[:5].tobytes() and (full != -77).all()
        assert (part[5:] == -77).all()


@on_cpu
@pytest.mark.parametrize(
    ("name", "columns", "shared"), [("softmax", 64, True), ("softmax", 4096, False)]
)
def test_a_count_that_is_known_at_launch_has_its_own_map(name, columns, shared, tmp_path):
    """As chosen automatically, for fewer programs than share a SIMD group, and for many."""
    entry = kernels.catalog()[name]
    dynamic = compiled(name, tx.dynamic("P"), columns)
    few, many = dynamic.variants
    assert few.plan.shape != many.plan.shape
    assert (many.plan.programs_per_subgroup > 1) == shared
    for rows in (1, 3, 129):
        arguments = list(entry.arguments(rows, columns, "float32"))
        for position in entry.outputs:
            arguments[position][...] = np.nan
        folder = tmp_path / str(rows)
        folder.mkdir()
        cuda_on_cpu.run(dynamic, arguments, folder, P=rows)
        assert all(comparison.within for comparison in entry.check(arguments))


@on_cpu
@pytest.mark.parametrize("programs", [2, 4])
def test_special_values_stay_in_their_row(programs, tmp_path):
    """A neighbour in the SIMD group sees nothing of a row's NaN and infinities."""
    entry = kernels.catalog()["minmax"]
    artifact = compiled("minmax", 6, 33, "float32", **sharing(programs, 4))
    x, *outputs = entry.arguments(6, 33, "float32")
    x[1, 32], x[2, :], x[3, 5], x[4, 0] = np.nan, -np.inf, np.inf, np.nan
    cuda_on_cpu.run(artifact, [x, *outputs], tmp_path)
    for out, wanted in zip(outputs, (x.min(axis=1), x.max(axis=1)), strict=True):
        np.testing.assert_array_equal(out, wanted)


@on_cpu
def test_a_shuffle_that_a_lane_does_not_reach_is_noticed(tmp_path):
    """So that the runs above prove the control around collectives uniform."""
    artifact = compiled("row_sum", 4, 256, "float32", **sharing(2, 2))

    class Divergent:
        device, tile_ir = artifact.device, artifact.tile_ir
        source = re.sub(
            r"^(.* = __shfl_xor_sync)", r"if (threadIdx.x < 16) \1", artifact.source, flags=re.M
        )

    arguments = kernels.catalog()["row_sum"].arguments(4, 256, "float32")
    with pytest.raises(AssertionError, match="wait for others that do not come"):
        cuda_on_cpu.run(Divergent, list(arguments), tmp_path)


# Text


@pytest.mark.parametrize("programs", [1, 2, 4])
@pytest.mark.parametrize("name", ["softmax", "row_max", "layernorm"])
def test_offsets_stay_within_a_row_s_lanes(name, programs):
    text = kernel_of(compiled(name, 64, 256, "bfloat16", "h200", **sharing(programs, 8)))
    offsets = re.findall(r"__shfl_xor_sync\(\(uint\)4294967295, \w+\[0\], (\d+), 32\)", text)
    assert len(offsets) == text.count("__shfl_xor_sync(")
    collectives = {"softmax": 2, "row_max": 1, "layernorm": 2}[name]
    wanted = [str(n) for n in (16, 8, 4, 2, 1) if n < 32 // programs]
    if programs == 1 and name != "layernorm":  # extrema of whole SIMD groups are one instruction
        assert "tilex_warp_maximum(" in text
        assert offsets == wanted * (collectives - 1)
        return
    assert "tilex_warp_" not in text and offsets == wanted * collectives


def test_workers_are_neighbours_of_a_simd_group():
    text = kernel_of(compiled("softmax", 64, 256, "bfloat16", "h200", **sharing(2, 4, 8)))
    assert "((int)threadIdx.x) >> 4" in text and "((int)threadIdx.x) & 15" in text
    assert "uint4" in text and "__shared__" not in text and "__syncthreads" not in text


def test_a_ragged_launch_clamps_its_row_and_guards_only_stores():
    text = kernel_of(compiled("softmax", 37, 256, "float32", "h200", **sharing(2, 4)))
    assert re.search(r"min\(.*36\)", text.replace("\n", " "))
    conditions = re.findall(r"if \((.*)\) \{", text)
    last = text.rindex("__shfl_xor_sync(")
    assert conditions and text.index("if (") > last


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_scheduled_function_prints_and_parses(dtype):
    from tvm_tilex.tirx.compat import tvm

    scheduled = compiled("softmax", 5, 255, dtype, **sharing(4)).scheduled
    assert re.search(r"T\.tilex\.subgroup_add\(.*, 8\)", scheduled.script())
    tvm.ir.assert_structural_equal(tvm.script.from_source(scheduled.script()), scheduled)


# Refusals


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("metal", sharing(2), "reduce whole SIMD groups"),
        ("metal", sharing(4, 4, threads_per_group=32), "reduce whole SIMD groups"),
        ("h200", sharing(2, 2, threads_per_group=256), "none of them has S=8"),
        ("h200", sharing(2, reduction_blocks_per_program=2), "C=2 threadgroups"),
        ("h200", sharing(2, reduction_stripe_storage="shared"), "not kept in shared memory"),
        ("h200", sharing(4, 2), "Q=2 is no multiple of R=4"),
    ],
)
def test_what_cannot_be_realized_is_refused_in_two_lines(target, options, reason):
    with pytest.raises(MappingError, match=reason) as caught:
        compiled("softmax", 64, 256, "float32", target, **options)
    assert len(str(caught.value).splitlines()) <= 2
    entry = kernels.catalog()["softmax"]
    program = entry.kernel.capture(entry.specs(64, 256))
    (found,) = screen(program, resolve_target(target), [tx.CompileOptions(**options)])
    assert str(found.refusal) == str(caught.value)


def test_an_option_outside_its_values():
    for wrong in (3, 8, -1, True):
        with pytest.raises(OptionError, match=r"programs_per_subgroup=.*: must be 0, 1, 2"):
            tx.CompileOptions(reduction_programs_per_subgroup=wrong)
    assert tx.CompileOptions(reduction_programs_per_subgroup=1).explicit_request
    stated = tx.CompileOptions(reduction_programs_per_subgroup=4)
    assert tx.CompileOptions.from_json(stated.to_json()) == stated


def test_one_program_a_simd_group_is_what_metal_does():
    stated = compiled("softmax", 5, 255, "float32", "metal", reduction_programs_per_subgroup=1)
    assert stated.source == compiled("softmax", 5, 255, "float32", "metal").source
