"""The command line: thin, it parses, calls and prints.

Exit codes: 0 all is well; 1 some cells failed, something is damaged or could not be written; 2 bad input; 130 stopped
by Ctrl-C. `select` also has 3 (not enough data) and 4 (no class of the ladder explains them).

Lines or JSON go to standard output; an error is one message and an exit code. What a command needs is imported when it
is called, so that `--help` does not wait for it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import keyword
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamrl import __version__
from occamrl.errors import InvalidInput, OccamRLError, ParameterError, RecordError, SpecError, require_choice

if TYPE_CHECKING:
    import gymnasium as gym

    from occamrl.analysis.preflight import Preflight
    from occamrl.envs.ladder_file import LadderSpec
    from occamrl.envs.wrapper import FiniteEnvironment
    from occamrl.protocols import Agent
    from occamrl.running.result import Result

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
UNDECIDED = {"not enough data": 3, "outside": 4}  # verdicts of `select` that name no class
_FEW = 12  # kernels of each class that the preflight tries: a second or two at most

Folder_ = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of an experiment.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of text.")]
Page = Annotated[Path | None, typer.Option(help="Also write an HTML page: question, answer, evidence.")]
Checkpoint = Annotated[Path | None, typer.Option(help="File to save progress to, and to continue from if it exists.")]
LadderName = Annotated[str, typer.Option(help="A TOML file of models, or the name of a shipped ladder.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="Steps of an episode, instead of the ladder's.")]

app = typer.Typer(no_args_is_help=True)


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
            try:
                function(*arguments, **options)
            except KeyboardInterrupt:
                tell("stopped")
                raise typer.Exit(INTERRUPTED) from None
            except OccamRLError as error:
                _report(error, options.get("as_json", False))
                bad = isinstance(error, InvalidInput) and not isinstance(error, RecordError)
                raise typer.Exit(BAD_INPUT if bad else FAILED) from error
            except OSError as error:  # mostly of standard output; those of our own files are StorageErrors
                _leave_output(error)
                raise typer.Exit(FAILED) from error
            except (MemoryError, ImportError) as error:  # libraries that do not fit are not found, either
                tell(f"{type(error).__name__}: {str(error) or 'there is too little memory'}")
                raise typer.Exit(FAILED) from error

        return app.command(name)(call)

    return register


def _report(error: OccamRLError, as_json: bool) -> None:
    for line in str(error).splitlines():
        tell(line)
    if as_json:
        faults = {"faults": [asdict(fault) for fault in error.faults]} if isinstance(error, SpecError) else {}
        with contextlib.suppress(OSError):  # the message has been written, the code will be
            print_lines({"event": "error", "kind": type(error).__name__, "text": str(error), **faults})


def _leave_output(error: OSError) -> None:
    if not isinstance(error, BrokenPipeError):  # whoever reads has gone: nobody is left to tell
        of_output = error.filename is None and error.errno is not None  # libraries raise some without a number
        tell(f"{'cannot write to standard output: ' if of_output else ''}{error}")
    try:
        sys.stdout.flush()
    except OSError:  # lead it nowhere: Python would try once more when it ends, and complain
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def tell(line: str) -> None:
    """Print a line for people on standard error; what cannot be said there is not worth an error of its own."""
    from occamrl.experiments.display import printable

    with contextlib.suppress(OSError):
        typer.echo(printable(line), err=True)


def print_lines(lines: list[str] | dict[str, Any]) -> None:
    """Print lines for people, or data as one line of JSON."""
    from occamrl.experiments.display import printable

    if isinstance(lines, dict):
        sys.stdout.write(json.dumps(lines) + "\n")
        sys.stdout.flush()
    else:
        for line in lines:
            typer.echo(printable(line))


Workers = Annotated[int | None, typer.Option(min=1, help="Number of worker processes; by default one per processor.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Run on a Dask cluster: the address of its scheduler, such as tcp://host:8786.")
]
CheckpointEvery = Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints of a cell.")]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a module of your own; the current folder is searched too."),
]
Silence = Annotated[float, typer.Option(min=1.0, help="Seconds of silence after which a worker counts as dead.")]


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
def arena(
    out: Annotated[Path, typer.Option(help="Directory; created if missing, resumed if it holds this arena.")],
    spec: Annotated[
        str, typer.Argument(metavar="[NAME|SPEC]", help="A shipped arena, such as ice, or a TOML file.")
    ] = "ladder",
    workers: Workers = None,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Compare selectors, and rules over bases, on the same seeds; print a league table and write a page."""
    from occamrl.experiments.records import load
    from occamrl.experiments.spec import shipped
    from occamrl.report.data import build
    from occamrl.report.league import lines
    from occamrl.report.page import write_report

    named = f"arena-{spec}"
    _execute(out, named if named in shipped() else spec, modules, as_json, workers)
    records = load(out)
    tables = build(records)["league"]
    print_lines({"league": tables} if as_json else lines(tables))
    tell(f"The page: {write_report(records)}")


