"""What can be tested of the GPU benchmarks without a GPU: bytes, references, verdicts, pictures."""

import json
import math

import numpy as np
import pytest

from tvm_tilex import kernels

torch = pytest.importorskip("torch")
NAMES = ("row_sum", "softmax", "rmsnorm", "layernorm", "residual_layernorm", "cross_entropy")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_useful_bytes_are_the_librarys(script, name, dtype):
    operator = script("row_operators").OPERATORS[name]
    for shape in ((1, 1), (7, 33), (8191, 4095)):
        assert operator.useful_bytes(*shape, dtype) == kernels.catalog()[name].useful_bytes(
            *shape, dtype
        )


def test_every_operator_of_the_script_is_here(script):
    assert set(script("row_operators").OPERATORS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_the_librarys_oracle(script, name):
    operator, entry = script("row_operators").OPERATORS[name], kernels.catalog()[name]
    arguments = entry.arguments(5, 37)
    (oracle,) = entry.expected(arguments)
    wanted = operator.expected([torch.from_numpy(a) for a in arguments])
    np.testing.assert_allclose(wanted.numpy(), oracle, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_the_librarys_in_order(script, name):
    made = script("row_operators").OPERATORS[name].arguments(6, 9, "bfloat16", "cpu")
    specs = kernels.catalog()[name].specs(6, 9, "bfloat16")
    assert [tuple(a.shape) for a in made] == [spec.shape for spec in specs]
    assert [str(a.dtype) for a in made] == [f"torch.{spec.dtype}" for spec in specs]
    assert made[-1].isnan().all()


def test_the_error_of_a_missing_element_is_no_small_number(script):
    error = script("row_operators").relative_error
    wanted = torch.ones(4, dtype=torch.float64)
    assert error(torch.ones(4), wanted) == 0
    assert math.isnan(error(torch.tensor([1.0, 1.0, math.nan, 1.0]), wanted))
    assert math.isnan(error(torch.ones(3), wanted))
    assert error(torch.tensor([1.0, 1.0, 1.0, 2.0]), wanted) == pytest.approx(0.5)


def test_sets_pass_three_caches(script):
    count = script("cuda_measuring").set_count
    megabyte = 2**20
    for size in (1, 16, 64, 500):
        found = count(size * megabyte, 60 * megabyte)
        assert found >= 2 and (found - 1) * size >= 180


REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'softmax_kernel' for 'sm_90a'
ptxas info    : Function properties for softmax_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compiling entry function 'wide_kernel' for 'sm_90a'
ptxas info    : Function properties for wide_kernel
    992 bytes stack frame, 1436 bytes spill stores, 1500 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""


def test_a_report_of_ptxas(script):
    narrow, wide = script("cuda_measuring").ptxas_report(REPORT)
    assert narrow == {
        "entry": "softmax_kernel",
        "arch": "sm_90a",
        "stack_bytes": 0,
        "spill_bytes": 0,
        "registers": 40,
        "shared_bytes": 128,
    }
    assert (wide["registers"], wide["spill_bytes"], wide["shared_bytes"]) == (255, 2936, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "either a file to write or --draw"),
        (["a.json", "--draw", __file__], "either a file to write or --draw"),
        (["a.json", "--operators", "argmax"], "invalid choice"),
        (["a.json", "--dtypes", "float8"], "invalid choice"),
        (["a.json", "--implementations", "cudnn"], "invalid choice"),
        (["a.json", "--shapes", "4096"], "write positive extents"),
        (["a.json", "--shapes", "0x7"], "write positive extents"),
        (["a.json", "--repeats", "0"], "positive"),
    ],
)
def test_bad_usage_ends_with_status_two(script, capsys, arguments, text):
    with pytest.raises(SystemExit) as ended:
        script("peers").options(arguments)
    assert ended.value.code == 2 and text in capsys.readouterr().err


def test_the_default_is_the_whole_matrix(script):
    given = script("peers").options(["a.json"])
    assert (len(given.operators), given.dtypes) == (6, ["float32", "bfloat16"])
    assert len(given.shapes) == 8 and (8191, 4095) in given.shapes


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_written(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["peers.py", str(tmp_path / "out.json")])
    assert script("peers").main() == 1
    assert "no CUDA GPU" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.fixture
