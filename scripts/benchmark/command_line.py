"""What the benchmarks' commands take: recorded files, and names from a known list."""

import click

__all__ = ["RECORD", "Names"]

RECORD = click.Path(exists=True, dir_okay=False)


class Names(click.ParamType):
    """Names of ``known`` with commas between them, as a list."""

    name = "names"

    def __init__(self, known):
        self.known = tuple(known)

    def convert(self, value, param, context):
        """The names; an unknown one ends the command with status 2."""
        found = value.split(",") if isinstance(value, str) else value
        unknown = [name for name in found if name not in self.known]
        if unknown:
            self.fail(f"{', '.join(unknown)}: use some of {', '.join(self.known)}", param, context)
        return found
