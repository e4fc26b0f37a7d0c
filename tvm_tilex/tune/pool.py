"""Endpoints working in parallel: one thread with one worker process for each.

A job that ends with the loss of its device is given to another one, and how often that happened is
part of its outcome; it never yields two outcomes. A device that cannot be reached leaves the pool.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm_tilex.tune.endpoint import Endpoint
from tvm_tilex.tune.errors import TuningError
from tvm_tilex.tune.job import Job
from tvm_tilex.tune.process import Worker

__all__ = ["Lost", "Pool", "Task"]

# A candidate that took this many sessions with it is taken to have ended them itself.
_MAX_ATTEMPTS = 2


@dataclass
class Task:
    """A job under the caller's ``tag``, with the devices that it was lost with.

    ``only`` binds it to one endpoint.
    """

    tag: Any
    job: Job
    attempts: list[dict[str, str]] = field(default_factory=list)
    only: Endpoint | None = None


@dataclass(frozen=True)
class Lost:
    """An endpoint that left the pool, and why."""

    endpoint: Endpoint
    reason: str


class Pool:
    """Runs tasks on every endpoint; outcomes arrive in the order in which they end."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.alive: list[Endpoint] = list(endpoints)
        self.lost: list[Lost] = []
        self._inboxes: dict[Endpoint, queue.Queue[Task | None]] = {
            endpoint: queue.Queue() for endpoint in endpoints
        }
        self._outbox: queue.Queue[tuple[Endpoint, Task, dict[str, Any]]] = queue.Queue()
        self._busy: dict[Endpoint, Task] = {}
        self._waiting: list[Task] = []
        self._workers = {endpoint: Worker() for endpoint in endpoints}
        self._threads = [
            threading.Thread(target=self._serve, args=(endpoint,), daemon=True)
            for endpoint in endpoints
        ]
        for thread in self._threads:
            thread.start()

    @property
    def free(self) -> int:
        """How many more tasks would begin at once."""
        return len(self.alive) - len(self._busy) - len(self._waiting)

    @property
    def pending(self) -> int:
        """Tasks without an outcome yet."""
        return len(self._busy) + len(self._waiting)

    def submit(self, task: Task) -> None:
        """Run ``task`` as soon as an endpoint is free."""
        self._waiting.append(task)
        self._dispatch()

    def next(self) -> tuple[Task, dict[str, Any]]:
        """The next outcome; Ctrl-C is taken while waiting.

        Raises
        ------
        TuningError
            If no device is left.
        """
        while True:
            endpoint, task, outcome = self._receive()
            del self._busy[endpoint]
            if outcome["status"] == "pool-error":
                raise TuningError(outcome["reason"])
            if outcome["status"] != "device-lost":
                self._dispatch()
                return task, outcome
            ended = self._lose(endpoint, task, outcome)
            if ended is not None:
                self._dispatch()
                return task, ended
            self._dispatch()

    def close(self) -> None:
        """End every worker process, whatever it does."""
        for inbox in self._inboxes.values():
            inbox.put(None)
        for worker in self._workers.values():
            worker.stop()
        for thread in self._threads:
            thread.join(10)

    def _receive(self) -> tuple[Endpoint, Task, dict[str, Any]]:
        while True:
            try:
                return self._outbox.get(timeout=0.2)
            except queue.Empty:
                continue

    def _lose(
        self, endpoint: Endpoint, task: Task, outcome: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Note a loss and keep the task; an outcome if the task itself is to blame."""
        device = outcome.get("device") or endpoint.name
        if outcome["began"]:
            task.attempts.append({"device": device, "reason": outcome["reason"]})
            if len(task.attempts) >= _MAX_ATTEMPTS:
                names = ", ".join(attempt["device"] for attempt in task.attempts)
                reason = f"ended the session of {names}"
                return {"status": "crashed", "reason": reason, "device": device}
        else:
            self.alive.remove(endpoint)
            self.lost.append(Lost(endpoint, outcome["reason"]))
            if task.only == endpoint:
                task.only = None
        self._waiting.insert(0, task)
        if not self.alive:
            raise TuningError(f"no device is left: {outcome['reason']}")
        return None

    def _dispatch(self) -> None:
        for task in list(self._waiting):
            for endpoint in self.alive:
                if endpoint in self._busy or task.only not in (None, endpoint):
                    continue
                self._waiting.remove(task)
                self._busy[endpoint] = task
                self._inboxes[endpoint].put(task)
                break

    def _serve(self, endpoint: Endpoint) -> None:
        worker = self._workers[endpoint]
        while (task := self._inboxes[endpoint].get()) is not None:
            try:
                outcome = worker.run(replace(task.job, endpoint=endpoint))
            except Exception as error:
                outcome = {"status": "pool-error", "reason": str(error)}
            self._outbox.put((endpoint, task, outcome))
        worker.close()