@command()
def resume(
    folder: Folder_,
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
    scheduler: str | None = None,
    checkpoint_every: float = 30.0,
    silence: float = 600.0,
) -> None:
    """Run the cells of a spec, or without one those of the directory, that are not finished."""
    from occamrl.experiments.display import Display, JsonLines
    from occamrl.experiments.execution import Experiment, Options, execute
    from occamrl.experiments.records import Folder

    modules = _findable(modules)
    how = Options(workers, scheduler, max(checkpoint_every, 1e-3), silence)
    experiment = None if spec is None else Experiment.from_toml(spec, imports=modules)
    with JsonLines(sys.stdout) if as_json else Display(sys.stderr) as display:
        tally = execute(Folder(path), how, display, experiment, modules)
        finished = tally.done + tally.earlier
        display({"event": "end", "finished": finished, "failed": len(tally.failed), "stopped": tally.stopped})
    name = shlex.quote(str(path))  # to be pasted into a shell
    again = f"occamrl resume {name}" + "".join(f" --import {module}" for module in modules)
    if tally.stopped:
        tell(f"Stopped. To continue: {again}")
        raise typer.Exit(INTERRUPTED)
    if not as_json:
        tell(f"{finished} cells finished, {len(tally.failed)} failed: {path}")
    if tally.failed:
        tell(f"To see why: occamrl status {name}; to try again: {again}")
        raise typer.Exit(FAILED)
    if not as_json:
        tell(f"next: occamrl report {name}")


@command()
def status(folder: Folder_, as_json: Json = False) -> None:
    """Show the progress of an experiment."""
    from occamrl.experiments import display, records

    now, holder = records.status(folder), records.holder_of(folder / "lock")
    print_lines(display.as_data(now, holder) if as_json else display.lines(now, holder))
    if now.damaged:
        raise typer.Exit(FAILED)


@command()
def verify(
    folder: Folder_,
    quarantine: Annotated[bool, typer.Option(help="Move damaged cells to DIR/quarantine.")] = True,
    as_json: Json = False,
) -> None:
    """Check every file against its digest, move damaged cells aside and say how to run them again."""
    from occamrl.experiments import display, records

    records.Folder(folder).experiment()
    with records.FolderLock(folder / "lock") if quarantine else contextlib.nullcontext():
        found = records.verify(folder, quarantine=quarantine)
    data = {"damaged": [asdict(damage) for damage in found]}
    print_lines(data if as_json else display.damage_lines(found, folder))
    if found:
        raise typer.Exit(FAILED)


