"""Register commands, run one, and turn its errors into messages and exit statuses."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, NoReturn, TypeVar, cast

import typer
from typer.core import TyperGroup

from countveil.errors import CountveilError, Stopped

_FLOW = ("demo", "init", "check", "price", "release", "postprocess", "verify", "package")


class _InOrderOfWork(TyperGroup):
    """Commands in the order in which a plan becomes a release; then the others, groups last.

    Typer carries its own copy of click, whose types are not public.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        groups = [name for name in names if isinstance(self.commands[name], TyperGroup)]
        others = sorted(name for name in names if name not in (*_FLOW, *groups))
        return [*_FLOW, *others, *groups]


# Tracebacks with local variables could show records, so they are off.
app = typer.Typer(
    cls=_InOrderOfWork,
    help="Release counts under differential privacy, and measure what they still disclose.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib import metadata

        print(f"countveil {metadata.version('countveil')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Release counts under differential privacy, and measure what they still disclose."""


_Function = TypeVar("_Function", bound=Callable[..., None])
_STOPPED = "stopped"
_RESUMED = {"release": "stopped; to resume a release, run the same command again"}


class _EndedEarly(CountveilError):
    """A stop before any charge; after the charge, Interrupted is raised instead."""

    exit_status = 130


def ending_well(function: _Function) -> _Function:
    """Return a command that reports an interruption as an ordinary error."""
    stopped = _RESUMED.get(function.__name__, _STOPPED)

    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except (KeyboardInterrupt, Stopped):
            raise _EndedEarly(stopped) from None

    return cast("_Function", wrapped)


def command(name: str) -> Callable[[_Function], _Function]:
    """Return a decorator that registers a function as a command of the application."""

    def register(function: _Function) -> _Function:
        app.command(name)(ending_well(function))
        return function

    return register


def main() -> None:
    """Run a command, and turn any error into a message and an exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except CountveilError as error:
        _fail(error, str(error), error.exit_status)
    except OSError as error:
        _fail(error, f"{error.filename or 'a file'}: {error.strerror}; fix this and rerun", 2)
    except MemoryError as error:
        _fail(error, "out of memory; close other programs, or use a machine with more memory", 2)
    except (KeyboardInterrupt, Stopped) as error:
        _fail(error, _STOPPED, _EndedEarly.exit_status)
    except Exception as error:
        # A bug. The text of the error may quote a record, so only its location is shown.
        if os.environ.get("COUNTVEIL_TRACEBACK"):
            raise
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "unknown"
        name = type(error).__name__
        _fail(
            error,
            f"a bug in countveil ({name} at {place}); please report it; set COUNTVEIL_TRACEBACK=1 "
            f"to see the full traceback",
            70,
        )
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to clean up


def _interrupt(number: int, frame: Any) -> NoReturn:
    raise Stopped


def _fail(error: BaseException, message: str, status: int) -> NoReturn:
    if "--json" in sys.argv:
        document = {"error": type(error).__name__, "message": message, "exit": status}
        print(json.dumps(document), file=sys.stderr)
    else:
        print(f"error: {message}", file=sys.stderr)
    sys.exit(status)
