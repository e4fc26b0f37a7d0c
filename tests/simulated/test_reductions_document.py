"""The page on reductions says what is so: its blocks run, and its table is the admission's."""

import re
from pathlib import Path

from tvm_tilex.analysis.admission import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "reductions.md"


def test_the_blocks_run(tmp_path, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "reductions.py"  # a file, so that kernels can be read back
    script.write_text("\n".join(blocks))
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "reductions"})
    assert "numerical permission: every reduction is ordered (fold_left)" in capsys.readouterr().out


def test_the_table_has_every_row_of_the_admission_in_order():
    table = re.findall(r"^\| ([a-zA-Z ]+?) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert table[0] == "Row" and table[1:] == list(ROWS)