@command()
def select(
    log: Annotated[str, typer.Argument(help="A Parquet or CSV file, or minari:ID for a Minari dataset.")],
    ladder: LadderName,
    delta: Annotated[float, typer.Option(help="Largest probability of rejecting the right class.")] = 0.05,
    horizon: Horizon = None,
    evidence: Annotated[str | None, typer.Option(help="likelihood or value; default: by the ladder.")] = None,
    checkpoint: Checkpoint = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Find the smallest class of models that explains logged episodes.

    Exit code 3: there are not enough data; 4: no class explains them.
    """
    from occamrl.envs.ladder_file import read_ladder
    from occamrl.logs.select import select as test
    from occamrl.report.answer import write_answer

    models = read_ladder(ladder, horizon=horizon)
    found = test(log, models, delta=delta, evidence=evidence, checkpoint=checkpoint)
    print_lines(found.as_data() if as_json else str(found).splitlines())
    if page is not None:
        write_answer(found, page)
    if found.verdict in UNDECIDED:
        raise typer.Exit(UNDECIDED[found.verdict])


@command()
def report(
    folder: Folder_,
    out: Annotated[Path | None, typer.Option(help="File of the page; by default DIR/report.html.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Directory for PDF, SVG and PNG files of every plot.")] = None,
) -> None:
    """Write one self-contained HTML page about an experiment."""
    from occamrl.report.page import write_report

    typer.echo(write_report(folder, out, figures))


@command()
def watch(
    folder: Folder_,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes any free one.")] = 0,
) -> None:
    """Serve the page of an experiment on this machine and renew it while cells run."""
    from occamrl.report.watch import serve

    serve(folder, port)


@command()
def certify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of certificates; by default all are tested.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer runs: two minutes instead of twenty.")] = False,
    out: Annotated[Path, typer.Option(help="Directory; measurements that it holds are kept.")] = Path("certificates"),
    workers: Workers = None,
    write: Annotated[Path | None, typer.Option(help="Also write the table to this file, as Markdown.")] = None,
    as_json: Json = False,
) -> None:
    """Test what the theory promises, together with controls that must fail. Exit code 1: a promise is refuted."""
    from occamrl.analysis import certificates
    from occamrl.report.page import write_certificates
    from occamrl.running.files import write_whole

    try:
        records = certificates.certify(out, names or (), quick=quick, workers=workers, say=tell)
    except KeyboardInterrupt:
        tell("Stopped. To continue, run the same command again.")
        raise
    page = write_certificates(records, out / "certificates.html")
    if write is not None:
        write_whole(write, certificates.markdown(records).encode())
    print_lines(certificates.as_data(records) if as_json else certificates.lines(records))
    tell(f"The page: {page}")
    if not all(record.good for record in records):
        raise typer.Exit(FAILED)


@command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the figures.")] = Path("demo"),
) -> None:
    """Run selectors on two built-in problems; print tables and draw figures."""
    from occamrl.demo import demonstrate

    demonstrate(out, typer.echo)


@command("list")
def list_names(as_json: Json = False) -> None:
    """List all problems, families, learners, selectors, rules, specs and ladders, with the package of each."""
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
    kind: Annotated[str, typer.Argument(help="One of learner, rule, problem.")],
    name: Annotated[str, typer.Argument(help="The name of the class, such as UCBVI.")],
    out: Annotated[Path | None, typer.Option(help="File to write; by default the name in lower case.")] = None,
) -> None:
    """Write a template for a class of your own, which passes the contract checks and can be named in a spec."""
    from occamrl.running.files import there, write_whole

    require_choice("kind", kind, ("learner", "rule", "problem"))
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ParameterError("name", got=repr(name), expected="the name of a Python class, such as UCBVI")
    path = out if out is not None else Path(f"{name.lower()}.py")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ParameterError("out", got=str(path), expected="a file that can be imported, such as ucbvi.py")
    if there(path):
        raise ParameterError("out", got=f"{path}, which exists", expected="a new file; --out names another one")
    template = resources.files("occamrl").joinpath("templates", f"{kind}.txt").read_text("utf-8")
    write_whole(path, template.replace("NAME", name).replace("MODULE", path.stem).encode())
    typer.echo(f"{path} is written; to check it: python {shlex.quote(str(path))}")


@command()
def learn(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="Name of a registered Gymnasium environment.")],
    ladder: LadderName,
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the environment and the agent.")] = 0,
    horizon: Horizon = None,
    options: Annotated[list[str] | None, typer.Option("--with", help="key=value for the environment.")] = None,
    modules: Modules = None,
    delta: Annotated[float, typer.Option(help="Largest probability that the verdict is wrong.")] = 0.05,
    rewards: Annotated[str | None, typer.Option(help="known, bernstein or hoeffding, instead of the ladder's.")] = None,
    kernel: Annotated[str | None, typer.Option(help="stationary or per_step, instead of the ladder's.")] = None,
    evidence: Annotated[str, typer.Option(help="value: ARL-GEN; likelihood: Occam, on lists of kernels.")] = "value",
    safe: Annotated[bool, typer.Option(help="Be optimistic over all models that are not rejected.")] = False,
    compare: Annotated[bool, typer.Option(help="Also play the oracle, the largest and the smallest class.")] = False,
    checkpoint: Checkpoint = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Learn in a Gymnasium environment and find the smallest class of a ladder of models that explains it."""
    from occamrl.envs.ladder_file import read_ladder
    from occamrl.envs.wrapper import FiniteEnvironment
    from occamrl.learners.rewards import BOUNDS
    from occamrl.registry import import_modules
    from occamrl.report.answer import write_answer
    from occamrl.running.run import learn as learn_in

    import_modules(_findable(modules), field="--import")
    if rewards is not None:
        require_choice("--rewards", rewards, ("known", *BOUNDS))
    require_choice("--evidence", evidence, ("value", "likelihood"))
    estimate = {"per_pair": rewards} if rewards in BOUNDS else rewards
    spec = read_ladder(ladder, horizon=horizon, rewards=estimate, kernel=kernel)
    env = _make_environment(env_id, options or ())
    environment = FiniteEnvironment(env, known=spec.known, reward_range=tuple(spec.rewards))
    selector, *others = _agents(spec, environment, evidence, delta=delta, safe=safe, compare=compare)
    found = _quick_preflight(spec, environment, episodes, delta, evidence)
    if not as_json:
        tell(_forecast(found, spec, environment, safe=safe))
    for name, agent in (selector, *others):
        first = name == selector[0]
        path = checkpoint if first else None
        result = learn_in(agent, environment, episodes=episodes, seed=seed, checkpoint=path)
        about = {"agent": name, **_outcome(result, spec)}
        if first and found is not None:
            about |= {"blind_pairs": len(found.blind), "pairs_tried": found.pairs_tried}
        print_lines(about if as_json else _lines(about))
        if first and page is not None:
            write_answer(result, page)


def _findable(modules: Sequence[str] | None) -> list[str]:
    """Return the user's modules; the current folder is looked into, as `python -m` does and the command does not."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    return list(modules or ())


def _make_environment(identifier: str, options: Sequence[str]) -> gym.Env[Any, Any]:
    """Return the registered environment of that name; ``options`` are ``key=value`` with values as in TOML."""
    from occamrl.envs.wrapper import make_environment

    if ":" in identifier:
        raise ParameterError("ENV_ID", got=identifier, expected="a name without a module; import that with --import")
    parameters: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        if not key.isidentifier() or not value:
            raise ParameterError("--with", got=option, expected="key=value, the value as in TOML")
        try:
            parameters[key] = tomllib.loads(f"value = {value}")["value"]
        except (ValueError, RecursionError):  # a string without quotes
            parameters[key] = value
    return make_environment("ENV_ID", identifier, parameters)


def _agents(
    spec: LadderSpec, environment: FiniteEnvironment, evidence: str, *, delta: float, safe: bool, compare: bool
) -> list[tuple[str, Agent]]:
    """Return who is to learn, with names: the selector, then what it is compared with."""
    from occamrl.selectors.arl_gen import ARLGen
    from occamrl.selectors.occam import Occam
    from occamrl.selectors.references import largest, oracle, smallest

    ladder, options = spec.ladder, {"delta": delta, **spec.options}
    found: list[tuple[str, Agent]] = [("ARL-GEN", ARLGen(ladder=ladder, safe=safe, **options))]
    if evidence == "likelihood":
        found = [("Occam", Occam(ladder=ladder, scope="all" if safe else "smallest", **options))]
    if compare:
        right = None if environment.mdp is None else ladder.class_of(environment.mdp)
        if right is not None:
            found.append((f"oracle ({spec.names[right - 1]})", oracle(ladder, right, **options)))
        found += [("largest class", largest(ladder, **options)), ("smallest class", smallest(ladder, **options))]
    return found


def _quick_preflight(
    spec: LadderSpec, environment: FiniteEnvironment, episodes: int, delta: float, evidence: str
) -> Preflight | None:
    """Return a quick preflight: a few kernels of each class, from the most likely first state (0 if unknown).

    None where rewards are unknown or each step has its own kernel: it looks at plans for known rewards and one kernel.
    """
    from occamrl.analysis.preflight import preflight

    if spec.options != {"rewards": "known", "kernel": "stationary"}:
        return None
    start = 0 if environment.mdp is None else int(environment.mdp.initial_distribution.argmax())
    few: dict[str, Any] = {"truths": _FEW, "members": _FEW, "evidence": evidence}
    return preflight(spec.ladder, spec.known, episodes=episodes, delta=delta, start=start, **few)


def _forecast(found: Preflight | None, spec: LadderSpec, environment: FiniteEnvironment, *, safe: bool) -> str:
    """Return what the preflight says, in a line."""
    if found is None:
        return "preflight: none, since it looks at plans for known rewards and one kernel for all steps"
    if not found.blind:
        return f"preflight: no blind pairs among {found.pairs_tried:,} tried; a wrong class would be noticed"
    worst = max(found.blind, key=lambda pair: pair.loss_per_episode)
    loss = found.worst_loss * environment.rewards.scale
    advice = "--safe was chosen" if safe else "--safe avoids it, at some cost in regret"
    return (
        f"preflight: {len(found.blind):,} blind pairs among {found.pairs_tried:,} tried: "
        f"{spec.names[worst.rung - 1]!r}, though wrong, could go unnoticed in {found.episodes:,} episodes "
        f"and lose {loss:.3g} in each; {advice}"
    )


def _outcome(result: Result, spec: LadderSpec) -> dict[str, Any]:
    """Return a result as plain data, in the environment's own unit."""
    verdict, environment = result.verdict, result.environment
    about: dict[str, Any] = {
        "environment": None if environment is None else environment.name,
        "episodes": result.total_episodes,
        "steps": result.steps,
        "realised_return_per_episode": result.total_return / max(1, result.total_episodes),
        "regret": result.total_regret,
        "regret_unknown_because": None if environment is None else environment.why_not or None,
    }
    if "chosen" in verdict:
        about |= {
            "chosen": verdict["chosen"],
            "rung": spec.names[verdict["chosen"] - 1],
            "since_episode": verdict["since"],
            "rungs": list(spec.names),
            "sizes": spec.ladder.sizes,
            "statistics": list(verdict["statistics"]),
            "threshold": verdict["threshold"],
            "outside": verdict.get("outside"),  # None: not tested
            "verdict": list(verdict.sentences),
        }
    return about


def _lines(about: dict[str, Any]) -> list[str]:
    """Return what a person is told of one agent."""
    exact = "no exact regret" if about["regret"] is None else f"exact regret {about['regret']:,.2f}"
    found = [
        f"{about['agent']}: {about['episodes']:,} episodes, {about['steps']:,} steps, realised return "
        f"{about['realised_return_per_episode']:,.4g} an episode, {exact}"
    ]
    if about["regret_unknown_because"]:
        found.append(f"  ({about['regret_unknown_because']})")
    return found + [f"  {sentence}" for sentence in about.get("verdict", ())]


def main() -> None:
    """Entry point of the ``occamrl`` command.

    A command that was started without standard streams (``2>&-``) gets ones that lead nowhere. Otherwise the next files
    that are opened take their numbers, and are taken for them by processes that are started.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  # open for as long as the process
            setattr(sys, name, stream)
    if {*sys.argv[1:2]} & {"status", "verify", "report"} and "--figures" not in sys.argv:
        gc.disable()  # these read much plain data, in which nothing refers to itself, and end
    app()
