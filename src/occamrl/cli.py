"""The command line: thin, it parses, calls and prints.

Exit codes: 0 all is well; 1 some cells failed, something is damaged or could not be written; 2 bad
input; 130 stopped by Ctrl-C. `select` also has 3 (not enough data) and 4 (no class of the ladder
explains them).

A file of models (`--model shop.py:ladder`) and a module (`--import`) are the user's code, run
because they are named.

Lines or JSON go to standard output; an error is one message on standard error and an exit code.
What a command needs is imported when it is called, so that `--help` does not wait for it.
"""

from __future__ import annotations

import functools
import json
import keyword
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from occamrl import __version__

if TYPE_CHECKING:
    from occamrl.running.result import Result

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
UNDECIDED = {"not enough data": 3, "misspecified": 4}  # answers of `select` that name no class
TEMPLATES = ("model", "problem", "learner", "selector", "rule", "ladder", "spec")
FEW = 12  # kernels of each class that the preflight tries: a second or two at most

YOURS = ("select", "learn", "act", "observe", "demo", "new")  # commands that come first in the help

FolderName = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of an experiment.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of text.")]
Page = Annotated[
    Path | None, typer.Option(help="Also write an HTML page: answer, evidence, policy.")
]
LadderName = Annotated[
    str | None, typer.Option(help="A TOML file of models, or the name of a shipped ladder.")
]
ModelName = Annotated[
    str | None,
    typer.Option(metavar="FILE.py:NAME", help="Models in a Python file of yours, which is run."),
]
AgentFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="An agent's file; a new agent if there is none yet.")
]
StateName = Annotated[
    str, typer.Option(help="The state, as your models name it; a tuple as 4,0 or 4+0.")
]
Begins = Annotated[
    bool, typer.Option("--begin", help="Begin a new episode; one that is open counts as truncated.")
]
Horizon = Annotated[
    int | None, typer.Option(min=1, help="Steps of an episode, instead of the ladder's.")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of worker processes; by default one per processor."),
]
Scheduler = Annotated[
    str | None, typer.Option(help="Run on a Dask cluster: the address of its scheduler.")
]
Rewards = Literal["known", "bernstein", "hoeffding"]
Evidence = Literal["value", "likelihood"]
Scope = Literal["smallest", "all"]
Unlisted = Literal["error", "drop"]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module of your own; the current folder is searched too.",
    ),
]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def occamrl(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Occam's razor for reinforcement learning."""


def command(name: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
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
                    print_lines(
                        {
                            "event": "error",
                            "kind": type(error).__name__,
                            "text": str(error),
                            "faults": faults,
                        }
                    )
                bad = isinstance(error, InvalidInput) and not isinstance(error, RecordError)
                raise typer.Exit(BAD_INPUT if bad else FAILED) from None
            except BrokenPipeError:  # whoever reads has gone: typer ends silently
                raise
            except (OSError, MemoryError, ImportError) as error:
                tell(f"{type(error).__name__}: {error}")
                raise typer.Exit(FAILED) from None

        called = name or function.__name__
        app.command(called, rich_help_panel="Your system" if called in YOURS else "Experiments")(
            call
        )
        app.registered_commands.sort(key=lambda each: [*YOURS, each.name].index(each.name))
        return call

    return register


def printable(text: object) -> str:
    """Return text with everything that could steer a terminal made visible."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(text))


def tell(*lines: str) -> None:
    """Print lines for people on standard error."""
    for line in lines:
        typer.echo(printable(line), err=True)


def print_lines(lines: Sequence[str] | dict[str, Any]) -> None:
    """Print lines for people, or data as one line of JSON."""
    for line in (
        [json.dumps(lines, default=str)] if isinstance(lines, dict) else map(printable, lines)
    ):
        typer.echo(line)


@command()
def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("demo"),
) -> None:
    """Let a selector find out how slippery a lake is; print its answer and a comparison, and draw a figure."""
    from occamrl.demo import demonstrate

    demonstrate(folder, typer.echo)


@command()
def run(
    spec: Annotated[
        str, typer.Argument(help="A TOML file, or the name of a shipped spec (see `occamrl list`).")
    ],
    folder: Annotated[
        Path,
        typer.Option(help="Folder; created if missing, continued if it holds this experiment."),
    ],
    workers: Workers = None,
    scheduler: Scheduler = None,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Run the cells of an experiment that are not finished yet.

    A spec may list modules of your own under `import`; each of them has to be named with --import
    as well.
    """
    _play_cells(folder, spec, modules, as_json, workers=workers, scheduler=scheduler)


@command()
def resume(
    folder: FolderName,
    workers: Workers = None,
    scheduler: Scheduler = None,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Continue an experiment that was stopped or killed, or in which cells failed."""
    _play_cells(folder, None, modules, as_json, workers=workers, scheduler=scheduler)


def _play_cells(
    path: Path, spec: str | None, modules: list[str] | None, as_json: bool, **options: Any
) -> None:
    """Play the cells of a spec, or without one those of the folder, that are not finished."""
    from occamrl.experiments.execution import Experiment

    def listen(event: dict[str, Any]) -> None:
        if as_json:
            print_lines(event)
        elif event["event"] in ("failed", "retry"):
            tell(
                f"{event['event']} {event['problem']} / {event['agent']} / seed {event['seed']}: {event['text']}"
            )

    imports, options = (
        _findable(modules),
        {**options, "progress": False if as_json else None, "listen": listen},
    )
    if spec is None:
        records = Experiment.resume(path, imports=imports, **options)
    else:
        records = Experiment.from_toml(spec, imports=imports).run(path, **options)
    failed, name = len(records.failed), shlex.quote(str(path))  # to be pasted into a shell
    if as_json:
        print_lines(
            {"event": "end", "finished": len(records.cells), "failed": failed, "stopped": False}
        )
    else:
        tell(f"{len(records.cells)} cells finished, {failed} failed: {path}")
    if failed:
        again = f"occamrl resume {name}" + "".join(f" --import {module}" for module in imports)
        tell(f"To see why: occamrl status {name}; to try again: {again}")
        raise typer.Exit(FAILED)
    if not as_json:
        tell(f"Next: occamrl report {name}")


@command()
def status(folder: FolderName, as_json: Json = False) -> None:
    """Show the progress of an experiment."""
    from occamrl.experiments.records import status as look

    now = look(folder)
    damaged = {cell: str(error) for cell, error in now.damaged.items()}
    if as_json:
        counts = {
            "cells": now.total,
            "finished": len(now.cells),
            "begun": len(now.begun),
            "missing": len(now.missing),
        }
        print_lines({"name": now.name, **counts, "failed": now.failures, "damaged": damaged})
    else:
        lines = [
            f"failed {each['cell']} ({each['who']}): {each['reason']}" for each in now.failures
        ]
        lines += [f"damaged {cell}: {error}" for cell, error in damaged.items()]
        print_lines([*str(now).splitlines(), *lines])
    if damaged:
        raise typer.Exit(FAILED)


@command()
def verify(folder: FolderName, as_json: Json = False) -> None:
    """Check every file against its digest; move damaged ones to FOLDER/quarantine and say how to run them again."""
    from occamrl.experiments.records import verify as check

    found = check(folder, quarantine=True)
    if as_json:
        print_lines({"damaged": [damage._asdict() for damage in found]})
    else:
        moved = [f" (moved to {damage.moved_to})" if damage.moved_to else "" for damage in found]
        lines = [f"{damage.problem}{where}" for damage, where in zip(found, moved, strict=True)]
        advice = (
            [f"To run them again: occamrl resume {shlex.quote(str(folder))}"] if any(moved) else []
        )
        print_lines([*lines, *advice] if found else ["Every file is as it was written."])
    if found:
        raise typer.Exit(FAILED)


@command()
def report(
    folder: FolderName,
    out: Annotated[
        Path | None, typer.Option(help="File of the page; by default FOLDER/report.html.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for PDF, SVG and PNG files of every plot.")
    ] = None,
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
        every = sorted(registry.named(kind).items())
        found[kind] = {
            name: own if name in registry.own(kind) else registry.source_of(each)
            for name, each in every
        }
    found["specs"], found["ladders"] = (
        dict.fromkeys(names, own) for names in (shipped(), shipped_ladders())
    )
    lines = []
    for kind, names in found.items():
        listed = [name if source == own else f"{name} ({source})" for name, source in names.items()]
        lines.append(f"{kind}: {', '.join(listed)}")
    print_lines(found if as_json else lines)


@command()
def new(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(TEMPLATES)}.")],
    name: Annotated[
        str, typer.Argument(help="The name of the class, such as UCBVI; or of the ladder or spec.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default the name in lower case.")
    ] = None,
) -> None:
    """Write a template: a class of your own that checks itself, or the TOML file of a ladder or an experiment."""
    from occamrl.errors import ParameterError, require_choice
    from occamrl.files import write_whole

    require_choice("kind", kind, TEMPLATES)
    ending = ".toml" if kind in ("ladder", "spec") else ".py"
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ParameterError(
            "name", got=repr(name), expected="the name of a Python class, such as UCBVI"
        )
    path = out if out is not None else Path(f"{name.lower()}{ending}")
    if path.suffix != ending or not path.stem.isidentifier():
        raise ParameterError(
            "out", got=str(path), expected=f"a file called like {name.lower()}{ending}"
        )
    if path.exists() or path.is_symlink():
        raise ParameterError(
            "out", got=f"{path}, which exists", expected="a new file; --out names another one"
        )
    template = resources.files("occamrl").joinpath("templates", f"{kind}.txt").read_text("utf-8")
    write_whole(path, template.replace("NAME", name).replace("MODULE", path.stem).encode())
    file = shlex.quote(str(path))
    use = {
        "spec": f"occamrl run {file} --folder {name.lower()}",
        "ladder": f"occamrl learn ENV_ID --ladder {file} ...",
    }
    typer.echo(
        f"{path} is written; to {'use' if kind in use else 'check'} it: {use.get(kind, f'python {file}')}"
    )


@command()
def learn(
    env_id: Annotated[
        str, typer.Argument(metavar="ENV_ID", help="Name of a registered Gymnasium environment.")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")],
    ladder: LadderName = None,
    model: ModelName = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the environment and the agent.")] = 0,
    horizon: Horizon = None,
    options: Annotated[
        list[str] | None, typer.Option("--with", help="key=value for the environment.")
    ] = None,
    modules: Modules = None,
    delta: Annotated[
        float, typer.Option(help="Largest probability that the right class is ruled out.")
    ] = 0.05,
    rewards: Annotated[
        Rewards, typer.Option(help="Known, or estimated with these bounds.")
    ] = "known",
    evidence: Annotated[
        Evidence | None,
        typer.Option(
            help="likelihood: Occam; value: ARL-GEN. Default: Occam unless models are covers."
        ),
    ] = None,
    scope: Annotated[
        Scope, typer.Option(help="Be optimistic over the smallest class, or over all.")
    ] = "smallest",
    compare: Annotated[
        bool, typer.Option(help="Also play the oracle, the largest and the smallest class.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save progress there; continue from it if it exists.")
    ] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Learn in a Gymnasium environment and find the smallest class of a ladder of models that explains it."""
    from occamrl.analysis.preflight import preflight
    from occamrl.envs.wrapper import FiniteEnvironment, make_environment
    from occamrl.errors import ParameterError
    from occamrl.learners.occam import Occam
    from occamrl.learners.rewards import RewardsPerPair
    from occamrl.models.ladder import Ladder
    from occamrl.registry import import_modules
    from occamrl.running.learn import learn as learn_in
    from occamrl.selectors.arl_gen import ARLGen
    from occamrl.selectors.references import on_class

    import_modules(_findable(modules), field="--import")
    if ":" in env_id:
        raise ParameterError(
            "ENV_ID", got=env_id, expected="a name without a module; import that with --import"
        )
    spec = _models(ladder, model, horizon)
    env, among = make_environment("ENV_ID", env_id, _options(options or ())), spec.ladder
    lists = getattr(among, "finite", False)
    judged_by_value = isinstance(among, Ladder) and (
        not among.finite or among.family.reach > 0.0
    )  # Occam refuses these
    evidence = evidence or ("value" if judged_by_value else "likelihood")
    if compare and not lists:
        raise ParameterError(
            "--compare", got="models that are no lists", expected="--ladder, with lists of kernels"
        )
    known = spec.known if rewards == "known" else spec.known.without_rewards
    environment = FiniteEnvironment(env, known=known, reward_range=tuple(spec.rewards))
    if not as_json and rewards == "known" and lists:
        settings: dict[str, Any] = {"episodes": episodes, "delta": delta, "evidence": evidence}
        forecast = preflight(among, spec.known, truths=FEW, members=FEW, **settings)
        tell(
            *f"preflight: {forecast}".splitlines(),
            *(["  here: --scope all"] if forecast.unidentifiable else []),
        )
    name, kind = ("Occam", Occam) if evidence == "likelihood" else ("ARL-GEN", ARLGen)
    agents: dict[str, Any] = {name: kind(ladder=among, scope=scope, delta=delta)}
    if compare:
        right = None if environment.mdp is None else among.class_of(environment.mdp)
        others = {} if right is None else {f"oracle ({spec.names[right - 1]})": right}
        for other, m in {**others, "largest class": among.classes, "smallest class": 1}.items():
            agents[other] = on_class(agents[name], m)
    for i, (name, agent) in enumerate(agents.items()):
        played = agent if rewards == "known" else RewardsPerPair(agent=agent, bound=rewards)
        path = None if i else checkpoint
        result = learn_in(played, environment, episodes=episodes, seed=seed, checkpoint=path)
        print_lines(_outcome(name, result) if as_json else _lines(name, result))
        if page is not None and not i:
            tell(f"The page: {result.page(page)}")


def _outcome(name: str, result: Result) -> dict[str, Any]:
    """Return what a program is told of one agent, in the environment's own unit."""
    environment, mean = result.environment, result.total_return / max(1, result.total_episodes)
    found = {"agent": name, "environment": environment.name, "episodes": result.total_episodes}
    found |= {"realised_return_per_episode": mean, "regret": result.total_regret}
    found |= {
        "regret_unknown_because": environment.why_not or None,
        "sentences": result.verdict.sentences,
    }
    return found | dict(result.verdict)


def _lines(name: str, result: Result) -> list[str]:
    """Return what a person is told of one agent."""
    exact = f"exact regret {result.total_regret:,.2f}" if result.exact else "no exact regret"
    mean = result.total_return / max(1, result.total_episodes)
    found = [
        f"{name}: {result.total_episodes:,} episodes, realised return {mean:,.4g} per episode, {exact}"
    ]
    if result.environment.why_not:
        found.append(f"  ({result.environment.why_not})")
    return found + [f"  {sentence}" for sentence in result.verdict.sentences]


def _findable(modules: Sequence[str] | None) -> list[str]:
    """Return the user's modules; the current folder is looked into, as `python -m` does and the command does not."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    return list(modules or ())


def _options(options: Sequence[str]) -> dict[str, Any]:
    """Return ``key=value`` as a dict."""
    from occamrl.errors import ParameterError

    found: dict[str, Any] = {}
    for key, _, value in (option.partition("=") for option in options):
        if not key.isidentifier() or not value:
            raise ParameterError(
                "--with", got=f"{key}={value}" if value else key, expected="key=value"
            )
        found[key] = _value(value)
    return found


@command()
def select(
    log: Annotated[
        str, typer.Argument(help="A Parquet or CSV file, or minari:ID for a Minari dataset.")
    ],
    ladder: LadderName = None,
    model: ModelName = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE=COLUMN,...",
            help="Which column is what: episode=shop,state=stock+weekday.",
        ),
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(help="The column that orders the rows of an episode.")
    ] = None,
    unlisted: Annotated[
        Unlisted, typer.Option(help="Refuse rows with names no model has, or drop them.")
    ] = "error",
    delta: Annotated[
        float, typer.Option(help="Largest probability that the right class is ruled out.")
    ] = 0.05,
    horizon: Horizon = None,
    evidence: Annotated[
        str | None, typer.Option(help="likelihood or value; default: by the ladder.")
    ] = None,
    agent: Annotated[
        Path | None, typer.Option(help="Also write an agent that has learned from the log.")
    ] = None,
    alarm: Annotated[
        float | None, typer.Option(help="Watch for changes, with so many false alarms per step.")
    ] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Find out which of your models a log requires, what to do, and what that is worth.

    Exit code 3: there are not enough data; 4: no class explains them.
    """
    from occamrl.logs.log import read_log
    from occamrl.logs.select import select as test

    spec: Any = _models(ladder, model, horizon, simulators=agent is None)
    steps: Any = log  # simulators know the columns state_0, ..., action_0, ...
    if hasattr(spec, "ladder") or columns is not None:
        steps = read_log(log, _columns(columns), order_by=order_by, unlisted=unlisted)
    found = test(steps, spec, delta=delta, evidence=evidence)
    print_lines(found.as_data() if as_json else str(found).splitlines())
    if page is not None:
        tell(f"The page: {found.page(page)}")
    if agent is not None:
        from occamrl.learners.occam import Occam
        from occamrl.running.agent import Agent

        Agent(Occam(ladder=spec.ladder), known=spec.known, alarm=alarm).learn_from(steps).save(
            agent
        )
        tell(f"The agent: {agent}")
    if found.status in UNDECIDED:
        raise typer.Exit(UNDECIDED[found.status])


@command()
def act(
    file: AgentFile,
    state: StateName,
    begin: Begins = False,
    ladder: LadderName = None,
    model: ModelName = None,
    as_json: Json = False,
) -> None:
    """Print the action that an agent recommends in a state."""
    found = _agent(file, ladder, model)
    if begin:
        found.begin_episode()
    here = _label(state, _names(found, "states"))
    action = found.act(here)
    print_lines({"state": here, "action": action} if as_json else [str(action)])


@command()
def observe(
    file: AgentFile,
    state: StateName,
    action: Annotated[str, typer.Option(help="What was done, by the agent or by others.")],
    next_state: Annotated[str, typer.Option(help="Where that led.")],
    reward: Annotated[
        float | None, typer.Option(help="In your unit; not needed where the models know it.")
    ] = None,
    ended: Annotated[bool, typer.Option("--ended", help="The episode is over.")] = False,
    begin: Begins = False,
    ladder: LadderName = None,
    model: ModelName = None,
) -> None:
    """Tell an agent what happened in a step, and save it."""
    found = _agent(file, ladder, model)
    if begin:
        found.begin_episode()
    here, after = (_label(each, _names(found, "states")) for each in (state, next_state))
    found.observe(here, _label(action, _names(found, "actions")), reward, after, ended)
    found.save(file)
    if found.alarm is not None:
        tell(str(found.alarm))


def _agent(file: Path, ladder: str | None, model: str | None) -> Any:
    """Return the agent in a file, or a new one of Occam."""
    from occamrl.learners.occam import Occam
    from occamrl.running.agent import Agent

    if ladder is None and model is None and file.exists():
        return Agent.load(file)
    spec = _models(ladder, model, None)
    algorithm = Occam(ladder=spec.ladder)
    if file.exists():
        return Agent.load(file, algorithm)
    tell(f"{file}: there is no such file; a new agent begins, which has learned nothing")
    return Agent(algorithm, known=spec.known)


def _models(
    ladder: str | None, model: str | None, horizon: int | None, simulators: bool = False
) -> Any:
    """Return the ladder in a TOML file, or the models in a Python file, with what is known and the unit of rewards."""
    from occamrl.control.ladder import SimulatorLadder
    from occamrl.envs.ladder_file import LadderSpec, read_ladder
    from occamrl.errors import ParameterError
    from occamrl.models.ladder import Ladder
    from occamrl.models.model import Model, ParametricLadder

    if (ladder is None) == (model is None):
        got = "neither" if model is None else "both"
        raise ParameterError(
            "--model", got=got, expected="--model FILE.py:NAME, or --ladder TOML, one of them"
        )
    if ladder is not None:
        return read_ladder(ladder, horizon=horizon)
    found = _named(str(model))
    if simulators and isinstance(found, SimulatorLadder):
        return found
    if isinstance(found, Model):
        found = found.ladder({"all parameters": list(found.box)})
    if isinstance(found, ParametricLadder):
        known = found.model.known
        if horizon not in (None, known.horizon):
            raise ParameterError(
                "--horizon", got=horizon, expected=f"{known.horizon}, which the model has"
            )
        models: Any = found
        return LadderSpec(ladder=models, known=known, rewards=known.unit)
    if isinstance(
        getattr(found, "ladder", None), Ladder
    ):  # with what is known, as read_ladder returns it
        return found
    expected = "model.ladder({...}), an orl.Model, or what read_ladder returns"
    raise ParameterError("--model", got=f"{model}, a {type(found).__name__}", expected=expected)


def _named(text: str) -> Any:
    """Return what a Python file calls a name; the file is run."""
    import importlib.util

    from occamrl.errors import ParameterError, UnknownName

    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier() or not Path(path).is_file():
        raise ParameterError(
            "--model", got=text, expected="FILE.py:NAME, a file that exists and a name in it"
        )
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None  # noqa: S101  # it ends in .py
    assert spec.loader is not None  # noqa: S101  # as above
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # of the user's code, which may raise anything
        got = f"{type(error).__name__}: {error}"
        raise ParameterError(f"--model {path}", got=got, expected="a file that runs") from error
    if not hasattr(module, name):
        raise UnknownName(
            f"--model {path}", got=name, known=[each for each in vars(module) if each[0] != "_"]
        )
    return getattr(module, name)


def _columns(text: str | None) -> dict[str, Any] | None:
    """Return ``role=column,role=one+two`` as a dict; nothing after the sign: there is none."""
    from occamrl.errors import ParameterError

    found: dict[str, Any] = {}
    for part in [] if text is None else text.split(","):
        role, sign, column = part.strip().partition("=")
        if not role or not sign:
            raise ParameterError("--columns", got=part, expected="role=column, or role=one+two")
        found[role] = column.split("+") if "+" in column else column or None
    return found or None


def _value(text: str) -> Any:
    """Return a number, a list or whatever else JSON has, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _names(agent: Any, kind: str) -> Sequence[Any]:
    """Return what an agent's models call states or actions."""
    return () if agent.known.names is None else tuple(getattr(agent.known.names, kind))


def _label(text: str, names: Sequence[Any]) -> Any:
    """Return the name of a state or an action; 4+0, 4,0 and (4, 0) are a tuple unless they are a name themselves."""
    label = _value(text)
    for sign in "+,":
        if isinstance(label, str) and label not in names and sign in label:
            label = tuple(_value(part.strip(" '")) for part in label.strip("()").split(sign))
    return label
