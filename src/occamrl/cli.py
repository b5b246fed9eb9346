"""The command line: thin, it parses, calls and prints.

Exit codes: 0 all is well; 1 some cells failed, something is damaged or could not be written; 2 bad input; 130 stopped
by Ctrl-C. `select` also has 3 (not enough data) and 4 (no class of the ladder explains them).
"""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamrl import __version__
from occamrl.commands.learn import learn
from occamrl.commands.telling import FAILED, INTERRUPTED, Json, open_standard_streams, print_lines, tell, told
from occamrl.errors import OccamRLError

if TYPE_CHECKING:
    from occamrl.runs.experiment import Experiment

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Occam's razor for reinforcement learning.")

UNDECIDED = {"not enough data": 3, "outside": 4}  # verdicts of `select` that name no class

Folder_ = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an experiment.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one per processor.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask scheduler to use instead, tcp://host:8786.")]
Every = Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints of a cell.")]
Silence = Annotated[float, typer.Option(min=1.0, help="Seconds without news after which a worker is ended.")]

app.command()(learn)


@app.command()
def run(
    spec: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped spec (see `occamrl list`).")],
    out: Annotated[Path, typer.Option(help="Folder for the records; made if needed, gone on with if not empty.")],
    workers: Workers = None,
    scheduler: Scheduler = None,
    checkpoint_every: Every = 30.0,
    silence: Silence = 600.0,
    as_json: Json = False,
) -> None:
    """Run an experiment, or what is left of it."""
    with told(as_json):
        from occamrl.runs.experiment import Experiment

        experiment = Experiment.from_toml(spec)
        _execute(out, workers, scheduler, checkpoint_every, silence, as_json, experiment)


@app.command()
def resume(
    folder: Folder_,
    workers: Workers = None,
    scheduler: Scheduler = None,
    checkpoint_every: Every = 30.0,
    silence: Silence = 600.0,
    as_json: Json = False,
) -> None:
    """Go on with an experiment that was stopped, killed, or had cells that failed."""
    with told(as_json):
        _execute(folder, workers, scheduler, checkpoint_every, silence, as_json, None)


def _execute(
    path: Path,
    workers: int | None,
    scheduler: str | None,
    checkpoint_every: float,
    silence: float,
    as_json: bool,
    experiment: Experiment | None,
) -> None:
    from occamrl.runs.display import choose
    from occamrl.runs.experiment import Options, execute
    from occamrl.runs.folder import Folder

    options = Options(workers, scheduler, max(checkpoint_every, 1e-3), silence)
    with choose(as_json) as display:
        tally = execute(Folder(path), options, display, experiment)
        counts = {"finished": tally.done + tally.earlier, "failed": len(tally.failed), "stopped": tally.stopped}
        display({"event": "end", **counts})
    name = shlex.quote(str(path))  # to be pasted into a shell
    if tally.stopped:
        tell(f"Stopped. Go on with: occamrl resume {name}")
        raise typer.Exit(INTERRUPTED)
    if not as_json:
        tell(f"{tally.done + tally.earlier} cells finished, {len(tally.failed)} failed: {path}")
    if tally.failed:
        tell(f"See why with: occamrl status {name}; try again with: occamrl resume {name}")
        raise typer.Exit(FAILED)


@app.command()
def status(folder: Folder_, as_json: Json = False) -> None:
    """Say how far an experiment is."""
    with told(as_json):
        from occamrl.runs import summary
        from occamrl.runs.locks import holder_of
        from occamrl.runs.records import status as read

        now, holder = read(folder), holder_of(folder / "lock")
        print_lines(summary.as_data(now, holder) if as_json else summary.lines(now, holder))
        if now.damaged:
            raise typer.Exit(FAILED)


@app.command()
def verify(
    folder: Folder_,
    quarantine: Annotated[bool, typer.Option(help="Move damaged cells to DIR/quarantine.")] = True,
    as_json: Json = False,
) -> None:
    """Compare every byte with its digest, put damaged cells aside and say how to run them again."""
    with told(as_json):
        from contextlib import nullcontext

        from occamrl.runs import summary
        from occamrl.runs.folder import Folder
        from occamrl.runs.locks import FolderLock
        from occamrl.runs.records import verify as check

        Folder(folder).experiment()
        with FolderLock(folder / "lock") if quarantine else nullcontext():
            found = check(folder, quarantine=quarantine)
        print_lines(summary.damage_data(found) if as_json else summary.damage_lines(found, folder))
        if found:
            raise typer.Exit(FAILED)


@app.command()
def select(
    log: Annotated[str, typer.Argument(help="A Parquet file, or minari:ID for a local Minari dataset.")],
    ladder: Annotated[Path, typer.Option(metavar="SPEC", help="A TOML file of models, or a shipped ladder.")],
    delta: Annotated[float, typer.Option(help="Probability of rejecting the right class, at most.")] = 0.05,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps of an episode, instead of the spec's.")] = None,
    as_json: Json = False,
) -> None:
    """Say how rich a model logged episodes ask for. Exit code 3: not enough data; 4: no class explains them."""
    with told(as_json):
        from occamrl.environments.ladder_file import read_ladder
        from occamrl.logs.reading import read_log
        from occamrl.logs.selection import select as test

        found = test(read_log(log), read_ladder(ladder, horizon=horizon), delta=delta)
        print_lines(found.as_data() if as_json else str(found).splitlines())
        if found.verdict in UNDECIDED:
            raise typer.Exit(UNDECIDED[found.verdict])


@app.command()
def report(
    folder: Folder_,
    out: Annotated[Path | None, typer.Option(help="The page; by default DIR/report.html.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for PDF, SVG and PNG of every plot.")] = None,
) -> None:
    """Write one self-contained HTML page about an experiment."""
    with told():
        typer.echo(_later("page").write_report(folder, out, figures))


@app.command()
def watch(
    folder: Folder_,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")] = 0,
) -> None:
    """Serve the page on this machine while cells run."""
    with told():
        _later("watch").serve(folder, port)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    show: Annotated[bool, typer.Option(help="Open the figure when there is a desktop.")] = True,
) -> None:
    """Run the learners on built-in problems; print a table and draw a figure."""
    with told():
        from occamrl.demo import demonstrate, open_file

        path = demonstrate(out, typer.echo)
        if show:
            open_file(path)


@app.command("list")
def list_names(as_json: Json = False) -> None:
    """List the problems, families, learners, selectors, specs and ladders that are found."""
    with told(as_json):
        from occamrl import registry
        from occamrl.environments.ladder_file import shipped_ladders
        from occamrl.runs.spec import shipped

        kinds = ("problems", "families", "learners", "selectors")
        found: dict[str, list[str]] = {kind: sorted(getattr(registry, kind)()) for kind in kinds}
        found["specs"], found["ladders"] = shipped(), shipped_ladders()
        print_lines(found if as_json else [f"{kind}: {', '.join(names)}" for kind, names in found.items()])


@app.command()
def version() -> None:
    """Print the version."""
    with told():
        typer.echo(__version__)


def _later(module: str) -> Any:
    """Return a module of the report, loaded only when it is asked for."""
    try:
        return importlib.import_module(f"occamrl.report.{module}")
    except ModuleNotFoundError as error:
        raise OccamRLError(f"this command needs {error.name}, which is not installed") from error


def main() -> None:
    """Entry point of the ``occamrl`` command."""
    open_standard_streams()
    app()
