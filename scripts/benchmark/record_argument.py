"""The recorded file that a command on a GPU machine takes; such a machine need not have click."""

import argparse
from pathlib import Path

__all__ = ["record_file"]


def record_file(text):
    """The path of a file that is there; otherwise argparse ends the command with status 2."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} does not exist")
    return text
