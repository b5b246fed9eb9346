"""The command line: thin, it parses, calls and prints.

Exit codes: 0 all is well; 1 some cells failed, something is damaged or could not be written; 2 bad input; 130 stopped
by Ctrl-C. `select` also has 3 (not enough data) and 4 (no class of the ladder explains them).

Lines or JSON go to standard output; an error is one message and an exit code. What a command needs is imported when it
is called, so that `--help` does not wait for it.
"""

from __future__ import annotations

import contextlib
import json
import keyword
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
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
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output, JSON lines on standard output.")]
Page = Annotated[Path | None, typer.Option(help="Write a page for a colleague there: question, answer, evidence.")]

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


@contextlib.contextmanager
def reported_errors(as_json: bool = False) -> Iterator[None]:
    """Turn the package's errors into one message and an exit code; for a program, also into a line of JSON."""
    try:
        yield
    except KeyboardInterrupt:
        tell("stopped")
        raise typer.Exit(INTERRUPTED) from None
    except OccamRLError as error:
        for line in str(error).splitlines():
            tell(line)
        if as_json:
            faults = {"faults": [asdict(fault) for fault in error.faults]} if isinstance(error, SpecError) else {}
            with contextlib.suppress(OSError):  # the message has been written, the code will be
                print_lines({"event": "error", "kind": type(error).__name__, "text": str(error), **faults})
        bad = isinstance(error, InvalidInput) and not isinstance(error, RecordError)
        raise typer.Exit(BAD_INPUT if bad else FAILED) from error
    except OSError as error:  # of standard output; those of our own files are StorageErrors
        if not isinstance(error, BrokenPipeError):  # whoever reads has gone: nobody is left to tell
            tell(f"cannot write to standard output: {error}")
        try:
            sys.stdout.flush()
        except OSError:  # lead it nowhere: Python would try once more when it ends, and complain
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        raise typer.Exit(FAILED) from error


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


Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one per processor.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask scheduler, tcp://host:8786.")]
CheckpointEvery = Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints of a cell.")]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a module of yours, also from the current folder."),
]
Silence = Annotated[float, typer.Option(min=1.0, help="Seconds without news until a worker, or Dask, is given up.")]


@app.command()
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
    """Run an experiment, or what is left of it.

    The modules of your own that a spec lists under `import` are imported if each is named with --import as well.
    """
    _execute(out, as_json, (workers, scheduler, checkpoint_every, silence), modules or (), spec)


