"""Where a candidate is measured: this machine, an RPC server, or a server that a tracker lends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_tilex.errors import OptionError

__all__ = ["LOCAL", "Endpoint", "parse_address"]


@dataclass(frozen=True)
class Endpoint:
    """One place to measure. ``kind`` is ``local``, ``server`` or ``tracker``.

    ``key`` is the key of the server, or the one under which a tracker lends servers. ``number``
    tells several loans of one tracker apart.
    """

    kind: str = "local"
    host: str = ""
    port: int = 0
    key: str = ""
    number: int = 0

    @property
    def name(self) -> str:
        """Text that names the place in reports."""
        if self.kind == "local":
            return "local"
        lent = f"#{self.number}" if self.kind == "tracker" else ""
        return f"{self.kind} {self.host}:{self.port}{lent}"

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Endpoint:
        """An endpoint from JSON values."""
        return cls(**found)


LOCAL = Endpoint()


def parse_address(text: str) -> tuple[str, int]:
    """``host:port``.

    Raises
    ------
    OptionError
        If it is not of that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise OptionError(f"address {text!r}: write it as host:port")
    return host, int(port)
