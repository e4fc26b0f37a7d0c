"""One exported library of several kernels, dynamic rows and width classes, with its manifest."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError
from tvm_tilex.runtime.library import MANIFEST, manifest_of

# A process with tvm_ffi and TVM's runtime: lists the library, then runs entries on files.
SCRIPT = """
import json, sys
import numpy as np
import tvm_ffi

library, plan = sys.argv[1:]
runtime = tvm_ffi.libinfo.load_lib_ctypes("apache-tvm", "tvm_runtime", "RTLD_LOCAL")
module = tvm_ffi.load_module(library)

words = np.zeros(module["tilex_manifest_words"](), np.int64)
module["tilex_manifest"](tvm_ffi.from_dlpack(words))
manifest = json.loads(words.tobytes().rstrip(b"\\0"))
print(json.dumps(manifest))

for entry, files in json.loads(plan):
    arrays = [np.load(file) for file in files]
    module[entry](*map(tvm_ffi.from_dlpack, arrays))
    np.save(files[-1], arrays[-1])

compiler = {"tvm", "tvm_tilex"} & set(sys.modules)
assert not compiler, f"the process imported {compiler}"
with open("/proc/self/maps" if sys.platform == "linux" else "/dev/null") as maps:
    assert "libtvm_compiler" not in maps.read()
"""


@pytest.fixture(scope="module")
def entries():
    """Artifacts by entry name: dynamic rows, dynamic widths, and a fixed shape."""
    rows, width = tx.dynamic("P"), tx.dynamic("N", max=300)

    def compiled(name, *shape, dtype="float32"):
        entry = kernels.catalog()[name]
        return tx.compile(entry.kernel, *entry.specs(*shape, dtype))

    return {
        "softmax": compiled("softmax", rows, width),
        "softmax_4096": compiled("softmax", rows, 4096),
        "cross_entropy": compiled("cross_entropy", rows, width),
        "layernorm_half": compiled("layernorm", rows, 127, dtype="float16"),
        "row_max_3x40": compiled("row_max", 3, 40),
    }


@pytest.fixture(scope="module")
def library(entries, tmp_path_factory):
    return tx.export_library(tmp_path_factory.mktemp("library") / "kernels.so", entries)


# Entry, kernel, dtype, and shapes that one exported library runs.
RUNS = [
    ("softmax", "softmax", "float32", [(1, 1), (7, 33), (255, 300)]),
    ("softmax_4096", "softmax", "float32", [(1, 4096), (9, 4096)]),
    ("cross_entropy", "cross_entropy", "float32", [(1, 300), (40, 77)]),
    ("layernorm_half", "layernorm", "float16", [(2, 127), (64, 127)]),
    ("row_max_3x40", "row_max", "float32", [(3, 40)]),
]


def saved(folder, run, shape):
    """The run's arguments and their files."""
    name, kernel, dtype, _ = run
    entry = kernels.catalog()[kernel]
    arguments = entry.arguments(*shape, dtype)
    folder = folder / f"{name}_{shape[0]}x{shape[1]}"
    folder.mkdir()
    files = [folder / f"{parameter}.npy" for parameter in entry.parameters]
    for file, array in zip(files, arguments, strict=True):
        np.save(file, array)
    return entry, arguments, files


def test_a_process_without_the_compiler_lists_and_runs_every_entry(entries, library, tmp_path):
    runs = [(run[0], *saved(tmp_path, run, shape)) for run in RUNS for shape in run[3]]
    plan = json.dumps([(name, list(map(str, files))) for name, _, _, files in runs])
    words = [sys.executable, "-c", SCRIPT, str(library), plan]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == manifest_of(entries)
    for _, entry, arguments, files in runs:
        arguments[-1][...] = np.load(files[-1])
        assert all(comparison.within for comparison in entry.check(arguments))


def test_the_runner_lists_the_entries(runner, library):
    ran = runner.run(library, "--list")
    assert ran.returncode == 0 and ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "softmax(input: in float32[P, N], output: out float32[P, N]) P: 0..2147483647, N: 1..300",
        "softmax_4096(input: in float32[P, 4096], output: out float32[P, 4096]) P: 0..2147483647",
        "cross_entropy(logits: in float32[P, N], labels: in int64[P], losses: out float32[P]) "
        "P: 0..2147483647, N: 1..300",
        "layernorm_half(x: in float16[P, 127], weight: in float16[127], bias: in float16[127], "
        "out: out float16[P, 127]) P: 0..2147483647",
        "row_max_3x40(x: in float32[3, 40], out: out float32[3])",
    ]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0])
