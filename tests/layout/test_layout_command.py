"""``tilex layout``: output, exit codes, and one line per error."""

import pytest
from click.testing import CliRunner

from tvm_tilex.tools.layout_command import layout


def run(*arguments):
    return CliRunner().invoke(layout, list(arguments))


def test_prints_map_values_and_facts():
    result = run("(4,(2,2)):(2,(1,8))")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "mixed_radix({i0: 4, i1: 4} -> {index: 16}, (4,(2,2)):(2,(1,8)))"
    rows = [line.split() for line in lines[1:18]]
    assert rows[0] == ["i0", "i1", "index"] and rows[4] == ["0", "3", "9"] and rows[16][2] == "15"
    for fact in ("totality", "bounds", "injectivity", "surjectivity"):
        (line,) = [text for text in lines if text.startswith(f"{fact}: ")]
        assert line.startswith(f"{fact}: PROVEN (") and line.endswith(")")


def test_other_verdicts_and_budget():
    assert "injectivity: DISPROVEN (" in run("(4,2):(1,1)").stdout
    hard = "index_expr({i: 5, j: 7} -> {x: 120}, [i * i * 7 + j])"
    assert "injectivity: UNKNOWN (" in run(hard, "--budget", "0").stdout
    assert "injectivity: PROVEN (exhaustive" in run(hard).stdout


def test_long_tables_are_cut_and_partial_maps_shown():
    shown = run("(100,100):(100,1)", "--rows", "3").stdout
    assert "... 9997 more points" in shown
    partial = run("index_expr({i: 3} -> {x: 9}, [8 // i])").stdout
    assert "division by zero" in partial and "totality: DISPROVEN" in partial


@pytest.mark.parametrize("text", ["(4,2):(1", "8:1 +", "(4,(2,2)):(2,1)", "compose(4:1, 8:1)", ""])
def test_malformed_is_exit_two_and_one_line(text):
    result = run(text)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


def test_a_composition_is_shown_in_its_strongest_form():
    shown = run("(4,8):(8,1)", "--compose", "(8,4):(4,1)", "--rows", "0").stdout
    assert shown.startswith("mixed_radix({i0: 8, i1: 4} -> {index: 32}, (8,4):(1,8))")
    mixed = run("S<3,0,3> o (8,8):(8,1)", "--compose", "S[(8,8):(8,1)]", "--rows", "0").stdout
    assert mixed.startswith("transform(xor_swizzle(3, 0, 3), mixed_radix(")


def test_the_inverse_of_a_padded_layout_is_on_its_image():
    result = run("(4,8):(9,1)", "--inverse", "--rows", "9")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("inverse: PROVEN") and "| index % 9 < 8}" in lines[1]
    assert [line.split() for line in lines[3:12]][8] == ["9", "1", "0"]  # 8 is not in the image


def test_a_long_table_is_cut():
    shown = run("index_expr({i: 2000} -> {x: 2003}, [i * i * i % 2003])", "--inverse").stdout
    assert "inverse: PROVEN (exhaustive over 2000 points)" in shown
    assert max(map(len, shown.splitlines())) < 2100


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("8:1", "--svg", "missing/x.svg"), 1, "'missing/x.svg' is not written: No such file"),
        (("8:1", "--access-bytes", "4"), 2, "--access-bytes needs --bank-conflicts"),
        (("8:1", "--along", "i0"), 2, "--along needs --bank-conflicts"),
        (("mma_m16n8k16_f16_f32.D2",), 2, "no instruction atom's operand"),
        (("MMA.a",), 2, "no instruction atom's operand"),
    ],
)
def test_refusals_name_the_option_or_the_path(arguments, code, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == code and message in result.stderr
    assert "Traceback" not in result.output and list(tmp_path.iterdir()) == []
