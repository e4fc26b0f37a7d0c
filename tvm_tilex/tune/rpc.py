"""Validation and measurement on another machine: compiled here, sent over, timed there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tvm
from numpy.typing import NDArray

from tvm_tilex.errors import TargetError, TilexError
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.runtime.remote import RemoteSession, connect_server, connect_through_tracker
from tvm_tilex.tune.job import Job, Timing
from tvm_tilex.tune.record import Measurement
from tvm_tilex.tune.untouched import WITHOUT_QUESTIONS
from tvm_tilex.tune.wall import from_samples

__all__ = ["DeviceLost", "RemoteLaunch", "RemoteTimeout"]

Value = TypeVar("Value")

# TVM's server runs each session in a copy of itself (see untouched.py).
_COPIED = (
    "CUDA was initialized in the server, whose sessions are copies of it; "
    f"start it with {' '.join(f'{k}={v}' for k, v in WITHOUT_QUESTIONS.items())}"
)


class DeviceLost(Exception):
    """A device that could not be reached, or whose session ended; says nothing of the candidate.

    ``began`` tells whether the candidate had been sent there.
    """

    def __init__(self, device: str, reason: str, *, began: bool) -> None:
        super().__init__(reason)
        self.device = device
        self.began = began


class RemoteTimeout(Exception):
    """The server ended the session because its time was over."""


class RemoteLaunch:
    """An artifact on a server, with arguments in that device's memory."""

    def __init__(self, artifact: Artifact, arrays: Sequence[NDArray[Any]], job: Job) -> None:
        opened = _open(job)
        self._session: Any = opened.session
        self._module: Any = None
        self._tensors: Any = None
        self._kind = artifact.kind
        self._name = artifact.name
        self.device = f"{artifact.kind} at {opened.address}"
        self._remote(lambda: self._send(artifact, arrays))

    def run(self) -> list[NDArray[Any]]:
        """Launch once and return every argument as a NumPy array."""
        return self._remote(self._run)

    def measure(self, timing: Timing) -> tuple[tuple[Measurement, ...], dict[str, str]]:
        """The one scope that TVM's timer has for this kind of device."""
        return self._remote(lambda: self._measure(timing))

    def close(self) -> None:
        """End the session."""
        self._session = self._module = self._tensors = None

    def _send(self, artifact: Artifact, arrays: Sequence[NDArray[Any]]) -> None:
        self._target = self._session.device("cpu" if self._kind == "llvm" else self._kind, 0)
        # A machine of another kind links on its own.
        suffix = "tar" if _foreign(artifact) else "so"
        with tempfile.TemporaryDirectory(prefix="tilex-rpc-") as folder:
            library = Path(folder, f"{self._name}.{suffix}")
            artifact.export_library(library)
            self._session.upload(str(library))
            self._module = self._session.load_module(library.name)
        self._tensors = [tvm.runtime.tensor(np.array(a), device=self._target) for a in arrays]

    def _run(self) -> list[NDArray[Any]]:
        self._module[self._name](*self._tensors)
        self._target.sync()
        return [tensor.numpy() for tensor in self._tensors]

    def _measure(self, timing: Timing) -> tuple[tuple[Measurement, ...], dict[str, str]]:
        evaluate = self._module.time_evaluator(
            self._name,
            self._target,
            number=1,
            repeat=timing.samples,
            min_repeat_ms=max(1, round(timing.sample_ms)),
        )
        samples = [float(seconds) for seconds in evaluate(*self._tensors).results]
        if self._kind == "cuda":
            how = "TVM's timer on the server: CUDA events around back-to-back launches"
            skipped = {"end_to_end": "a call from here would time the network"}
            return (from_samples("gpu", "seconds", samples, 1, how),), skipped
        how = "TVM's timer on the server: its wall clock around back-to-back calls"
        skipped = {"gpu": "TVM's timer has no GPU timestamps of this kind of device"}
        return (from_samples("end_to_end", "seconds", samples, 1, how),), skipped

    def _remote(self, act: Callable[[], Value]) -> Value:
        """Do something there; tell a session that ended from a candidate that failed."""
        try:
            return act()
        except TilexError:
            raise
        except Exception as error:
            if "cudaErrorInitializationError" in str(error):
                raise TargetError(f"{self.device}: {_COPIED}") from None
            if _answers(self._session):
                raise
            text = str(error).strip().splitlines() or [type(error).__name__]
            if "RPCSessionTimeoutError" in str(error):
                raise RemoteTimeout(f"{self.device}: {text[-1]}") from None
            raise DeviceLost(self.device, f"the session ended: {text[-1]}", began=True) from None


def _open(job: Job) -> RemoteSession:
    place = job.endpoint
    connect = connect_through_tracker if place.kind == "tracker" else connect_server
    try:
        # The server ends a session whose candidate hangs, also when nobody listens any more.
        return connect(place.host, place.port, place.key, timeout=job.limit)
    except TargetError as error:
        raise DeviceLost(place.name, str(error), began=False) from None


def _answers(session: Any) -> bool:
    """Whether a session still takes calls."""
    try:
        session.get_function("tvm.rpc.server.workpath")("")
    except Exception:
        return False
    return True


def _foreign(artifact: Artifact) -> bool:
    """Whether the target states a machine, instead of taking this one."""
    return bool((artifact.target.host or artifact.target).attrs.get("mtriple", ""))
