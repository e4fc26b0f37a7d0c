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
