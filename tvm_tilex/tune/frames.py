"""JSON messages on pipes: four bytes of length, then the text."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

__all__ = ["Silence", "read_frame", "write_frame"]

_LENGTH = struct.Struct("<I")


class Silence(Exception):
    """No complete message within the time limit."""


def write_frame(descriptor: int, message: dict[str, Any]) -> None:
    """Write one message whole."""
    body = json.dumps(message).encode()
    left = memoryview(_LENGTH.pack(len(body)) + body)
    while left:
        left = left[os.write(descriptor, left) :]


def read_frame(descriptor: int, limit: float | None = None) -> dict[str, Any] | None:
    """Read one message; None at the end of the stream.

    Raises
    ------
    Silence
        If it is not complete after ``limit`` seconds.
    """
    deadline = None if limit is None else time.monotonic() + limit
    head = _read(descriptor, _LENGTH.size, deadline)
    if head is None:
        return None
    body = _read(descriptor, _LENGTH.unpack(head)[0], deadline)
    if body is None:
        return None
    found: dict[str, Any] = json.loads(body)
    return found


def _read(descriptor: int, size: int, deadline: float | None) -> bytes | None:
    parts = b""
    while len(parts) < size:
        if deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                raise Silence
        part = os.read(descriptor, min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return parts
