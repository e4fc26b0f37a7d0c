"""JSON lines between the parent and one worker process a peer; the worker side is stdlib only.

A request is ``{"op": name, ...}``; the answer ``{"value": ...}`` or ``{"refused": "Type: why"}``.
A worker that dies (a C++ assertion, SIGFPE) is started again by :class:`Peer`, and the request
that killed it gets the verdict ``crashed(signal)``. Nothing is retried.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def serve(handlers):
    """Answer requests on stdin until it closes; prints of the peer go to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": handlers[request.pop("op")](**request)}
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = " ".join(str(error).split())
            answer = {"refused": f"{type(error).__name__}: {text[-160:]}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def timed(build, evaluate, size, forms, repeats):
    """Return the least CPU seconds to build every layout, and to evaluate every point of each."""
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        layouts = [build(form) for form in forms]
        middle = time.process_time()
        for layout in layouts:
            for index in range(size(layout)):
                evaluate(layout, index)
        spent.append((middle - began, time.process_time() - middle))
    return [min(seconds) for seconds in zip(*spent, strict=True)]


class Peer:
    """One worker, restarted after a crash.

    Parameters
    ----------
    name
        Name in the tables; the worker script is ``worker_<script>.py``.
    python
        The interpreter of the peer's own environment.
    """

    def __init__(self, name, python, script=None, timeout=60):
        self.name, self.python, self.timeout = name, str(python), timeout
        self.script = HERE / f"worker_{script or name}.py"
        self.process = None
        self.restarts = 0

    def _start(self):
        self.process = subprocess.Popen(
            [self.python, str(self.script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        )

    def ask(self, op, **arguments):
        """Return ``("value", v)``, ``("refused", why)`` or ``("crashed", signal name)``."""
        if self.process is None:
            self._start()
        try:
            self.process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], self.timeout)
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if line:
            ((kind, value),) = json.loads(line).items()
            return kind, value
        return "crashed", self._bury()

    def _bury(self):
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process = None
        self.restarts += 1
        return signal.Signals(-code).name if code < 0 else f"exit {code}"

    def close(self):
        """End the worker by closing its input."""
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            self.process = None


def tuples(value):
    """Return JSON lists as tuples."""
    return tuple(tuples(v) for v in value) if isinstance(value, list) else value


def lists(value):
    """Return tuples as JSON lists."""
    return [lists(v) for v in value] if isinstance(value, (tuple, list)) else value
