"""The command line: thin, it parses, calls and prints.

Exit codes: 0 all is well; 1 some cells failed, something is damaged or could not be written; 2 bad input; 130 stopped
by Ctrl-C. `select` also has 3 (not enough data) and 4 (no class of the ladder explains them).

Lines or JSON go to standard output; an error is one message on standard error and an exit code. What a command needs is
imported when it is called, so that `--help` does not wait for it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import keyword
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamrl import __version__

if TYPE_CHECKING:
    from occamrl.envs.ladder_file import LadderSpec
    from occamrl.envs.wrapper import FiniteEnvironment
    from occamrl.protocols import Learner
    from occamrl.running.result import Result

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
UNDECIDED = {"not enough data": 3, "misspecified": 4}  # answers of `select` that name no class
TEMPLATES = ("problem", "learner", "selector", "rule", "ladder", "spec")
FEW = 12  # kernels of each class that the preflight tries: a second or two at most

FolderName = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of an experiment.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of text.")]
Page = Annotated[Path | None, typer.Option(help="Also write an HTML page: answer, evidence, policy.")]
LadderName = Annotated[str, typer.Option(help="A TOML file of models, or the name of a shipped ladder.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="Steps of an episode, instead of the ladder's.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of worker processes; by default one per processor.")]
Scheduler = Annotated[str | None, typer.Option(help="Run on a Dask cluster: the address of its scheduler.")]
CheckpointEvery = Annotated[float, typer.Option(min=0.001, help="Seconds between checkpoints of a cell.")]
Silence = Annotated[float, typer.Option(min=1.0, help="Seconds of silence after which a worker counts as dead.")]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a module of your own; the current folder is searched too."),
]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def occamrl(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Occam's razor for reinforcement learning."""


