"""One process at a time writes a report: a lock on its folder that ends with the process.

The folder itself is locked (``flock``), so that a killed run leaves nothing that would have to be
removed before it can be resumed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tvm_tilex.tune.errors import ReportError

__all__ = ["owned"]


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Keep other runs out of an existing folder.

    Raises
    ------
    ReportError
        If another run is writing there, or the folder cannot be opened.
    """
    try:
        import fcntl
    except ImportError:  # no POSIX system
        yield
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ReportError(f"{folder}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReportError(f"{folder}: another run is writing its report here") from None
        except OSError:
            pass  # a file system without locks, as some network ones are
        yield
    finally:
        os.close(descriptor)
