"""The code in README.md and docs/ runs, and prints what the documents show.

Blocks of one file share a namespace and run in order. A ``text`` block with the title "Output"
right after a ``python`` or ``sh`` block is what that block prints, where ``...`` stands for
anything: within a line, or for any number of lines. Of shell blocks only those with an output are
run, and only ``tilex`` commands. A Python block whose title is a file's name is also written there.
``python no-run`` is only shown.
"""

import difflib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```[ \t]*$", re.M | re.S)
OUTPUT = re.compile(r"\s*^```text title=\"Output\"\n(.*?)^```[ \t]*$", re.M | re.S)
FILE_TITLE = re.compile(r'title="([\w.]+\.py)"')


def pieces_of(path):
    """The blocks that are meant to run, with the output that the document shows, if any."""
    text = path.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, info, body = match.groups()
        output = OUTPUT.match(text, match.end())
        runs = language == "python" and "no-run" not in info
        if not runs and not (language == "sh" and output):
            continue
        title = FILE_TITLE.search(info)
        found.append(
            {
                "language": language,
                "line": text[: match.start(3)].count("\n"),
                "body": body,
                "file": title.group(1) if title else None,
                "output": output.group(1) if output else None,
            }
        )
    return found


def python_of(pieces):
    """One file that has every Python block on the lines of the document."""
    lines = []
    for piece in pieces:
        if piece["language"] == "python":
            lines += [""] * (piece["line"] - len(lines)) + piece["body"].splitlines()
    return "\n".join(lines) + "\n"


def matches(shown, printed):
    """Whether ``printed`` is what is shown; ``...`` is anything."""
    pattern = ""
    for line in shown.rstrip().splitlines():
        line = line.rstrip()
        pattern += (
            r"(?:.*\n)*?"
            if line == "..."
            else re.escape(line).replace(r"\.\.\.", ".*") + r"[ \t]*\n"
        )
    return re.fullmatch(pattern, printed.rstrip() + "\n") is not None


DOCUMENTS = {path: pieces for path in FILES if path.is_file() and (pieces := pieces_of(path))}


def run_documents(documents, folder):
    """Run documents, lists of pieces by name, in one process of their own."""
    wanted = [
        {"name": name, "pieces": pieces, "python": python_of(pieces)}
        for name, pieces in documents.items()
    ]
    (folder / "pieces.json").write_text(json.dumps(wanted), encoding="utf-8")
    runner = Path(__file__).with_name("document_runner.py")
    command = [sys.executable, str(runner), "pieces.json", "results.json"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    # A name that hides no module: a document may be called torch.
    named = {f"{path.stem} document": pieces for path, pieces in DOCUMENTS.items()}
    return run_documents(named, tmp_path_factory.mktemp("documents"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_code_blocks_run(path, results):
    found = results[f"{path.stem} document"]
    assert found["failure"] is None, found["failure"]
    for piece, printed in zip(DOCUMENTS[path], found["outputs"], strict=True):
        if piece["output"] is None or matches(piece["output"], printed):
            continue
        shown = piece["output"].splitlines(), printed.splitlines()
        difference = "\n".join(difflib.unified_diff(*shown, "shown", "printed", lineterm=""))
        pytest.fail(f"{path.name}:{piece['line'] + 1}: the block prints otherwise\n{difference}")


def test_there_is_code_to_run():
    assert len(DOCUMENTS) >= 3


def test_shown_outputs_are_compared():
    shown = "a\n...\nS=... groups\n"
    assert matches(shown, "a\nS=10 groups\n") and matches(shown, "a\nb\nc\nS=1 groups\n")
    for wrong in ("", "a\n", "a\nb\n", "b\nS=1 groups\n", "a\nS=1 groups\nmore\n"):
        assert not matches(shown, wrong)


BROKEN = """
```python title="helper.py"
value = 3
```

```python
import inspect, pathlib
def seen(): return value
print(pathlib.Path("helper.py").read_text() + inspect.getsource(seen), end="")
```

```text title="Output"
value = 3
def seen(): return value
```

```sh
pip install something
```

```python no-run
raise AssertionError
```

```sh
ls
```

```text title="Output"
anything
```
"""


def test_a_document_that_breaks_is_reported_at_its_piece(tmp_path):
    (tmp_path / "page.md").write_text(BROKEN, encoding="utf-8")
    pieces = pieces_of(tmp_path / "page.md")
    assert [piece["language"] for piece in pieces] == ["python", "python", "sh"]
    found = run_documents({"page": pieces, "other": pieces[1:2]}, tmp_path)
    assert matches(pieces[1]["output"], found["page"]["outputs"][1])
    assert len(found["page"]["outputs"]) == 2
    assert "only tilex commands are run in a document" in found["page"]["failure"]
    assert "FileNotFoundError" in found["other"]["failure"]  # folders are not shared


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_block_hides_from_the_runner(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"^[ \t]+```(python|sh)", text, re.M), "an indented block is not run"
    shown = len(re.findall(r"^```text title=\"Output\"", text, re.M))
    assert shown == sum(piece["output"] is not None for piece in pieces_of(path))
