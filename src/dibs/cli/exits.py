"""Exit codes, and errors as people and programs want them: one line, or one JSON document, on standard error."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import click
import msgspec

from dibs.errors import ConfigurationError, DibsError, Refused, SchemaError, StoreUnavailable

FINE = 0
WRONG = 1
"""Something was found wrong, or was not found."""
USAGE = 2
"""The command line, or what was to be stored, makes no sense; or a question could not be asked."""
UNAVAILABLE = 69
"""The store cannot be reached: trying again later may help."""
CONFIGURATION = 78
"""A wrong URL, app, setting or schema: trying again does not help."""
INTERRUPTED = 130

CODES: Mapping[type[DibsError], int] = {
    Refused: USAGE,
    StoreUnavailable: UNAVAILABLE,
    ConfigurationError: CONFIGURATION,
    SchemaError: CONFIGURATION,
}


def code_of(problem: DibsError) -> int:
    """The exit code that stands for an error."""
    return next((code for kind, code in CODES.items() if isinstance(problem, kind)), WRONG)


class Trouble(click.ClickException):
    """What could not be done, in one line, with the code to end with."""

    def __init__(self, message: str, code: int = WRONG, kind: str = "error") -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]
        self.kind = kind

    @classmethod
    def of(cls, problem: DibsError) -> "Trouble":
        """An error of dibs."""
        return cls(str(problem), code_of(problem), type(problem).__name__)


class Commands(click.Group):
    """A group that imports a command when it is asked for, and ends with the codes above."""

    modules: ClassVar[Mapping[str, str]] = {}
    """Where each command is: its name, and the module that has it under the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from importlib import import_module

        module = self.modules.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DibsError as problem:
            raise Trouble.of(problem) from problem

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            sys.exit(super().main(given, prog_name or "dibs", **extra) or FINE)
        except click.exceptions.Exit as ended:
            sys.exit(ended.exit_code)
        except click.Abort:
            # Ctrl-C, or the end of the input where an answer was wanted.
            start = "\n" if sys.stderr.isatty() else ""
            click.echo(f"{start}dibs: stopped", err=True)
            sys.exit(INTERRUPTED)
        except click.ClickException as problem:
            _end(problem, as_json="--json" in given)


class Defaulting(click.Group):
    """A group whose commonest command need not be named: ``dibs queues --json`` is ``dibs queues list --json``."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        if not named and not ctx.resilient_parsing:  # a shell that completes wants to see all of them
            args.insert(0, self.default)
        return super().parse_args(ctx, args)


def _end(problem: click.ClickException, as_json: bool) -> NoReturn:
    """Say what went wrong, as JSON if the command was asked for JSON."""
    from dibs.cli.show import one_line

    kind = problem.kind if isinstance(problem, Trouble) else "Usage"
    message = one_line(problem.format_message())
    if as_json:
        error = {"kind": kind, "message": message, "exit_code": problem.exit_code}
        click.echo(msgspec.json.encode({"error": error}).decode(), err=True)
    elif isinstance(problem, Trouble):
        click.echo(f"dibs: {message}", err=True)
    else:
        problem.show()
    sys.exit(problem.exit_code)
