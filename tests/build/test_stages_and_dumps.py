"""Every stage can be seen, and a broken pass is named."""

import re
from pathlib import Path

import pytest

import tvm_tilex as tx
from tvm_tilex.build import pipeline
from tvm_tilex.errors import VerifyError
from tvm_tilex.ir.parse import parse_program
from tvm_tilex.tirx.compat import prim_func_pass, structural_map, tirx

ENTRY = tx.kernels.catalog()["softmax"]
SPECS = ENTRY.specs(3, 96)
SUFFIX = {"llvm": "s", "metal": "metal", "cuda": "cu"}


@pytest.mark.parametrize("target", SUFFIX)
def test_the_artifact_keeps_each_stage(target):
    artifact = tx.compile(ENTRY.kernel, *SPECS, target=target)
    assert artifact.name == "softmax" and artifact.kind == target
    assert artifact.tile_ir == ENTRY.kernel.capture(SPECS)
    assert str(artifact.tirx["softmax"].attrs["tilex.stage"]) == "reference"
    assert str(artifact.scheduled["softmax"].attrs["tilex.stage"]) == "scheduled"
    assert "softmax" in artifact.source
    assert (artifact.device is None) is (target == "llvm")
    if target != "llvm":
        assert artifact.device.source == artifact.source


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("target", SUFFIX)
def test_the_option_writes_numbered_files(tmp_path, target):
    artifact = tx.compile(ENTRY.kernel, *SPECS, target=target, dump=tmp_path / "stages")
    found = names(tmp_path / "stages")
    assert [int(name[:2]) for name in found] == list(range(len(found)))
    assert found[0] == "00_tile_ir.txt" and found[1].endswith("reference.py")
    assert found[-1].endswith(f"_source.{SUFFIX[target]}")
    first, last = (tmp_path / "stages" / found[place] for place in (0, -1))
    assert parse_program(first.read_text()) == artifact.tile_ir
    assert last.read_text().rstrip("\n") == artifact.source.rstrip("\n")
    ours = {"llvm": "tilex.VectorizeReductions", "metal": "tilex.MapSubgroups"}.get(target)
    assert any("tirx.SplitHostDevice" in name or "MakePackedAPI" in name for name in found)
    assert ours is None or any(ours in name for name in found)


def test_the_environment_variable_does_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEX_DUMP", str(tmp_path))
    tx.compile(ENTRY.kernel, *SPECS)
    found = names(tmp_path)
    assert found[0] == "00_tile_ir.txt" and found[-1].endswith("_source.s")


def test_a_second_dump_leaves_no_stale_stage(tmp_path):
    tx.compile(ENTRY.kernel, *SPECS, target="metal", dump=tmp_path)
    before = names(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "99_stale.py").write_text("")
    tx.compile(ENTRY.kernel, *SPECS, target="metal", dump=tmp_path)
    assert names(tmp_path) == sorted([*before, "notes.txt"])


def test_every_stage_of_ours_parses_back(tmp_path):
    import tvm

    tx.compile(ENTRY.kernel, *SPECS, dump=tmp_path)
    texts = [p.read_text() for p in tmp_path.glob("*.py") if re.search(r"reference|tilex", p.name)]
    assert len(texts) >= 3
    for text in texts:
        tvm.script.from_source(text)


# The verifier between passes.


def broken(change, name):
    @prim_func_pass(opt_level=0, name=name)
    class Broken:
        def transform_function(self, func, mod, ctx):
            return change(func)

    return Broken()


def drop_marker_value(func):
    def strip(loop):
        if "tilex.reduction" not in (loop.annotations or {}):
            return loop
        kept = {k: v for k, v in loop.annotations.items() if k != "tilex.value"}
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, None, kept)

    return func.with_body(structural_map(func.body, (tirx.For, strip), order="post"))


DEFECTS = {
    "malformed reduction marker": drop_marker_value,
    "unknown stage": lambda func: func.with_attr("tilex.stage", "halfway"),
    "not a marked parallel loop": lambda func: func.with_body(
        tirx.Evaluate(tirx.IntImm("int32", 0))
    ),
    "not well formed": lambda func: func.with_body(
        tirx.For(
            tirx.Var("p", "int32"), tirx.IntImm("int32", 0), tirx.IntImm("int32", 3),
            tirx.ForKind.PARALLEL, tirx.Evaluate(tirx.Var("nowhere", "int32")), None,
            {"tilex.parallel": 0},
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_pass_is_named(monkeypatch, defect):
    stock = pipeline.planning
    injected = broken(DEFECTS[defect], "test.BrokenPass")
    monkeypatch.setattr(
        "tvm_tilex.build.schedule.planning",
        lambda *given, **named: [injected, *stock(*given, **named)],
    )
    monkeypatch.setenv("TILEX_VERIFY", "1")
    with pytest.raises(VerifyError, match=rf"after pass test\.BrokenPass: softmax: .*{defect}"):
        tx.compile(ENTRY.kernel, *ENTRY.specs(3, 97 + len(defect)))


def test_the_suite_verifies_and_the_default_does_not(monkeypatch):
    from tvm_tilex import settings

    assert settings.current().verify
    monkeypatch.delenv("TILEX_VERIFY")
    assert not settings.current().verify
