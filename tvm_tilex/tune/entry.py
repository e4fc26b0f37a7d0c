"""One stored winner: the key that it is for, the choices that won, and a digest of the whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune.errors import DatabaseError
from tvm_tilex.tune.record import METRICS
from tvm_tilex.tune.space import Dimension, Space

__all__ = ["Entry", "Key"]


@dataclass(frozen=True)
class Key:
    """What a winner is for; all of it must be equal for the winner to be used.

    ``tile_ir`` is the canonical text of the program, ``options`` the options that were asked for,
    ``target`` TVM's description, ``versions`` of the packages that emit code.
    """

    tile_ir: str
    options: str
    target: str
    device: str
    versions: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the key's canonical JSON."""
        return _digest(dataclasses.asdict(self))


@dataclass(frozen=True)
class Entry:
    """A stored winner. ``value`` is its fresh measurement by ``metric`` in ``unit``."""

    key: Key
    choices: Mapping[str, Any]
    metric: str
    value: float
    unit: str
    created: str

    def options(self) -> CompileOptions:
        """The options asked for with the choices that won.

        Raises
        ------
        OptionError
            If a choice is no tunable option or outside its domain.
        """
        base = CompileOptions.from_json(self.key.options)
        Space(base, tuple(Dimension(name, (value,)) for name, value in self.choices.items()))
        return dataclasses.replace(base, **self.choices)

    def to_json(self) -> str:
        """The entry with its digest."""
        body = dataclasses.asdict(self)
        return json.dumps({"body": body, "digest": _digest(body)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Entry:
        """An entry from :meth:`to_json`'s text.

        Raises
        ------
        DatabaseError
            If it is none, its digest is not of its text, or its options are not legal values.
        """
        try:
            found = json.loads(text)
            body = found["body"]
            entry = cls(**{**body, "key": Key(**body["key"])})
        except (ValueError, KeyError, TypeError) as error:
            raise DatabaseError(f"not an entry ({error!r})") from None
        if _digest(body) != found.get("digest"):
            raise DatabaseError("its digest is not that of its text")
        if entry.metric not in METRICS:
            raise DatabaseError(f"no such metric: {entry.metric!r}")
        try:
            entry.options()
        except Exception as error:  # whatever a foreign value may do to the options
            raise DatabaseError(f"its options are not usable: {error}") from None
        return entry


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
