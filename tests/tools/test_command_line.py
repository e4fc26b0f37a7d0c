"""``tilex`` run, explain and list: what they print, and how they exit."""

import json

import pytest

import tvm_tilex as tx
from tvm_tilex.ir import format_program

CATALOG = tx.kernels.catalog()


@pytest.mark.parametrize("name", CATALOG)
def test_run_every_kernel_of_the_library(tilex, name):
    result = tilex("run", name, "--shape", "3x130", "--no-source")
    assert result.code == 0 and result.err == ""
    outputs = sum(view.access is not tx.In for view in CATALOG[name].kernel.parameters.values())
    assert result.out.count(": right") == outputs


def test_run_shows_the_kernel_and_its_metal_source(tilex):
    result = tilex("run", "softmax", "--shape", "3x40")
    assert result.code == 0
    assert "def softmax(" in result.out
    assert result.out.count("kernel void softmax_kernel") == 1


@pytest.mark.parametrize(
    ("kernel", "shape", "at", "target"),
    [
        ("softmax", "Px40", "7x40", "llvm"),
        ("softmax", "PxN=1..300", "2x33", "metal"),
        ("cross_entropy", "rowsx40", "0x40", "llvm"),
    ],
)
def test_run_of_dynamic_extents(tilex, kernel, shape, at, target):
    words = ("--shape", shape, "--at", at, "--target", target, "--no-source")
    result = tilex("run", kernel, *words)
    assert result.code == 0 and f"{kernel} {at} " in result.out and ": right" in result.out


def test_explain_shows_the_plan_of_every_class(tilex):
    words = ("explain", "softmax", "--shape", "PxN=1..600", "--target", "metal")
    shown = tilex(*words)
    assert shown.code == 0
    for span in ("1..256", "257..512", "513..600"):
        assert f"N in {span}" in shown.out
    classes = json.loads(tilex(*words, "--json").out)["classes"]
    assert [c["ranges"]["N"] for c in classes] == [[1, 256], [257, 512], [513, 600]]
    assert all(c["plan"] for c in classes)
    (one,) = json.loads(tilex("explain", "softmax", "--shape", "Px40", "--json").out)["classes"]
    assert one["ranges"] == {"P": [1, 2**31 - 1]}  # no rows are no launch


def test_run_in_the_simulator_says_so(tilex):
    result = tilex("run", "row_max", "--shape", "3x40", "--target", "metal", "--no-source")
    assert result.code == 0 and "on metal (simulator)" in result.out


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_json_has_the_facts(tilex, dtype):
    result = tilex("run", "rmsnorm", "--shape", "5x64", "--dtype", dtype, "--seed", 7, "--json")
    facts = json.loads(result.out)
    assert (facts["kernel"], facts["shape"], facts["dtype"]) == ("rmsnorm", [5, 64], dtype)
    assert facts["target"] == "llvm" and facts["right"] is True
    assert facts["compile_seconds"] > 0 and facts["seconds_per_call"] > 0
    (output,) = facts["outputs"]
    assert output["right"] and 0 <= output["fraction_of_allowed_error"] <= 1


def test_the_seed_chooses_the_inputs(tilex):
    def error(seed):
        result = tilex("run", "softmax", "--shape", "7x257", "--seed", seed, "--json")
        return json.loads(result.out)["outputs"][0]["max_absolute_error"]

    assert error(1) == error(1) != error(2)


def test_a_wrong_result_is_exit_code_1(tilex, monkeypatch):
    """An oracle that disagrees stands for a kernel that is wrong."""
    stock = CATALOG["row_sum"].oracle
    monkeypatch.setattr(
        "tvm_tilex.kernels.registry.KernelEntry.expected",
        lambda self, arguments: (stock(arguments[0]) * 1.01,),
    )
    result = tilex("run", "row_sum", "--shape", "3x40", "--no-source")
    assert result.code == 1 and "WRONG" in result.out
    machine = tilex("run", "row_sum", "--shape", "3x40", "--json")
    assert machine.code == 1 and json.loads(machine.out)["right"] is False


# Kernels of the user's own.


@pytest.mark.parametrize("target", ["llvm", "metal"])
def test_a_kernel_from_a_file(tilex, file, target):
    result = tilex("run", f"{file}:doubled", "--shape", "3x40", "--target", target, "--no-source")
    assert result.code == 0 and "doubled 3x40 float32" in result.out


def test_one_shape_a_view_where_ranks_differ(tilex, file):
    result = tilex("run", f"{file}:row_of", "--shape", "3x40", "--shape", "40", "--no-source")
    assert result.code == 0
    few = tilex("run", f"{file}:row_of", "--shape", "3x40", "--no-source")
    assert few.code == 2 and "x: rank 2, out: rank 1" in few.err


def test_a_kernel_that_breaks_a_rule_names_the_users_line(tilex, file):
    result = tilex("run", f"{file}:broken", "--shape", "8")
    line = file.read_text().splitlines().index("        if tile > 0:") + 1
    assert result.code == 1 and f"mine.py:{line}" in result.err