def cell(script, monkeypatch):
    """Measure one made-up implementation of row_sum on the processor; times are invented."""
    peers, operator = script("peers"), script("row_operators").OPERATORS["row_sum"]
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timed = []

    def stopwatch(run, sets, repeats):
        timed.append(len(sets))
        return {"us": 5.0, "us_least": 4.0, "us_most": 6.0, "graph": True}

    monkeypatch.setattr(script("cuda_measuring"), "timed", stopwatch)
    sets = [operator.arguments(4, 8, "float32", "cpu") for _ in range(3)]

    def measure(make):
        timed.clear()
        expected = operator.expected(sets[0])
        return peers.measure_cell(make, "row_sum", (4, 8), "float32", sets, expected, 3), timed

    return measure


def test_a_right_implementation_is_timed(script, cell):
    run = script("peer_implementations").Run
    row, timed = cell(lambda *_: run(lambda x: (x.sum(-1), None)))  # the first of a tuple
    assert row["status"] == "measured" and row["us"] == 5.0 and timed == [3]
    row, timed = cell(lambda *_: run(lambda x, out: out.copy_(x.sum(-1)), in_place=True))
    assert row["status"] == "measured" and timed == [3]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, out: None,  # writes nothing: the output is still NaN
        lambda x, out: out.copy_(x.sum(-1) * 1.001),
        lambda x, out: out[1:].copy_(x.sum(-1)[1:]),
    ],
)
def test_a_wrong_implementation_is_recorded_and_not_timed(script, cell, function):
    run = script("peer_implementations").Run
    row, timed = cell(lambda *_: run(function, in_place=True))
    assert row["status"] == "wrong" and "us" not in row and not timed
    json.dumps(row, allow_nan=False)


def test_a_failing_implementation_is_recorded(script, cell):
    def fail(*_):
        raise ValueError("no\nsuch width")

    row, timed = cell(fail)
    assert row == {"status": "failed", "detail": "ValueError: no such width"} and not timed
    assert cell(lambda *_: None)[0] is None


def test_an_implementation_that_does_not_import_is_absent(script, monkeypatch):
    implementations = script("peer_implementations")
    monkeypatch.setitem(implementations.IMPLEMENTATIONS, "quack", lambda: 1 / 0)
    implementations.load.cache_clear()
    found, absent = script("peers").factories(["torch", "quack"], None)
    assert list(found) == ["torch"] and absent == {"quack": "ZeroDivisionError: division by zero"}


def test_exported_kernels_are_found_by_cell(script, tmp_path):
    row = {"operator": "softmax", "shape": [8, 16], "requested": [0, 0, 0], "refused": "too wide"}
    other = {**row, "compiler": "dlight", "refused": "no schedule"}
    path = tmp_path / "artifacts.json"
    path.write_text(json.dumps({"dtype": "bfloat16", "rows": [row, other]}))
    rows = script("peers").read_artifacts([path])
    for compiler, reason in (("tilex", "too wide"), ("dlight", "no schedule")):
        make = script("peer_implementations").artifact_factory(compiler, rows)
        with pytest.raises(RuntimeError, match=reason):
            make("softmax", 8, 16, "bfloat16")
        assert make("softmax", 8, 16, "float32") is None


def record(device="NVIDIA H200"):
    """A run of two operators and two sizes, with one cell lost, one wrong and one failed."""
    rows = []
    fractions = {"tilex": (0.95, 0.90), "torch": (0.7, 0.93), "dlight": (0.3, None)}
    for operator in ("softmax", "row_sum"):
        for i, shape in enumerate(([8192, 4096], [512, 131072])):
            for name, given in fractions.items():
                row = {
                    "operator": operator,
                    "shape": shape,
                    "dtype": "float32",
                    "implementation": name,
                    "useful_bytes": 8 * shape[0] * shape[1],
                    "same_size_copy_GBps": 4100.0,
                }
                if given[i] is None:
                    rows.append({**row, "status": "wrong", "error_norm": None})
                    continue
                measured = {"us": 60.0, "graph": True, "fraction": given[i]}
                rows.append({**row, "status": "measured", **measured, "GBps": 4200 * given[i]})
    conditions = {"device": device, "torch": "2.11.0"}
    return {
        "schema": 1,
        "conditions": conditions,
        "copy_GBps": 4200.0,
        "copy_GBps_at_end": 4190.0,
        "rows": rows,
    }


