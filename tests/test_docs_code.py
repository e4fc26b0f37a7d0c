"""The Python code in README.md and docs/ runs; blocks of one file share their names."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.M | re.S)

# Runs each file in a namespace of its own and reports failures: a fresh process, since a document
# may register what can be registered only once.
RUNNER = """
import json, pathlib, sys, traceback
failed = {}
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    try:
        code = compile(path.read_text(encoding="utf-8"), name, "exec")
        exec(code, {"__name__": path.stem, "__file__": name})
    except BaseException:
        failed[path.stem] = traceback.format_exc()
pathlib.Path("failed.json").write_text(json.dumps(failed))
"""


def code_of(path):
    """The blocks that are meant to run, each on the lines that it has in the document."""
    text = path.read_text(encoding="utf-8")
    kept = [""] * len(text.splitlines())
    for match in BLOCK.finditer(text):
        if "no-run" in match.group(1):
            continue
        first, body = text[: match.start(2)].count("\n"), match.group(2).splitlines()
        kept[first : first + len(body)] = body
    return "\n".join(kept) + "\n"


DOCUMENTS = [path for path in FILES if path.is_file() and code_of(path).strip()]


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    code = folder / "code"  # not where modules are looked for: a document may be called torch
    code.mkdir()
    scripts = []
    for path in DOCUMENTS:
        # A real file, since a kernel's source is read from it.
        scripts.append(code / f"{path.stem}.py")
        scripts[-1].write_text(code_of(path), encoding="utf-8")
    command = [sys.executable, "-c", RUNNER, *map(str, scripts)]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return json.loads((folder / "failed.json").read_text())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_code_blocks_run(path, failures):
    assert path.stem not in failures, failures[path.stem]


def test_there_is_code_to_run():
    assert len(DOCUMENTS) >= 3
