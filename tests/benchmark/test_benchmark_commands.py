"""What the benchmarks' commands refuse, in one line and with status 2."""

import sys

import pytest
from click.testing import CliRunner

WRONG = {
    ("fit_cuda_cost", "nowhere.json"): "'nowhere.json' does not exist",
    ("fit_cuda_cost", "{file}", "--peers", "nowhere.json"): "'nowhere.json' does not exist",
    ("fit_group_cost", "nowhere.json"): "'nowhere.json' does not exist",
    ("model_regret", "nowhere.json"): "'nowhere.json' does not exist",
    ("search_trials", "nowhere.json"): "'nowhere.json' does not exist",
    ("export_cuda_groups", "out.json", "--kernels", "matmul,nonsense"): "nonsense: use some of",
    ("export_cuda_artifacts", "out.json", "--operators", "nonsense"): "nonsense: use some of",
}


@pytest.mark.parametrize("command", WRONG, ids=" ".join)
def test_a_wrong_name_ends_the_command(command, script, tmp_path):
    file = tmp_path / "record.json"
    file.write_text("{}")
    name, *arguments = command
    given = [argument.format(file=file) for argument in arguments]
    found = CliRunner().invoke(script(name).main, given)
    assert found.exit_code == 2 and WRONG[command] in found.output
    assert "Traceback" not in found.output


@pytest.mark.parametrize(
    "command",
    [
        ("attention_cuda", "nowhere.json", "out.json"),
        ("limits", "nowhere.json", "out.json"),
        ("measure_cuda", "nowhere.json", "out.json"),
        ("measure_cuda_groups", "nowhere.json", "out.json"),
        ("peers", "out.json", "--artifacts", "nowhere.json"),
        ("peers", "--draw", "nowhere.json"),
    ],
    ids=" ".join,
)
def test_a_missing_record_ends_a_command_of_the_gpu_machine(command, script, monkeypatch, capsys):
    pytest.importorskip("torch")
    name, *arguments = command
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as ended:
        script(name).main()
    assert ended.value.code == 2
    assert "'nowhere.json' does not exist" in capsys.readouterr().err