def test_cells_that_are_behind_and_wrong_peers_are_named(script):
    lines = list(script("peers").report(record()))
    assert lines[0] == "copy 4200 GB/s, at the end 4190 GB/s"
    assert "wrong: dlight softmax 512x131072 float32: error None" in lines
    assert "behind: softmax 512x131072 float32: tilex 0.900, torch 0.930" in lines
    assert not any("8192x4096" in line for line in lines)


def test_a_cell_without_ours_is_behind(script):
    lost = record()
    lost["rows"] = [r for r in lost["rows"] if r["implementation"] != "tilex"]
    assert len(script("peers").behind(lost)) == 4


def test_our_other_launches_are_measured_beside_and_no_peer(script):
    peers, run = script("peers"), record()
    fast = [{**row, "implementation": "tilex-ordinary"} for row in run["rows"][:1]]
    fast[0]["fraction"] = 2.0
    before = peers.behind(run)
    run["rows"] += fast
    assert peers.behind(run) == before
    assert set(peers.OURS) < set(peers.options(["a.json"]).implementations)
    assert set(peers.OURS) < set(script("peer_implementations").IMPLEMENTATIONS)


def test_the_export_holds_ordinary_launches_beside_the_others(script):
    export = script("export_cuda_artifacts")
    entry = kernels.catalog()["softmax"]
    plain = export._row(entry, (64, 256), "float32", export.AUTOMATIC)
    other = export._row(entry, (64, 256), "float32", export.AUTOMATIC, dependent_launch=False)
    apart = {"dependent", "score", "candidates"}  # each launch has its policy
    same = [{k: v for k, v in row["plan"].items() if k not in apart} for row in (plain, other)]
    assert same[0] == same[1] and plain["source"] != other["source"]
    launches = [row["launches"][0]["dependent"] for row in (plain, other)]
    assert launches == [True, False]
    rows = [{**row, "dtype": "float32"} for row in (plain, {**other, "compiler": "tilex-ordinary"})]
    make = script("peer_implementations").artifact_factory("tilex-ordinary", rows)
    assert make("row_sum", 64, 256, "float32") is None


def test_a_line_a_cell(script):
    line = script("peers").cell_line(record()["rows"], "row_sum", (512, 131072), "float32")
    assert line.split() == [
        "row_sum", "512x131072", "float32", "tilex", "0.900", "torch", "0.930", "dlight", "WRONG",
    ]  # fmt: skip


def test_a_recorded_run_is_drawn(script, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    paths = []
    for i in range(2):
        paths.append(tmp_path / f"run{i}.json")
        paths[-1].write_text(json.dumps(record()))
    picture = tmp_path / "roofline.png"
    command = ["peers.py", "--draw", *map(str, paths), "--picture", str(picture)]
    monkeypatch.setattr("sys.argv", command)
    assert script("peers").main() == 0
    image = script("matplotlib.image").imread(picture)
    assert image.shape[0] > 500 and image.shape[1] > 500 and image.std() > 0.05


@pytest.mark.parametrize(
    "change",
    [lambda r: r.update(schema=2), lambda r: r.update(rows=[]), lambda r: r.pop("schema")],
)
def test_what_is_no_record_is_not_drawn(script, tmp_path, change):
    pytest.importorskip("matplotlib")
    broken = record()
    change(broken)
    with pytest.raises(ValueError, match=r"not a record|nothing was measured"):
        script("roofline").draw([broken], tmp_path / "picture.png")


def test_dlights_kernels_are_exported(script):
    row = script("dlight_kernels").exported("rmsnorm", 64, 1024, "bfloat16")
    (launch,) = row["launches"]
    assert row["parameters"][:2] == ("x", "weight")
    assert set(launch["buffers"]) == set(row["parameters"])
    assert f"void __launch_bounds__({launch['group'][0]}) {launch['entry']}(" in row["source"]