# Explain.


@pytest.mark.parametrize("target", ["llvm", "metal", "cuda"])
def test_explain_prints_every_stage_and_the_source_once(tilex, target):
    result = tilex("explain", "softmax", "--shape", "3x96", "--target", target)
    artifact = tx.compile(
        CATALOG["softmax"].kernel, *CATALOG["softmax"].specs(3, 96), target=target
    )
    assert result.code == 0
    assert result.out.count(artifact.source.strip()) == 1
    assert format_program(artifact.tile_ir).rstrip() in result.out
    assert artifact.tirx.script().rstrip() in result.out
    assert artifact.scheduled.script().rstrip() in result.out
    assert "def softmax(" in result.out
    marker = {"llvm": "softmax_compute_:", "metal": "kernel void softmax_kernel("}
    if target in marker:
        assert result.out.count(marker[target]) == 1


def test_explain_tells_candidates_of_a_cluster_apart(tilex):
    result = tilex("explain", "row_sum", "--shape", "2x131072", "--target", "h200")
    table = result.out.partition("== candidates ==\n")[2].partition("\n\n")[0].splitlines()
    assert result.code == 0 and table[0].split() == ["S", "Q", "V", "C", "threads", "score"]
    (marked,) = [line for line in table if line.endswith("<- chosen")]
    plan = tx.compile(
        CATALOG["row_sum"].kernel, *CATALOG["row_sum"].specs(2, 131072), target="h200"
    ).plan
    assert plan.blocks_per_program > 1
    assert tuple(map(int, marked.split()[:4])) == plan.shape[:4]


def test_explain_says_which_shared_tiles_a_processor_keeps_and_why(tilex):
    words = ("explain", "residual_layernorm", "--shape", "3x4096", "--target", "llvm")
    assert "shared tiles: expensive-only (moves 96.0 KiB a program instead of " in tilex(*words).out
    facts = json.loads(tilex(*words, "--json").out)
    assert facts["materialization_reason"].startswith("moves 96.0 KiB")
    assert json.loads(tilex(*words[:-1], "metal", "--json").out)["materialization_reason"] == ""


@pytest.mark.parametrize("target", ["metal", "cuda"])
def test_no_subgroups_leaves_the_reference_map_on_every_gpu(tilex, target):
    words = ("explain", "row_sum", "--shape", "3x40", "--target", target, "--no-subgroups")
    assert "SIMD-group maps are not considered" in tilex(*words).out


def test_explain_as_json(tilex):
    result = tilex("explain", "row_sum", "--shape", "3x40", "--target", "metal", "--json")
    facts = json.loads(result.out)
    assert facts["kernel"] == "row_sum" and facts["requires_precise_math"] is False
    assert tx.CompileOptions.from_json(json.dumps(facts["options"])) == tx.CompileOptions()
    assert {"TileIR", "reference TIRx", "scheduled TIRx", "metal source"} <= set(facts["stages"])


def test_list_names_every_kernel_with_its_arguments(tilex):
    lines = tilex("list").out.splitlines()
    assert len(lines) == len(CATALOG)
    for entry, line in zip(CATALOG.values(), lines, strict=True):
        assert line.startswith(f"{entry.name}({', '.join(entry.parameters)})")
        assert entry.summary in line
    rows = json.loads(tilex("list", "--json").out)
    assert [row["name"] for row in rows] == list(CATALOG)


# Bad usage: one clear line on stderr, and the right exit code.

USAGE = [
    (("run", "softmx", "--shape", "3x4"), "did you mean 'softmax'?"),
    (("run", "zzz", "--shape", "3x4"), "`tilex list` shows them"),
    (("run", "softmax", "--shape", "3y4"), "write extents as 3x4096"),
    (("run", "softmax", "--shape", "-3x4"), "write extents as 3x4096"),
    (("run", "softmax", "--shape", ""), "write extents as 3x4096"),
    (("run", "softmax", "--shape", "3x4x5"), "one --shape of two extents"),
    (("run", "softmax", "--shape", "Px4"), "the extent P is dynamic; give the call's extents"),
    (("run", "softmax", "--shape", "Px4", "--at", "Px4"), "write extents as 3x4096"),
    (("run", "softmax", "--shape", "P4..x4"), "3x4096, Px4096 or PxN=1..300"),
    (("run", "softmax", "--shape", "PxN=9..3"), "--shape PxN=9..3"),
    (("bench", "softmax", "--shape", "Px4"), "the extent P is dynamic; bench times fixed"),
    (("tune", "softmax", "--shape", "Px4"), "write extents as 3x4096"),
    (("run", "softmax", "--shape", "3x4", "--shape", "3x4"), "one --shape of two extents"),
    (("run", "softmax"), "--shape"),
    (("run",), "KERNEL"),
    (("run", "softmax", "--shape", "3x4", "--target", "vulkan"), "apple-m2"),
    (("run", "softmax", "--shape", "3x4", "--dtype", "float64"), "float64"),
    (("run", "softmax", "--shape", "3x4", "--seed", "x"), "seed"),
    (("run", "nowhere.py:kernel", "--shape", "3x4"), "no file nowhere.py"),
    (("explain", "softmx", "--shape", "3x4"), "did you mean 'softmax'?"),
    (("bogus",), "No such command 'bogus'"),
]