def command(name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose errors become one message and an exit code; for a program, also a line of JSON."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> None:
            from occamrl.errors import InvalidInput, OccamRLError, RecordError

            try:
                function(*arguments, **options)
            except KeyboardInterrupt as stop:
                tell(str(stop) or "stopped")
                raise typer.Exit(INTERRUPTED) from None
            except OccamRLError as error:
                tell(*str(error).splitlines())
                if options.get("as_json"):
                    faults = [fault._asdict() for fault in getattr(error, "faults", ())]
                    with contextlib.suppress(OSError):  # the message has been written, the code will be
                        about = {"event": "error", "kind": type(error).__name__, "text": str(error)}
                        print_lines({**about, **({"faults": faults} if faults else {})})
                bad = isinstance(error, InvalidInput) and not isinstance(error, RecordError)
                raise typer.Exit(BAD_INPUT if bad else FAILED) from None
            except OSError as error:  # mostly of standard output; those of our own files are StorageErrors
                _leave_output(error)
                raise typer.Exit(FAILED) from None
            except (MemoryError, ImportError) as error:  # libraries that do not fit are not found, either
                tell(f"{type(error).__name__}: {str(error) or 'there is too little memory'}")
                raise typer.Exit(FAILED) from None

        return app.command(name)(call)

    return register


def _leave_output(error: OSError) -> None:
    if not isinstance(error, BrokenPipeError):  # whoever reads has gone: nobody is left to tell
        tell(f"{'cannot write to standard output: ' if error.filename is None else ''}{error}")
    try:
        sys.stdout.flush()
    except OSError:  # lead it nowhere: Python would try once more when it ends, and complain
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def printable(text: object) -> str:
    """Return text with everything that could steer a terminal made visible."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(text))


def tell(*lines: str) -> None:
    """Print lines for people on standard error; what cannot be said there is not worth an error of its own."""
    with contextlib.suppress(OSError):
        for line in lines:
            typer.echo(printable(line), err=True)


def print_lines(lines: Sequence[str] | dict[str, Any]) -> None:
    """Print lines for people, or data as one line of JSON."""
    if isinstance(lines, dict):
        sys.stdout.write(json.dumps(lines, default=str) + "\n")
        sys.stdout.flush()
    else:
        for line in lines:
            typer.echo(printable(line))


@command()
def demo(out: Annotated[Path, typer.Option(help="Directory for the files.")] = Path("demo")) -> None:
    """Let a selector find out how slippery a lake is; print its answer and a comparison, and draw a figure."""
    from occamrl.demo import demonstrate

    demonstrate(out, typer.echo)


@command()
def run(
    spec: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped spec (see `occamrl list`).")],
    out: Annotated[Path, typer.Option(help="Directory; created if missing, resumed if it holds this experiment.")],
    workers: Workers = None,
    scheduler: Scheduler = None,
    checkpoint_every: CheckpointEvery = 30.0,
    silence: Silence = 600.0,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Run the cells of an experiment that are not finished yet.

    A spec may list modules of your own under `import`; each of them has to be named with --import as well.
    """
    _execute(out, spec, modules, as_json, workers, scheduler, checkpoint_every, silence)


@command()
def resume(
    folder: FolderName,
    workers: Workers = None,
    scheduler: Scheduler = None,
    checkpoint_every: CheckpointEvery = 30.0,
    silence: Silence = 600.0,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Continue an experiment that was stopped or killed, or in which cells failed."""
    _execute(folder, None, modules, as_json, workers, scheduler, checkpoint_every, silence)


def _execute(
    path: Path,
    spec: str | None,
    modules: list[str] | None,
    as_json: bool,
    workers: int | None,
    scheduler: str | None,
    checkpoint_every: float,
    silence: float,
) -> None:
    """Run the cells of a spec, or without one those of the directory, that are not finished."""
    from occamrl.experiments.execution import Experiment

    modules = _findable(modules)
    options: dict[str, Any] = {"workers": workers, "scheduler": scheduler, "checkpoint_seconds": checkpoint_every}
    options |= {"silence_seconds": silence, "progress": False if as_json else None}
    options["listen"] = print_lines if as_json else _listen
    if spec is None:
        records = Experiment.resume(path, imports=modules, **options)
    else:
        records = Experiment.from_toml(spec, imports=modules).run(path, **options)
    failed, name = len(records.failed), shlex.quote(str(path))  # to be pasted into a shell
    if as_json:
        print_lines({"event": "end", "finished": len(records.cells), "failed": failed, "stopped": False})
    else:
        tell(f"{len(records.cells)} cells finished, {failed} failed: {path}")
    if failed:
        again = f"occamrl resume {name}" + "".join(f" --import {module}" for module in modules)
        tell(f"To see why: occamrl status {name}; to try again: {again}")
        raise typer.Exit(FAILED)
    if not as_json:
        tell(f"Next: occamrl report {name}")


def _listen(event: dict[str, Any]) -> None:
    """Tell of what a person wants to hear of at once; progress has its own line."""
    if event["event"] in ("failed", "retry", "warning"):
        who = f"{event.get('problem', '')} / {event.get('agent', '')} / seed {event.get('seed', '')}"
        tell(f"{event['event']} {who}: {event.get('text', '')}")


@command()
def status(folder: FolderName, as_json: Json = False) -> None:
    """Show the progress of an experiment."""
    from occamrl.experiments.records import status as look

    now = look(folder)
    failed = [{"cell": r["cell"], "reason": (str(r["reason"]).strip().splitlines() or [""])[-1]} for r in now.failed]
    damaged = {cell: str(error) for cell, error in now.damaged.items()}
    if as_json:
        counts = {"cells": now.total, "finished": len(now.cells), "missing": len(now.missing)}
        print_lines({"name": now.name, **counts, "running": now.running, "failed": failed, "damaged": damaged})
    else:
        lines = str(now).splitlines()
        for cell, progress in now.running.items():
            lines.append(f"running {cell}: {progress.get('episodes', 0):,} of {progress.get('total', 0):,} episodes")
        lines += [f"failed {each['cell']}: {each['reason']}" for each in failed]
        print_lines([*lines, *(f"damaged {cell}: {error}" for cell, error in damaged.items())])
    if damaged:
        raise typer.Exit(FAILED)


@command()
def verify(
    folder: FolderName,
    quarantine: Annotated[bool, typer.Option(help="Move damaged cells to DIR/quarantine.")] = True,
    as_json: Json = False,
) -> None:
    """Check every file against its digest, move damaged cells aside and say how to run them again."""
    from occamrl.experiments.execution import Experiment

    found = Experiment.verify(folder, quarantine=quarantine)
    if as_json:
        print_lines({"damaged": [damage._asdict() for damage in found]})
    else:
        moved = [f" (moved to {damage.moved_to})" if damage.moved_to else "" for damage in found]
        lines = [f"{damage.problem}{where}" for damage, where in zip(found, moved, strict=True)]
        advice = [f"To run them again: occamrl resume {shlex.quote(str(folder))}"] if any(moved) else []
        print_lines([*lines, *advice] if found else ["Every file is as it was written."])
    if found:
        raise typer.Exit(FAILED)


@command()
def report(
    folder: FolderName,
    out: Annotated[Path | None, typer.Option(help="File of the page; by default DIR/report.html.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Directory for PDF, SVG and PNG files of every plot.")] = None,
) -> None:
    """Write one self-contained HTML page about an experiment."""
    from occamrl.report.page import write_report

    typer.echo(write_report(folder, out, figures))


@command("list")
def list_names(as_json: Json = False) -> None:
    """List all problems, learners, selectors, rules, specs and ladders, with the package of each."""
    from occamrl import registry
    from occamrl.envs.ladder_file import shipped_ladders
    from occamrl.experiments.spec import shipped

    own = f"occamrl {__version__}"
    found: dict[str, dict[str, str]] = {}
    for kind in registry.KINDS:
        theirs = {name: each.source for name, each in registry.installed(kind).items()}
        found[kind] = dict(sorted((theirs | dict.fromkeys(registry.own(kind), own)).items()))
    found["specs"], found["ladders"] = (dict.fromkeys(names, own) for names in (shipped(), shipped_ladders()))
    lines = []
    for kind, names in found.items():
        for package in [own, *sorted(set(names.values()) - {own})]:
            listed = ", ".join(name for name, source in names.items() if source == package)
            lines += [f"{kind}{'' if package == own else f' of {package}'}: {listed}"] if listed else []
    print_lines(found if as_json else lines)


@command()
def new(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(TEMPLATES)}.")],
    name: Annotated[str, typer.Argument(help="The name of the class, such as UCBVI; or of the ladder or spec.")],
    out: Annotated[Path | None, typer.Option(help="File to write; by default the name in lower case.")] = None,
) -> None:
    """Write a template: a class of your own that checks itself, or the TOML file of a ladder or an experiment."""
    from occamrl.errors import ParameterError, require_choice
    from occamrl.running.storage import write_whole

    require_choice("kind", kind, TEMPLATES)
    ending = ".toml" if kind in ("ladder", "spec") else ".py"
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ParameterError("name", got=repr(name), expected="the name of a Python class, such as UCBVI")
    path = out if out is not None else Path(f"{name.lower()}{ending}")
    if path.suffix != ending or not path.stem.isidentifier():
        raise ParameterError("out", got=str(path), expected=f"a file called like {name.lower()}{ending}")
    if path.exists() or path.is_symlink():
        raise ParameterError("out", got=f"{path}, which exists", expected="a new file; --out names another one")
    template = resources.files("occamrl").joinpath("templates", f"{kind}.txt").read_text("utf-8")
    write_whole(path, template.replace("NAME", name).replace("MODULE", path.stem).encode())
    file = shlex.quote(str(path))
    use = {"spec": f"occamrl run {file} --out {name.lower()}", "ladder": f"occamrl learn ENV_ID --ladder {file} ..."}
    typer.echo(f"{path} is written; to {'use' if kind in use else 'check'} it: {use.get(kind, f'python {file}')}")


@command()
def learn(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="Name of a registered Gymnasium environment.")],
    ladder: LadderName,
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the environment and the agent.")] = 0,
    horizon: Horizon = None,
    options: Annotated[list[str] | None, typer.Option("--with", help="key=value for the environment.")] = None,
    modules: Modules = None,
    delta: Annotated[float, typer.Option(help="Largest probability that the right class is ruled out.")] = 0.05,
    rewards: Annotated[str, typer.Option(help="known, or estimated by bernstein or hoeffding bounds.")] = "known",
    evidence: Annotated[str, typer.Option(help="value: ARL-GEN; likelihood: Occam, on lists of kernels.")] = "value",
    scope: Annotated[str, typer.Option(help="Be optimistic over the smallest class, or over all models left.")] = "",
    compare: Annotated[bool, typer.Option(help="Also play the oracle, the largest and the smallest class.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="Save progress there; continue from it if it exists.")] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Learn in a Gymnasium environment and find the smallest class of a ladder of models that explains it."""
    from occamrl.envs.ladder_file import read_ladder
    from occamrl.envs.wrapper import FiniteEnvironment, make_environment
    from occamrl.errors import ParameterError, require_choice
    from occamrl.registry import import_modules
    from occamrl.running.learn import learn as learn_in

    import_modules(_findable(modules), field="--import")
    require_choice("--rewards", rewards, ("known", "bernstein", "hoeffding"))
    require_choice("--evidence", evidence, ("value", "likelihood"))
    require_choice("--scope", scope or "smallest", ("smallest", "all"))
    if ":" in env_id:
        raise ParameterError("ENV_ID", got=env_id, expected="a name without a module; import that with --import")
    spec = read_ladder(ladder, horizon=horizon)
    known = spec.known if rewards == "known" else spec.known.without_rewards
    env = make_environment("ENV_ID", env_id, _options(options or ()))
    environment = FiniteEnvironment(env, known=known, reward_range=tuple(spec.rewards))
    if not as_json and rewards == "known":
        tell(*_forecast(spec, episodes, delta, evidence))
    agents = _agents(spec, environment, evidence, {"delta": delta}, compare, rewards, scope or "smallest")
    for i, (name, agent) in enumerate(agents.items()):
        path = None if i else checkpoint
        result = learn_in(agent, environment, episodes=episodes, seed=seed, checkpoint=path)
        print_lines({"agent": name, **_outcome(result)} if as_json else _lines(name, result))
        if page is not None and not i:
            tell(f"The page: {result.page(page)}")


def _findable(modules: Sequence[str] | None) -> list[str]:
    """Return the user's modules; the current folder is looked into, as `python -m` does and the command does not."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    return list(modules or ())


def _options(options: Sequence[str]) -> dict[str, Any]:
    """Return ``key=value`` as a dict, values as in TOML."""
    from occamrl.errors import ParameterError

    found: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        if not key.isidentifier() or not value:
            raise ParameterError("--with", got=option, expected="key=value, the value as in TOML")
        try:
            found[key] = tomllib.loads(f"value = {value}")["value"]
        except (ValueError, RecursionError):  # a string without quotes
            found[key] = value
    return found


def _agents(
    spec: LadderSpec,
    environment: FiniteEnvironment,
    evidence: str,
    options: dict[str, Any],
    compare: bool,
    rewards: str,
    scope: Any,
) -> dict[str, Learner]:
    """Return who is to learn, by name: the selector, then what it is compared with."""
    from occamrl.learners.occam import Occam
    from occamrl.learners.rewards import RewardsPerPair
    from occamrl.learners.ucrl_vtr import UCRLVTR
    from occamrl.selectors.arl_gen import ARLGen

    ladder, kind = spec.ladder, Occam if evidence == "likelihood" else ARLGen
    name = "Occam" if evidence == "likelihood" else "ARL-GEN"
    found: dict[str, Learner] = {name: kind(ladder=ladder, scope=scope, **options)}
    if compare:
        right = None if environment.mdp is None else ladder.class_of(environment.mdp)
        listed = {f"oracle ({spec.names[right - 1]})": right} if right is not None else {}
        for each, m in {**listed, "largest class": ladder.classes, "smallest class": 1}.items():
            found[each] = UCRLVTR(family=ladder.family_of(m), **options)
    if rewards == "known":
        return found
    return {each: RewardsPerPair(agent=agent, bound=rewards) for each, agent in found.items()}  # type: ignore[arg-type]  # a choice, checked


def _forecast(spec: LadderSpec, episodes: int, delta: float, evidence: str) -> list[str]:
    """Return what a quick preflight says: whether a wrong class could go unnoticed."""
    from occamrl.analysis.preflight import preflight

    kinds: Any = evidence
    found = preflight(spec.ladder, spec.known, episodes=episodes, delta=delta, evidence=kinds, truths=FEW, members=FEW)
    return [*f"preflight: {found}".splitlines(), *(["  here: --scope all"] if found.unidentifiable else [])]


def _outcome(result: Result) -> dict[str, Any]:
    """Return a result as plain data, in the environment's own unit."""
    environment = result.environment
    return {
        "environment": environment.name,
        "episodes": result.total_episodes,
        "realised_return_per_episode": result.total_return / max(1, result.total_episodes),
        "regret": result.total_regret,
        "regret_unknown_because": environment.why_not or None,
        "sentences": list(result.verdict.sentences),
        **result.verdict,
    }


def _lines(name: str, result: Result) -> list[str]:
    """Return what a person is told of one agent."""
    exact = f"exact regret {result.total_regret:,.2f}" if result.exact else "no exact regret"
    mean = result.total_return / max(1, result.total_episodes)
    found = [f"{name}: {result.total_episodes:,} episodes, realised return {mean:,.4g} an episode, {exact}"]
    if result.environment.why_not:
        found.append(f"  ({result.environment.why_not})")
    return found + [f"  {sentence}" for sentence in result.verdict.sentences]


@command()
def select(
    log: Annotated[str, typer.Argument(help="A Parquet or CSV file, or minari:ID for a Minari dataset.")],
    ladder: LadderName,
    delta: Annotated[float, typer.Option(help="Largest probability of rejecting the right class.")] = 0.05,
    horizon: Horizon = None,
    evidence: Annotated[str | None, typer.Option(help="likelihood or value; default: by the ladder.")] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Find the smallest class of models that explains logged episodes.

    Exit code 3: there are not enough data; 4: no class explains them.
    """
    from occamrl.envs.ladder_file import read_ladder
    from occamrl.logs.select import select as test

    found = test(log, read_ladder(ladder, horizon=horizon), delta=delta, evidence=evidence)
    print_lines(found.as_data() if as_json else str(found).splitlines())
    if page is not None:
        from occamrl.report.answer import write_page

        tell(f"The page: {write_page(found, page)}")
    if found.status in UNDECIDED:
        raise typer.Exit(UNDECIDED[found.status])


def main() -> None:
    """Entry point of the ``occamrl`` command.

    A command that was started without standard streams (``2>&-``) gets ones that lead nowhere. Otherwise the next files
    that are opened take their numbers, and are taken for them by processes that are started.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  # open for as long as the process
            setattr(sys, name, stream)
    app()