@app.command()
def arena(
    out: Annotated[Path, typer.Option(help="Directory; created if missing, resumed if it holds this arena.")],
    spec: Annotated[
        str, typer.Argument(metavar="[NAME|SPEC]", help="A shipped arena, such as ice, or a TOML file.")
    ] = "ladder",
    workers: Workers = None,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Let selectors, and rules over bases, play the same seeds; print the league table and write the page."""
    from occamrl.experiments.spec import shipped

    _execute(
        out,
        as_json,
        (workers, None, 30.0, 600.0),
        modules or (),
        f"arena-{spec}" if f"arena-{spec}" in shipped() else spec,
    )
    with reported_errors(as_json):
        from occamrl.experiments.records import load
        from occamrl.report.data import build
        from occamrl.report.league import lines
        from occamrl.report.page import write_report

        records = load(out)
        tables = build(records)["league"]
        print_lines({"league": tables} if as_json else lines(tables))
        tell(f"The page: {write_report(records)}")


@app.command()
def resume(
    folder: Folder_,
    workers: Workers = None,
    scheduler: Scheduler = None,
    checkpoint_every: CheckpointEvery = 30.0,
    silence: Silence = 600.0,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Go on with an experiment that was stopped, killed, or had cells that failed."""
    _execute(folder, as_json, (workers, scheduler, checkpoint_every, silence), modules or ())


def _execute(
    path: Path,
    as_json: bool,
    options: tuple[int | None, str | None, float, float],
    modules: Sequence[str],
    spec: str | None = None,
) -> None:
    with reported_errors(as_json):
        from occamrl.experiments.display import JsonLines, display_for
        from occamrl.experiments.execution import Experiment, Options, execute
        from occamrl.experiments.records import Folder

        workers, scheduler, checkpoint_every, silence = options
        how = Options(workers, scheduler, max(checkpoint_every, 1e-3), silence)
        _look_here(modules)
        experiment = None if spec is None else Experiment.from_toml(spec, imports=modules)
        with JsonLines(sys.stdout) if as_json else display_for() as display:
            tally = execute(Folder(path), how, display, experiment, modules)
            finished = tally.done + tally.earlier
            display({"event": "end", "finished": finished, "failed": len(tally.failed), "stopped": tally.stopped})
        name = shlex.quote(str(path))  # to be pasted into a shell
        again = f"occamrl resume {name}" + "".join(f" --import {module}" for module in modules)
        if tally.stopped:
            tell(f"Stopped. Go on with: {again}")
            raise typer.Exit(INTERRUPTED)
        if not as_json:
            tell(f"{finished} cells finished, {len(tally.failed)} failed: {path}")
        if tally.failed:
            tell(f"See why with: occamrl status {name}; try again with: {again}")
            raise typer.Exit(FAILED)
        if not as_json:
            tell(f"next: occamrl report {name}")


@app.command()
def status(folder: Folder_, as_json: Json = False) -> None:
    """Say how far an experiment is."""
    with reported_errors(as_json):
        from occamrl.experiments import display, records

        now, holder = records.status(folder), records.holder_of(folder / "lock")
        print_lines(display.as_data(now, holder) if as_json else display.lines(now, holder))
        if now.damaged:
            raise typer.Exit(FAILED)


@app.command()
def verify(
    folder: Folder_,
    quarantine: Annotated[bool, typer.Option(help="Move damaged cells to DIR/quarantine.")] = True,
    as_json: Json = False,
) -> None:
    """Compare every byte with its digest, put damaged cells aside and say how to run them again."""
    with reported_errors(as_json):
        from occamrl.experiments import display, records

        records.Folder(folder).experiment()
        with records.FolderLock(folder / "lock") if quarantine else contextlib.nullcontext():
            found = records.verify(folder, quarantine=quarantine)
        data = {"damaged": [asdict(damage) for damage in found]}
        print_lines(data if as_json else display.damage_lines(found, folder))
        if found:
            raise typer.Exit(FAILED)


@app.command()
def select(
    log: Annotated[str, typer.Argument(help="A Parquet or CSV file, or minari:ID for a Minari dataset.")],
    ladder: Annotated[str, typer.Option(metavar="SPEC", help="A TOML file of models, or a shipped ladder.")],
    delta: Annotated[float, typer.Option(help="Probability of rejecting the right class, at most.")] = 0.05,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps of an episode, instead of the spec's.")] = None,
    evidence: Annotated[str | None, typer.Option(help="likelihood or value; by default what suits the ladder.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="File to save to, and to go on from.")] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Say how rich a model logged episodes ask for. Exit code 3: not enough data; 4: no class explains them."""
    with reported_errors(as_json):
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


@app.command()
def report(
    folder: Folder_,
    out: Annotated[Path | None, typer.Option(help="The page; by default DIR/report.html.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Directory for PDF, SVG and PNG of every plot.")] = None,
) -> None:
    """Write one self-contained HTML page about an experiment."""
    with reported_errors():
        from occamrl.report.page import write_report

        typer.echo(write_report(folder, out, figures))


@app.command()
def watch(
    folder: Folder_,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")] = 0,
) -> None:
    """Serve the page on this machine while cells run."""
    with reported_errors():
        from occamrl.report.watch import serve

        serve(folder, port)


@app.command()
def certify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Some certificates; by default all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs: two minutes instead of twenty.")] = False,
    out: Annotated[Path, typer.Option(help="Directory of measurements; those found there are kept.")] = Path(
        "certificates"
    ),
    workers: Workers = None,
    write: Annotated[Path | None, typer.Option(help="Also write the table as Markdown, to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure what the theory promises, beside controls that must fail. Exit code 1: a promise is refuted."""
    with reported_errors(as_json):
        from occamrl.analysis import certificates
        from occamrl.report.page import write_certificates
        from occamrl.running.files import write_whole

        try:
            records = certificates.certify(out, names or (), quick=quick, workers=workers, say=tell)
        except KeyboardInterrupt:
            tell("Stopped. The same command goes on with what is left.")
            raise
        page = write_certificates(records, out / "certificates.html")
        if write is not None:
            write_whole(write, certificates.markdown(records).encode())
        print_lines(certificates.as_data(records) if as_json else certificates.lines(records))
        tell(f"The page: {page}")
        if not all(record.good for record in records):
            raise typer.Exit(FAILED)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the figure.")] = Path("demo"),
) -> None:
    """Run the learners on built-in problems; print a table and draw a figure."""
    with reported_errors():
        from occamrl.demo import demonstrate

        demonstrate(out, typer.echo)


@app.command("list")
def list_names(as_json: Json = False) -> None:
    """List problems, families, learners, selectors, rules, specs and ladders, and which package brings them."""
    with reported_errors(as_json):
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


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help="learner, rule or problem.")],
    name: Annotated[str, typer.Argument(help="The name of the class, such as UCBVI.")],
    out: Annotated[Path | None, typer.Option(help="The file; by default the name in small letters, here.")] = None,
) -> None:
    """Write a small class of your own to start from: it passes its check and can be named in a spec."""
    with reported_errors():
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
        typer.echo(f"{path}: run it to check it: python {shlex.quote(str(path))}")


@app.command()
def version() -> None:
    """Print the version."""
    with reported_errors():
        typer.echo(__version__)


@app.command()
def learn(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="A registered Gymnasium environment.")],
    ladder: Annotated[str, typer.Option(help="A TOML file of models, or the name of a shipped ladder.")],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes, in all.")],
    seed: Annotated[int, typer.Option(min=0)] = 0,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps of an episode, instead of the ladder's.")] = None,
    options: Annotated[list[str] | None, typer.Option("--with", help="key=value for the environment.")] = None,
    modules: Modules = None,
    delta: Annotated[float, typer.Option(help="How often the verdict may be wrong.")] = 0.05,
    rewards: Annotated[str | None, typer.Option(help="known, bernstein or hoeffding, instead of the ladder's.")] = None,
    kernel: Annotated[str | None, typer.Option(help="stationary or per_step, instead of the ladder's.")] = None,
    evidence: Annotated[str, typer.Option(help="value: ARL-GEN; likelihood: Occam, on lists of kernels.")] = "value",
    safe: Annotated[bool, typer.Option(help="Be optimistic over all models that are left.")] = False,
    compare: Annotated[bool, typer.Option(help="Also play the oracle, the largest and the smallest class.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="Save there, and go on from there.")] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Learn in a Gymnasium environment and say which rung of a ladder of models it needs."""
    with reported_errors(as_json):
        from occamrl.envs.ladder_file import read_ladder
        from occamrl.envs.wrapper import FiniteEnvironment
        from occamrl.learners.rewards import BOUNDS
        from occamrl.registry import import_modules
        from occamrl.report.answer import write_answer
        from occamrl.running.run import learn as learn_in

        _look_here(modules or ())
        import_modules(modules or (), field="--import")
        if rewards is not None:
            require_choice("--rewards", rewards, ("known", *BOUNDS))
        estimate = {"per_pair": rewards} if rewards in BOUNDS else rewards
        spec = read_ladder(ladder, horizon=horizon, rewards=estimate, kernel=kernel)
        env = _make_environment(env_id, options or ())
        environment = FiniteEnvironment(env, known=spec.known, reward_range=tuple(spec.rewards))
        require_choice("--evidence", evidence, ("value", "likelihood"))
        everybody = agents(
            spec, environment, delta=delta, safe=safe, compare=compare, evidence=evidence
        )  # checks delta
        found = _quick_preflight(spec, environment, episodes, delta, evidence)
        if not as_json:
            tell(_forecast(found, spec, environment, safe=safe))
        selector = next(iter(everybody))
        for name, agent in everybody.items():
            path = checkpoint if name == selector else None
            result = learn_in(agent, environment, episodes=episodes, seed=seed, checkpoint=path)
            about = {"agent": name, **as_data(result, spec)}
            if name == selector and found is not None:
                about |= {"blind_pairs": len(found.blind), "pairs_tried": found.pairs_tried}
            print_lines(about if as_json else _lines(about))
            if name == selector and page is not None:
                write_answer(result, page)


def _look_here(modules: Sequence[str]) -> None:
    """Let modules be found in the current folder: the installed command does not look there, `python -m` does."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")


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
        except tomllib.TOMLDecodeError:  # a string without quotes
            parameters[key] = value
    return make_environment("ENV_ID", identifier, parameters)


def agents(
    spec: LadderSpec,
    environment: FiniteEnvironment,
    *,
    delta: float,
    safe: bool,
    compare: bool,
    evidence: str = "value",
) -> dict[str, Agent]:
    """Return who is to learn, by name: the selector, and what it is compared with."""
    from occamrl.selectors.arl_gen import ARLGen
    from occamrl.selectors.occam import Occam
    from occamrl.selectors.references import largest, oracle, smallest

    options: dict[str, Any] = {"delta": delta, **spec.options}
    found: dict[str, Agent] = {}
    if evidence == "likelihood":
        found["Occam"] = Occam(ladder=spec.ladder, scope="all" if safe else "smallest", **options)
    else:
        found["ARL-GEN"] = ARLGen(ladder=spec.ladder, safe=safe, **options)
    if compare:
        right = None if environment.mdp is None else spec.ladder.class_of(environment.mdp)
        if right is not None:
            found[f"oracle ({spec.names[right - 1]})"] = oracle(spec.ladder, right, **options)
        found["largest class"] = largest(spec.ladder, **options)
        found["smallest class"] = smallest(spec.ladder, **options)
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


def as_data(result: Result, spec: LadderSpec) -> dict[str, Any]:
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
    regret = about["regret"]
    exact = f"exact regret {regret:,.2f}" if regret is not None else "no exact regret"
    found = [
        f"{about['agent']}: {about['episodes']:,} episodes, {about['steps']:,} steps, realised return "
        f"{about['realised_return_per_episode']:,.4g} an episode, {exact}"
    ]
    if about["regret_unknown_because"]:
        found.append(f"  ({about['regret_unknown_because']})")
    if "rung" in about:
        for m, name in enumerate(about["rungs"]):
            mark = "->" if m + 1 == about["chosen"] else "  "
            count = about["sizes"][m]
            statistic = about["statistics"][m]
            told = "impossible" if statistic is None else f"statistic {statistic:.6f}"
            found.append(f"  {mark} {name}: {count} model{'s' * (count > 1)}, {told}")
        threshold = about["threshold"]
        limit = "no data yet" if threshold is None else f"accepted up to {threshold:.6f}"
        found.append(f"  ({limit})")
        found += [f"  {sentence}" for sentence in about["verdict"]]
    return found


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
