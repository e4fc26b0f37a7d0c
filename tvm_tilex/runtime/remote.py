"""Sessions on other machines through TVM's RPC servers and trackers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tvm_tilex.errors import TargetError
from tvm_tilex.tirx.compat import request_server

__all__ = ["RemoteSession", "connect_server", "connect_through_tracker", "servers_of"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class RemoteSession:
    """An open session and the address of the server that holds it."""

    address: str
    session: Any


def connect_server(
    host: str, port: int, key: str = "", *, limit: float = 15.0, timeout: float = 0
) -> RemoteSession:
    """Open a session; the server ends it after ``timeout`` seconds (0: never).

    Raises
    ------
    TargetError
        If there is no server, it refuses the key, or does not answer within ``limit`` seconds (a
        server holds one session at a time, and may have died with one).
    """
    from tvm import rpc

    address = f"{host}:{port}"
    session = _within(limit, f"RPC server {address}", lambda: rpc.connect(host, port, key, timeout))
    return RemoteSession(address, session)


def connect_through_tracker(
    host: str, port: int, key: str, *, limit: float = 15.0, timeout: float = 0
) -> RemoteSession:
    """Open a session on whichever server of ``key`` the tracker lends.

    Raises
    ------
    TargetError
        As :func:`connect_server`, and if no server becomes free within ``limit``.
    """
    where = f"RPC tracker {host}:{port}"
    url, server_port, session_key = _within(limit, where, lambda: request_server(host, port, key))
    return connect_server(url, server_port, session_key, limit=limit, timeout=timeout)


def servers_of(host: str, port: int, key: str, *, limit: float = 15.0) -> tuple[str, ...]:
    """Addresses of the servers that a tracker knows under ``key``."""
    from tvm import rpc

    def ask() -> Any:
        tracker = rpc.connect_tracker(host, port)
        try:
            return tracker.summary()
        finally:
            tracker.close()

    known = _within(limit, f"RPC tracker {host}:{port}", ask)["server_info"]
    return tuple(":".join(map(str, s["addr"])) for s in known if s["key"] == f"server:{key}")


def _within(limit: float, where: str, ask: Callable[[], Value]) -> Value:
    """The answer, or an error after ``limit``: TVM's own calls wait without a bound."""
    answers: list[Value] = []
    errors: list[Exception] = []

    def call() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(limit)
    if errors:
        last = str(errors[0]).strip().splitlines() or [type(errors[0]).__name__]
        raise TargetError(f"{where}: {last[-1]}") from None
    if not answers:
        raise TargetError(f"{where}: no answer within {limit:g} s")
    return answers[0]
