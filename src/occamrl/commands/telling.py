"""How commands speak: lines or JSON on standard output, errors as one message and an exit code."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from occamrl.errors import InvalidInput, OccamRLError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output, JSON lines on standard output.")]


@contextmanager
def told(as_json: bool = False) -> Iterator[None]:
    """Turn the package's errors into one message and an exit code; for a program, also into a line of JSON."""
    from occamrl.runs.failures import RecordError, SpecError

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except OccamRLError as error:
        for line in str(error).splitlines():
            tell(line)
        if as_json:
            faults = {"faults": [asdict(fault) for fault in error.faults]} if isinstance(error, SpecError) else {}
            with contextlib.suppress(OSError):  # the message has been told, the code will be
                print_lines({"event": "error", "kind": type(error).__name__, "text": str(error), **faults})
        bad = isinstance(error, InvalidInput) and not isinstance(error, RecordError)
        raise typer.Exit(BAD_INPUT if bad else FAILED) from error
    except OSError as error:  # of standard output; those of our own files are StorageErrors
        if not isinstance(error, BrokenPipeError):  # whoever reads has gone: nobody is left to tell
            tell(f"the system refused: {error}")
        _let_go_of_output()
        raise typer.Exit(FAILED) from error


def _let_go_of_output() -> None:
    """If standard output cannot be written, lead it nowhere: Python would try once more when it ends, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def open_standard_streams() -> None:
    """Give a command that was started without standard streams (``2>&-``) ones that lead nowhere.

    Otherwise the next files that are opened take their numbers, and are taken for them by processes that are started.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  # open for as long as the process
            setattr(sys, name, stream)


def tell(line: str) -> None:
    """Print a line for people on standard error; what cannot be said there is not worth an error of its own."""
    from occamrl.runs.display import printable

    with contextlib.suppress(OSError):
        typer.echo(printable(line), err=True)


def print_lines(lines: list[str] | dict[str, Any]) -> None:
    """Print lines for people, or data as one line of JSON."""
    from occamrl.runs.display import printable

    if isinstance(lines, dict):
        sys.stdout.write(json.dumps(lines) + "\n")
        sys.stdout.flush()
    else:
        for line in lines:
            typer.echo(printable(line))
