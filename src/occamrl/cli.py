"""The command line: thin, it parses, calls and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occamrl import __version__

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Occam's razor for reinforcement learning.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    show: Annotated[bool, typer.Option(help="Open the figure when there is a desktop.")] = True,
) -> None:
    """Run the learners on built-in problems; print a table and draw a figure."""
    from occamrl.demo import demonstrate, open_file

    path = demonstrate(out, typer.echo)
    if show:
        open_file(path)


@app.command("list")
def list_names() -> None:
    """List the problems, families, learners and selectors that are found."""
    from occamrl import registry

    for kind in ("problems", "families", "learners", "selectors"):
        found = getattr(registry, kind)()
        typer.echo(f"{kind}: {', '.join(sorted(found)) or '(none yet)'}")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the ``occamrl`` command."""
    app()
