"""How commands speak: lines or JSON on standard output, errors as one message and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from occamrl.errors import InvalidInput, OccamRLError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output, JSON lines on standard output.")]


@contextmanager
def told() -> Iterator[None]:
    """Turn the package's errors into one message and an exit code."""
    from occamrl.runs.display import printable
    from occamrl.runs.failures import RecordError

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except OccamRLError as error:
        for line in str(error).splitlines():
            typer.echo(printable(line), err=True)
        bad = isinstance(error, InvalidInput) and not isinstance(error, RecordError)
        raise typer.Exit(BAD_INPUT if bad else FAILED) from error


def print_lines(lines: list[str] | dict[str, Any]) -> None:
    """Print lines for people, or data as one line of JSON."""
    from occamrl.runs.display import printable

    if isinstance(lines, dict):
        sys.stdout.write(json.dumps(lines) + "\n")
    else:
        for line in lines:
            typer.echo(printable(line))
