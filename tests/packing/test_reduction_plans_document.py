"""The page on plans says what is so: its blocks run, in order, in one process."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reduction-plans.md"


def test_the_blocks_run(capsys, tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 14
    # A file, so that the language's capture can read its source.
    script = tmp_path / "plans.py"
    script.write_text("\n".join(blocks))
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "plans"})
    printed = capsys.readouterr().out
    assert "threads_per_group=160 is not 32*S*Q" in printed
    assert "the target says thread_warp_size 16, not 32" in printed