@pytest.mark.parametrize(("arguments", "text"), USAGE)
def test_bad_usage_is_exit_code_2(tilex, arguments, text):
    result = tilex(*arguments)
    assert result.code == 2 and result.out == ""
    assert text in result.err and result.err.startswith("tilex: ")
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["missing", "not_a_kernel"])
def test_a_file_without_that_kernel(tilex, file, name):
    result = tilex("run", f"{file}:{name}", "--shape", "3x4")
    assert result.code == 2 and f"has no tile kernel '{name}'" in result.err


REFUSED = [
    (("run", "softmax", "--shape", "PxN=1..8", "--at", "2x9"), "N is 9, the kernel was compiled"),
    (("run", "softmax", "--shape", "PxN", "--at", "2x9"), "max="),
    (("run", "softmax", "--shape", "3x0"), "N >= 1"),
    (("run", "softmax", "--shape", "3x99999999999999999999"), "2**63 bytes"),
    (("run", "softmax", "--shape", "3x40", "--threads-per-group", "48", "--target", "metal"),
     "threads_per_group"),
    (("run", "softmax", "--shape", "3x40", "--dependent-launch", "--target", "metal"),
     "dependent_launch=True: needs CUDA"),
]  # fmt: skip


def test_launches_that_overlap_are_asked_for_and_told(tilex):
    arguments = ("explain", "softmax", "--shape", "8x512", "--target", "cuda")
    told = "launched before the kernel it follows has ended"
    assert told in tilex(*arguments, "--dependent-launch").out and told in tilex(*arguments).out
    assert told not in tilex(*arguments, "--no-dependent-launch").out


@pytest.mark.parametrize(("arguments", "text"), REFUSED)
def test_a_refusal_is_exit_code_1(tilex, arguments, text):
    result = tilex(*arguments)
    assert result.code == 1 and result.out == ""
    assert text in result.err and result.err.startswith("tilex: ")
    assert len(result.err.strip().splitlines()) <= 2 and "click" not in result.err


def test_no_arguments_print_the_help(tilex):
    result = tilex()
    assert result.code == 2 and "Usage: tilex" in result.out + result.err


def test_as_a_program(program):
    """Warnings of TVM or ours don't reach the user; the exit code does."""
    right = program("run", "row_sum", "--shape", "2x40", "--target", "metal", "--no-source")
    assert right.code == 0 and "right" in right.out
    wrong = program("run", "row_summ", "--shape", "2x40")
    assert wrong.code == 2 and len(wrong.err.strip().splitlines()) == 1


# Stripes


def test_explain_tells_where_stripes_stand(tilex):
    words = ("explain", "softmax", "--shape", "64x32000", "--dtype", "bfloat16", "--target", "h200")
    result = tilex(*words)
    table = result.out.partition("== candidates ==\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split() == ["S", "Q", "V", "C", "threads", "stripes", "score"]
    assert {line.split()[5] for line in table[1:]} == {"register", "shared"}
    assert len([line for line in table if line.endswith("<- chosen")]) == 1
    ends = {line.index(word) + len(word) for line in table[1:] for word in line.split()[5:6]}
    assert ends == {table[0].index("stripes") + len("stripes")}  # one column, right-aligned
    asked = tilex(*words, "--stripe-storage", "shared")
    (staged,) = [line for line in asked.out.splitlines() if line.endswith("<- chosen")]
    assert staged.split()[5] == "shared" and "for stripes, " in asked.out
    narrow = tilex("explain", "softmax", "--shape", "64x256", "--target", "h200")
    assert "stripes" not in narrow.out.partition("== candidates ==\n")[2].splitlines()[0]
    wrong = tilex(*words, "--stripe-storage", "texture")
    assert wrong.code == 2 and "'register', 'shared'" in wrong.err


def test_explain_tells_how_many_programs_share_a_simd_group(tilex):
    words = ("explain", "softmax", "--target", "h200", "--shape")
    wide = tilex(*words, "64x4096").out.partition("== candidates ==\n")[2].splitlines()
    assert "R" not in wide[0].split()
    words = (*words, "64x256")
    asked = tilex(*words, "--programs-per-subgroup", "2").out
    table = asked.partition("== candidates ==\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split() == ["S", "Q", "V", "R", "threads", "score"]
    for line in table[1:]:
        s, q, _, r, threads = map(int, line.split()[:5])
        assert (s, r) == (1, 2) and threads == 32 * q // 2
    assert "R=2 programs a SIMD group, " in asked
    wrong = tilex(*words, "--programs-per-subgroup", "3")
    assert wrong.code == 1 and "programs_per_subgroup=3: must be 0, 1, 2 or 4" in wrong.err
