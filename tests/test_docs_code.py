"""The Python code in README.md and docs/ runs; blocks of one file share their names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.M | re.S)


def blocks(path):
    """(first line, text) of each block that is meant to run."""
    text = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if "no-run" not in match.group(1):
            yield text[: match.start(2)].count("\n"), match.group(2)


def documents():
    return [path for path in FILES if path.is_file() and any(blocks(path))]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_code_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TILEX_DUMP", raising=False)
    module = tmp_path / "document.py"
    # One real file, since a kernel's source and annotations are read from it.
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [""] * len(lines)
    for first, text in blocks(path):
        body = text.splitlines()
        kept[first : first + len(body)] = body
    module.write_text("\n".join(kept) + "\n", encoding="utf-8")
    namespace = {"__name__": "document", "__file__": str(module)}
    exec(compile(module.read_text(encoding="utf-8"), str(module), "exec"), namespace)


def test_there_is_code_to_run():
    assert len(documents()) >= 3
