"""``tilex``: one group whose commands are loaded when they are run.

Exit codes: 0 right, 1 wrong result or refused, 2 bad usage. Errors are one or two lines on stderr.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

import click

import tvm_tilex
from tvm_tilex.errors import TilexError

__all__ = ["main"]

_COMMANDS = {
    "bench": "tvm_tilex.tools.bench_command",
    "explain": "tvm_tilex.tools.explain_command",
    "layout": "tvm_tilex.tools.layout_command",
    "list": "tvm_tilex.tools.list_command",
    "run": "tvm_tilex.tools.run_command",
    "sim": "tvm_tilex.tools.sim_command",
    "tune": "tvm_tilex.tools.tune_command",
    "tuned": "tvm_tilex.tools.tuned_command",
}
# Commands whose name is taken in their own module.
_FUNCTIONS = {"list": "list_kernels", "tune": "tune_command"}
_HELP = {
    "bench": "Time a kernel beside a copy, after checking it against FP64.",
    "explain": "Show every stage of a kernel's compilation.",
    "layout": "Evaluate a layout and say what is proved of it.",
    "list": "List the kernels of the library.",
    "run": "Compile a kernel, run it and check it against FP64.",
    "sim": "Run a Metal source file in the simulator.",
    "tune": "Measure a kernel's candidates and keep the best.",
    "tuned": "List, export or import stored winners.",
}


class _LazyGroup(click.Group):
    """Finds commands by name and imports their module only when needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name])
        found: click.Command = getattr(module, _FUNCTIONS.get(cmd_name, cmd_name))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _HELP[name]) for name in self.list_commands(ctx)])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tvm_tilex.__version__, prog_name="tilex")
def tilex() -> None:
    """Tile kernels on stock Apache TVM: capture, prove, plan, map, launch."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    warnings.filterwarnings("ignore", category=UserWarning, module=r"tvm\b.*")
    warnings.filterwarnings("ignore", message="no Apple GPU here")  # the report says so
    try:
        result: Any = tilex.main(args=arguments, prog_name="tilex", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except click.exceptions.Abort:
        _fail("interrupted", 130)
    except TilexError as error:
        _fail(_message(error), 1)
    sys.exit(result if isinstance(result, int) else 0)


def _message(error: TilexError) -> str:
    """The error's text; the line that called us is click's own, which says nothing."""
    text = str(error)
    where = error.location
    if where is not None and Path(where.file).is_relative_to(Path(click.__file__).parent):
        return text.removeprefix(f"{where}: ")
    return text


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"tilex: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