def test_the_runner_runs_entries_at_any_number_of_rows(runner, library, tmp_path, run):
    for shape in run[3]:
        entry, arguments, files = saved(tmp_path, run, shape)
        inputs = [word for file in files[:-1] for word in ("--input", file)]
        output = ("--output-like", files[-1], "--write", files[-1])
        ran = runner.run(library, run[0], *inputs, *output)
        assert ran.returncode == 0, ran.stderr
        arguments[-1][...] = np.load(files[-1])
        assert all(comparison.within for comparison in entry.check(arguments))


def test_the_runner_runs_no_rows_and_refuses_other_extents(runner, library, tmp_path):
    for rows, columns in ((0, 40), (2, 301)):
        np.save(tmp_path / f"{rows}.npy", np.zeros((rows, columns), np.float32))
    none = runner.run(
        library, "softmax", "--input", "0.npy", "--output", "float32:0x40", cwd=tmp_path
    )
    assert none.returncode == 0, none.stderr
    wide = runner.run(
        library, "softmax", "--input", "2.npy", "--output", "float32:2x301", cwd=tmp_path
    )
    assert wide.returncode == 2
    assert re.search(r"the extent N is outside 1\.\.300", wide.stderr)
    uneven = runner.run(
        library, "softmax", "--input", "0.npy", "--output", "float32:2x40", cwd=tmp_path
    )
    assert uneven.returncode == 2 and "shape" in uneven.stderr


def test_the_runner_refuses_to_list_what_has_no_manifest(runner, entries, tmp_path):
    alone = entries["row_max_3x40"].export_library(tmp_path / "alone.so")
    ran = runner.run(alone, "--list")
    assert ran.returncode == 2 and "has no manifest" in ran.stderr
    for words in (("--list",), (alone, "row_max", "--list"), (alone, "--list", "--input", "x")):
        assert runner.run(*words).returncode == 2


def test_what_makes_no_library_is_refused(entries, tmp_path):
    path = tmp_path / "none.so"
    softmax = entries["softmax"]
    metal = tx.compile(kernels.softmax, ("P", 8), ("P", 8), target="metal")
    for artifacts, message in (
        ([], "no artifact"),
        ([softmax, softmax], "two entries are named 'softmax'"),
        ({"soft max": softmax}, "no name of an entry"),
        ({MANIFEST: softmax}, "no name of an entry"),
        ({"a": softmax, "b": metal}, "'b' is for another target than 'a'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tx.export_library(path, artifacts)
    assert not path.exists()


def test_a_manifest_says_what_each_class_does(entries):
    width = tx.dynamic("N", max=600)
    artifact = tx.compile(kernels.softmax, ("P", width), ("P", width), target="metal")
    (entry,) = manifest_of({"softmax": artifact})["entries"]
    assert entry["dimensions"] == {"P": [0, 2**31 - 1], "N": [1, 600]}
    spans = [variant["ranges"]["N"] for variant in entry["variants"]]
    assert spans == [[1, 256], [257, 512], [513, 600]]
    assert all(variant["plan"].startswith("S=") for variant in entry["variants"])
    packed = tx.compile(
        kernels.softmax,
        ("P", 4096),
        ("P", 4096),
        target="metal",
        options=tx.CompileOptions(threads_per_group=256, reduction_lane_elements=4),
    )
    (entry,) = manifest_of({"softmax": packed})["entries"]
    assert [argument["alignment"] for argument in entry["arguments"]] == [16, 16]


@pytest.mark.parametrize("target", ["metal", "cuda"])
def test_a_library_for_a_gpu_is_written(tmp_path, target):
    artifacts = [
        tx.compile(kernels.softmax, ("P", 64), ("P", 64), target=target),
        tx.compile(kernels.row_sum, ("P", 64), ("P",), target=target),
    ]
    path = tx.export_library(tmp_path / "kernels.so", artifacts)
    content = path.read_bytes()
    assert b"softmax_kernel" in content and b"row_sum_kernel" in content
    assert b"tilex_manifest" in content
