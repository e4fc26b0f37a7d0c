"""Runs the pieces of documents in one process: ``document_runner.py pieces.json results.json``.

A process of its own, since a document may register what can be registered only once. A document is
a list of pieces, Python or shell, that share a namespace and a folder. The Python of a document is
also a real file, with each piece on the lines that it has there: a kernel's source is read from it.
"""

import contextlib
import io
import json
import os
import pathlib
import shlex
import sys
import traceback


def run_document(document, folder):
    """The standard output of each piece; the last one's traceback where it fails."""
    script = folder / f"{document['name']}.code.py"
    script.write_text(document["python"], encoding="utf-8")
    names = {"__name__": document["name"], "__file__": str(script)}
    outputs = []
    for piece in document["pieces"]:
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                run_piece(piece, names, script)
        except BaseException:
            return {"outputs": outputs, "failure": traceback.format_exc()}
        outputs.append(output.getvalue())
    return {"outputs": outputs, "failure": None}


def run_piece(piece, names, script):
    """Execute Python in ``names``, or each line that calls this project's command."""
    if piece["file"]:
        pathlib.Path(piece["file"]).write_text(piece["body"], encoding="utf-8")
    if piece["language"] == "python":
        exec(compile("\n" * piece["line"] + piece["body"], str(script), "exec"), names)
        return
    for line in piece["body"].replace("\\\n", " ").splitlines():
        run_command(shlex.split(line, comments=True))


def run_command(words):
    """Run ``tilex`` here; a document shows refusals too, so its exit code is not judged."""
    from tvm_tilex.tools.cli import main

    if words[:1] != ["tilex"]:
        raise ValueError(f"only tilex commands are run in a document, not {words}")
    with contextlib.redirect_stderr(sys.stdout), contextlib.suppress(SystemExit):
        main(words[1:])


def main(pieces, results):
    """Run every document in a folder of its own."""
    found = {}
    start = pathlib.Path.cwd()
    for document in json.loads(pathlib.Path(pieces).read_text(encoding="utf-8")):
        folder = start / document["name"]
        folder.mkdir()
        os.chdir(folder)
        found[document["name"]] = run_document(document, folder)
    os.chdir(start)
    pathlib.Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
