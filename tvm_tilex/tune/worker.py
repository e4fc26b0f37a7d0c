"""The process that candidates run in: reads jobs from standard input, answers on a pipe of its own.

Started by :mod:`tvm_tilex.tune.process` as ``python -m tvm_tilex.tune.worker DESCRIPTOR``. What a
kernel prints goes to standard error, so that it cannot be taken for an answer.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import warnings
from typing import Any

from tvm_tilex.tune.frames import read_frame, write_frame
from tvm_tilex.tune.untouched import initialized_cuda

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answer jobs until standard input ends.

    Where a process may be copied after TVM was loaded, jobs run in a copy. A candidate that takes
    its process with it then costs a copy, not another start of TVM, and so does a fresh process.
    The process that is copied asks for no device, ever: what a job asks, it asks in its copy. Where
    something that was loaded has asked already, jobs run in this process, one start for each loss.
    """
    _end_with_parent()
    answers = int(sys.argv[1])
    os.dup2(2, 1)
    jobs = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    warnings.filterwarnings("ignore", message="no Apple GPU here")
    importlib.import_module("tvm_tilex.tune.evaluate")
    # Apple's frameworks do not survive a copy, and nor does CUDA.
    if sys.platform != "linux" or initialized_cuda():
        _serve(jobs, answers)
        os._exit(0)  # a thread may wait in TVM for a server that does not answer
    while True:
        copy = os.fork()
        if copy == 0:
            os.setpgid(0, 0)
            _end_with_parent()
            _serve(jobs, answers)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        if code == 0:
            return
        write_frame(answers, {"status": "exited", "code": code})


def _serve(jobs: int, answers: int) -> None:
    from tvm_tilex.tune.evaluate import evaluate
    from tvm_tilex.tune.job import Job

    write_frame(answers, {"status": "ready", "process": os.getpid()})
    while (job := read_frame(jobs)) is not None:
        answer: dict[str, Any] = evaluate(Job.from_dict(job))
        write_frame(answers, answer)


def _end_with_parent() -> None:
    """A parent that is killed takes a hanging candidate with it, where the system can do that."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died in between
        os._exit(1)


if __name__ == "__main__":
    main()
