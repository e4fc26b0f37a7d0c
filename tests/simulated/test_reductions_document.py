"""The page on reductions says what is so: its blocks run."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reductions.md"


def test_the_blocks_run(tmp_path, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "reductions.py"  # a file, so that kernels can be read back
    script.write_text("\n".join(blocks))
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "reductions"})
    assert "numerical permission: every reduction is ordered (fold_left)" in capsys.readouterr().out
