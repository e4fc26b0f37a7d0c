"""A worker process with a time limit: whatever a candidate does to it becomes an outcome.

The process is kept between candidates, since starting one takes seconds, and is replaced when it
dies, is killed for silence, or a fresh one is asked for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from tvm_tilex.tune.errors import TuningError
from tvm_tilex.tune.frames import Silence, read_frame, write_frame
from tvm_tilex.tune.job import Job
from tvm_tilex.tune.untouched import WITHOUT_QUESTIONS

__all__ = ["Worker"]

# Importing TVM on a busy machine; a job's own limit begins after it.
_START_SECONDS = 180.0
# Beyond a job's limit: a server ends the session of a remote candidate first, and says so.
_GRACE_SECONDS = 1.0
_REMOTE_GRACE_SECONDS = 20.0


class Worker:
    """Runs jobs one after another in a process of their own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._log: IO[bytes] | None = None
        self._said = 0  # bytes of the log before the current job
        self._stopped = False
        self._worker = 0  # the process that runs jobs: a copy of the one that was started
        self._used = False

    def run(self, job: Job) -> dict[str, Any]:
        """Run one job and return its outcome; ``crashed`` and ``timeout`` are outcomes too."""
        if job.fresh and self._used:
            self._renew()
        process = self._started()
        assert process.stdin is not None and self._log is not None
        self._said = os.fstat(self._log.fileno()).st_size
        self._used = True
        grace = _GRACE_SECONDS if job.endpoint.kind == "local" else _REMOTE_GRACE_SECONDS
        try:
            write_frame(process.stdin.fileno(), job.to_dict())
            answer = read_frame(self._answers, job.limit + grace)
        except Silence:
            self.close()  # it may die amid an answer: nothing of its pipe is to be trusted
            return {"status": "timeout", "reason": f"no answer within {job.limit:g} s"}
        except (OSError, ValueError):  # it was gone before the job, or amid its answer
            answer = None
        if answer is None:
            reason = self._cause(self._code())
            self.close()
            return {"status": "crashed", "reason": reason}
        if answer["status"] == "exited":
            reason = self._cause(answer["code"])
            self._await_ready()
            return {"status": "crashed", "reason": reason}
        return answer

    def stop(self) -> None:
        """Kill the process from another thread; :meth:`run` then ends, and starts no other."""
        self._stopped = True
        process = self._process
        if process is not None:
            _kill(process.pid)

    def close(self) -> None:
        """End the process with everything that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill(self._worker)
        _kill(process.pid)
        process.wait()
        assert process.stdin is not None and self._log is not None
        process.stdin.close()
        os.close(self._answers)
        self._log.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._said = 0
        self._answers, theirs = os.pipe()
        self._log = tempfile.TemporaryFile(prefix="tilex-worker-")  # noqa: SIM115
        package = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tvm_tilex.tune.worker", str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            pass_fds=(theirs,),
            env={**os.environ, **WITHOUT_QUESTIONS, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C reaches the tuner alone, which then decides
        )
        os.close(theirs)
        self._worker, self._used = 0, False
        if self._stopped:
            _kill(self._process.pid)
        self._await_ready()
        assert self._process is not None
        return self._process

    def _renew(self) -> None:
        """Replace the process by one that has compiled nothing."""
        process = self._process
        if process is None or process.poll() is not None or self._worker == process.pid:
            self.close()
            return
        _kill(self._worker)  # idle, so that it dies outside an answer
        try:
            answer = read_frame(self._answers, _START_SECONDS)
        except Silence:
            answer = None
        if answer is None or answer["status"] != "exited":
            self.close()
            return
        self._await_ready()

    def _await_ready(self) -> None:
        try:
            ready = read_frame(self._answers, _START_SECONDS)
        except (Silence, OSError):
            ready = None
        if ready is None:
            raise TuningError(f"the worker process did not start: {self._cause(self._code())}")
        self._worker, self._used = ready["process"], False

    def _code(self) -> int | None:
        """Exit code of the process, and its end."""
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        return process.returncode

    def _cause(self, code: int | None) -> str:
        """How the process ended, and the last thing that it said."""
        assert self._log is not None
        if code is None:
            cause = "it answers no more"
        elif code < 0:
            cause = signal.Signals(-code).name
        else:
            cause = f"exit code {code}"
        size = os.fstat(self._log.fileno()).st_size - self._said
        text = os.pread(self._log.fileno(), min(size, 1 << 20), self._said)
        # What follows the banner is TVM's own backtrace.
        said = text.decode(errors="replace").partition("!!!!")[0].strip().splitlines()
        return f"{cause}: {said[-1][:200]}" if said else cause


def _kill(group: int) -> None:
    if group > 0:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
