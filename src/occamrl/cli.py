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
import importlib.util
import json
import keyword
import shlex
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

import occamrl as orl  # whose names are imported when they are first used

if TYPE_CHECKING:
    from occamrl.envs.ladder_file import LadderSpec
    from occamrl.envs.wrapper import FiniteEnvironment
    from occamrl.naming import Names

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
UNDECIDED = {"not enough data": 3, "misspecified": 4}  # answers of `select` that name no class
TEMPLATES = ("model", "problem", "learner", "selector", "rule", "ladder", "spec")
FEW = 12  # kernels of each class that the preflight tries: a second or two at most

YOURS = ("select", "learn", "act", "observe", "demo", "new")  # commands that come first in the help

FolderName = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of an experiment.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of text.")]
Page = Annotated[
    Path | None, typer.Option(help="Also write an HTML page with answer, evidence and policy.")
]
LadderName = Annotated[
    str | None, typer.Option(help="A TOML file of models, or the name of a shipped ladder.")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME", help="Models in a Python file of your own; the file is run."
    ),
]
AgentFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file of an agent.")]
Fresh = Annotated[bool, typer.Option("--new", help="Begin with an agent that has learned nothing.")]
StateName = Annotated[
    str, typer.Option(help="The state, as your models name it; write tuples as 4,0 or 4+0.")
]
Begins = Annotated[
    bool, typer.Option("--begin", help="Begin a new episode; one that is open counts as truncated.")
]
Horizon = Annotated[
    int | None, typer.Option(min=1, help="Number of steps in an episode, instead of the ladder's.")
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
Gaps = Literal["cut", "error", "join"]
LoggedRewards = Literal["check", "model"]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module of your own; the current folder is searched, too.",
    ),
]

Command = Callable[..., None]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(orl.__version__)
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


def command(name: str = "", text: str | None = None) -> Callable[[Command], Command]:
    """Register a command whose errors become one message and an exit code.

    Its help is ``text``, or its docstring where that is a line.
    """

    def register(function: Command) -> Command:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> None:
            from occamrl.progress import insistent_ctrl_c  # which needs NumPy, as the help does not

            try:
                # Until here, and from here on, Ctrl-C ends the process at once.
                with insistent_ctrl_c():
                    function(*arguments, **options)
            except KeyboardInterrupt as stop:
                tell(str(stop) or "stopped")
                raise typer.Exit(INTERRUPTED) from None
            except orl.OccamRLError as error:
                tell(*str(error).splitlines())
                faults = error.faults if isinstance(error, orl.errors.SpecError) else ()
                event = {"event": "error", "kind": type(error).__name__, "text": str(error)}
                if options.get("as_json"):
                    show(True, {**event, "faults": [fault._asdict() for fault in faults]}, ())
                # What is wrong with a record is no bad input.
                bad = isinstance(error, orl.InvalidInput) and not isinstance(
                    error, orl.errors.RecordError
                )
                raise typer.Exit(BAD_INPUT if bad else FAILED) from None
            except BrokenPipeError:  # whoever reads has gone: typer ends silently
                raise
            except (OSError, MemoryError, ImportError) as error:
                tell(f"{type(error).__name__}: {error}")
                raise typer.Exit(FAILED) from None

        title = name or function.__name__
        panel = "Your system" if title in YOURS else "Experiments"
        app.command(title, help=text, rich_help_panel=panel)(call)
        app.registered_commands.sort(key=lambda info: [*YOURS, info.name].index(info.name))
        return call

    return register


def tell(*lines: str) -> None:
    """Print lines for people on standard error."""
    from occamrl.naming import printable  # which needs NumPy, as the help does not

    for line in lines:
        typer.echo(printable(line), err=True)


def show(as_json: bool, data: Mapping[str, object], lines: Sequence[str]) -> None:
    """Print data for a program, as one line of JSON, or lines for people."""
    from occamrl.naming import printable  # which needs NumPy, as the help does not

    if as_json:
        typer.echo(json.dumps(data, default=str))
        return
    for line in lines:
        typer.echo(printable(line))


# Experiments --------------------------------------------------------------------------------------


@command(
    text="Answer from the log of a shop whose full shelves sell more; then compare regret with the "
    "class of models told, selected and the largest. Writes the log, a page and a figure."
)
def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("demo"),
) -> None:
    """Tell a story in which selection matters, and measure what selection costs."""
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
    other_machine: Annotated[
        bool,
        typer.Option(help="Go on although another kind of machine began; last digits may differ."),
    ] = False,
) -> None:
    """Continue an experiment that was stopped or killed, or in which cells failed."""
    options = {"workers": workers, "scheduler": scheduler, "other_machine": other_machine}
    _play_cells(folder, None, modules, as_json, **options)


def _play_cells(
    path: Path, spec: str | None, modules: list[str] | None, as_json: bool, **options: Any
) -> None:
    """Play the cells of a spec, or without one those of the folder, that are not finished."""

    def listen(event: dict[str, Any]) -> None:
        if as_json:
            show(True, event, ())
        elif event["event"] in ("failed", "retry"):
            cell = f"{event['problem']} / {event['agent']} / seed {event['seed']}"
            tell(f"{event['event']} {cell}: {event['text']}")

    imports = _findable(modules)
    options |= {"progress": False if as_json else None, "listen": listen}
    if spec is None:
        records = orl.Experiment.resume(path, imports=imports, **options)
    else:
        records = orl.Experiment.from_toml(spec, imports=imports).run(path, **options)
    from occamrl.answers.wording import count_of

    done = len(records.cells)
    failed = len(records.failed)
    folder = shlex.quote(str(path))  # to be pasted into a shell
    if as_json:
        show(True, {"event": "end", "finished": done, "failed": failed, "stopped": False}, ())
    else:
        tell(f"{count_of(done, 'cell')} finished, {failed} failed: {path}")
    if failed:
        again = f"occamrl resume {folder}" + "".join(f" --import {module}" for module in imports)
        tell(f"To see why: occamrl status {folder}; to try again: {again}")
        raise typer.Exit(FAILED)
    if not as_json:
        tell(f"Next: occamrl report {folder}")


@command()
def status(folder: FolderName, as_json: Json = False) -> None:
    """Show the progress of an experiment."""
    from occamrl.experiments import records

    now = records.status(folder)
    damaged = {cell: str(error) for cell, error in now.damaged.items()}
    data = {
        "name": now.name,
        "cells": now.total,
        "finished": len(now.cells),
        "begun": len(now.begun),
        "missing": len(now.missing),
        "failed": now.failures,
        "damaged": damaged,
    }
    lines = str(now).splitlines()
    for failure in now.failures:
        lines.append(f"failed {failure['cell']} ({failure['who']}): {failure['reason']}")
    lines += [f"damaged {cell}: {error}" for cell, error in damaged.items()]
    show(as_json, data, lines)
    if damaged:
        raise typer.Exit(FAILED)


@command(
    text="Check every file against its digest; move damaged ones to FOLDER/quarantine and say "
    "how to run them again."
)
def verify(folder: FolderName, as_json: Json = False) -> None:
    """Check every file against its digest."""
    from occamrl.experiments import records

    damages = records.verify(folder, quarantine=True)
    lines = []
    for damage in damages:
        moved = f" (moved to {damage.moved_to})" if damage.moved_to else ""
        lines.append(damage.problem + moved)
    if any(damage.moved_to for damage in damages):
        lines.append(f"To run them again: occamrl resume {shlex.quote(str(folder))}")
    data = {"damaged": [damage._asdict() for damage in damages]}
    show(as_json, data, lines or ["Every file is as it was written."])
    if damages:
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


@command(
    "list",
    text="List all problems, learners, selectors, rules, specs and ladders, with the package of "
    "each.",
)
def list_names(as_json: Json = False) -> None:
    """List all names that can be used, with the package of each."""
    from importlib.metadata import EntryPoint

    from occamrl import registry
    from occamrl.envs.ladder_file import shipped_ladders
    from occamrl.experiments.spec import shipped

    ours = f"occamrl {orl.__version__}"
    sources: dict[str, dict[str, str]] = {}  # by kind and name
    for kind in registry.KINDS:
        sources[kind] = {}
        for name, entry in sorted(registry.named(kind).items()):
            source = registry.source_of(entry) if isinstance(entry, EntryPoint) else ours
            sources[kind][name] = source
    sources["specs"] = dict.fromkeys(shipped(), ours)
    sources["ladders"] = dict.fromkeys(shipped_ladders(), ours)
    lines = []
    for kind, names in sources.items():
        texts = [name if source == ours else f"{name} ({source})" for name, source in names.items()]
        lines.append(f"{kind}: {', '.join(texts)}")
    show(as_json, sources, lines)


@command(
    text="Write a template: a class of your own that checks itself, or the TOML file of a ladder "
    "or an experiment."
)
def new(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(TEMPLATES)}.")],
    name: Annotated[
        str, typer.Argument(help="The name of the class, such as UCBVI, or of the ladder or spec.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default, the name in lower case.")
    ] = None,
) -> None:
    """Write a template for a class, ladder or spec of your own."""
    from occamrl.files import write_whole

    orl.errors.require_choice("kind", kind, TEMPLATES)
    ending = ".toml" if kind in ("ladder", "spec") else ".py"
    if not name.isidentifier() or keyword.iskeyword(name):
        raise orl.errors.ParameterError(
            "name", got=repr(name), expected="the name of a Python class, such as UCBVI"
        )
    default = f"{name.lower()}{ending}"
    path = out or Path(default)
    if path.suffix != ending or not path.stem.isidentifier():
        raise orl.errors.ParameterError(
            "out", got=str(path), expected=f"a file called like {default}"
        )
    if path.exists() or path.is_symlink():
        raise orl.errors.ParameterError(
            "out", got=f"{path}, which exists", expected="a new file; --out names another one"
        )
    template = resources.files("occamrl").joinpath("templates", f"{kind}.txt").read_text("utf-8")
    write_whole(path, template.replace("NAME", name).replace("MODULE", path.stem).encode())
    file = shlex.quote(str(path))
    advice = f"check it: python {file}"
    if kind == "spec":
        advice = f"use it: occamrl run {file} --folder {name.lower()}"
    elif kind == "ladder":
        advice = f"use it: occamrl learn ENV_ID --ladder {file} ..."
    typer.echo(f"{path} is written; to {advice}")


# Your system --------------------------------------------------------------------------------------


@command(
    text="Learn in a Gymnasium environment and find the smallest class of a ladder of models that "
    "explains it."
)
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
        list[str] | None, typer.Option("--with", help="An option key=value for the environment.")
    ] = None,
    modules: Modules = None,
    delta: Annotated[
        float, typer.Option(help="Largest probability that the right class is ruled out.")
    ] = 0.05,
    rewards: Annotated[
        Rewards,
        typer.Option(help="Whether rewards are known, or by which bounds they are estimated."),
    ] = "known",
    evidence: Annotated[
        Evidence | None,
        typer.Option(
            help="likelihood: Occam; value: ARL-GEN. Default: Occam unless models are covers."
        ),
    ] = None,
    scope: Annotated[
        Scope | None,
        typer.Option(
            help="Play models of all classes left, or of the smallest (the paper's choice)."
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option(help="Also play the oracle, the largest and the smallest class.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save progress in this file; continue from it if it exists.")
    ] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Learn in a Gymnasium environment."""
    from occamrl.envs.wrapper import FiniteEnvironment, make_environment
    from occamrl.registry import import_modules
    from occamrl.selectors.references import on_class

    import_modules(_findable(modules), field="--import")
    if ":" in env_id:
        raise orl.errors.ParameterError(
            "ENV_ID",
            got=env_id,
            expected="a name without a module; import the module with --import",
        )
    models = _finite_models(ladder, model, horizon)
    env = make_environment("ENV_ID", env_id, _options(options or ()))
    among = models.ladder
    lists = isinstance(among, orl.Ladder) and among.finite
    if compare and not lists:
        raise orl.errors.ParameterError(
            "--compare", got="models that are no lists", expected="--ladder, with lists of kernels"
        )
    known = models.known if rewards == "known" else models.known.without_rewards
    environment = FiniteEnvironment(env, known=known, reward_range=tuple(models.rewards))
    if evidence is None:
        evidence = "likelihood"
        if isinstance(among, orl.Ladder) and (not among.finite or among.family.reach > 0.0):
            evidence = "value"  # Occam refuses covers and linear classes
    if not as_json and rewards == "known" and lists:
        settings: Any = {"episodes": episodes, "delta": delta, "evidence": evidence}
        forecast = orl.preflight(among, models.known, truths=FEW, members=FEW, **settings)
        tell(*f"preflight: {forecast}".splitlines())
        if forecast.unidentifiable and scope == "smallest":
            tell("  here: --scope all")
    agents: dict[str, orl.Learner] = {}
    if evidence == "likelihood":
        agents["Occam"] = orl.Occam(ladder=among, scope=scope or "all", delta=delta)
    else:
        agents["ARL-GEN"] = orl.ARLGen(ladder=among, scope=scope, delta=delta)
    if compare:
        (selector,) = agents.values()
        for name, m in _reference_classes(among, environment).items():
            agents[name] = on_class(selector, m)
    for i, (name, agent) in enumerate(agents.items()):
        if rewards != "known":
            agent = orl.RewardsPerPair(agent=agent, bound=rewards)
        # Progress is saved, and the page written, of the first: the others are for comparison.
        path = checkpoint if i == 0 else None
        result = orl.learn(agent, environment, episodes=episodes, seed=seed, checkpoint=path)
        show(as_json, _outcome(name, result), _lines(name, result))
        if page is not None and i == 0:
            tell(f"The page: {result.page(page)}")


def _reference_classes(ladder: orl.Ladder, environment: FiniteEnvironment) -> dict[str, int]:
    """Return the right class, if it is known, the largest and the smallest, by what they are."""
    classes = {"largest class": ladder.classes, "smallest class": 1}
    right = None if environment.mdp is None else ladder.class_of(environment.mdp)
    if right is None:
        return classes
    return {f"oracle ({ladder.names[right - 1]})": right, **classes}


def _outcome(name: str, result: orl.Result) -> dict[str, object]:
    """Return what a program is told of one agent, in the environment's own unit."""
    return {
        "agent": name,
        "environment": result.environment.name,
        "episodes": result.total_episodes,
        "realised_return_per_episode": result.total_return / max(1, result.total_episodes),
        "regret": result.total_regret,
        "regret_unknown_because": result.environment.why_not or None,
        "sentences": result.verdict.sentences,
        **result.verdict,
    }


def _lines(name: str, result: orl.Result) -> list[str]:
    """Return what a person is told of one agent."""
    mean = result.total_return / max(1, result.total_episodes)
    exact = f"exact regret {result.total_regret:,.2f}" if result.exact else "no exact regret"
    from occamrl.answers.wording import count_of

    episodes = count_of(result.total_episodes, "episode")
    played = f"{episodes}, realised return {mean:,.4g} per episode"
    lines = [f"{name}: {played}, {exact}"]
    if result.environment.why_not:
        lines.append(f"  ({result.environment.why_not})")
    return lines + [f"  {sentence}" for sentence in result.verdict.sentences]


def _findable(modules: Sequence[str] | None) -> list[str]:
    """Return the user's modules; the current folder is searched, as `python -m` does."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    return list(modules or ())


def _options(options: Sequence[str]) -> dict[str, object]:
    """Return ``key=value`` as a dict."""
    values = {}
    for option in options:
        key, _, value = option.partition("=")
        if not key.isidentifier() or not value:
            raise orl.errors.ParameterError("--with", got=option.rstrip("="), expected="key=value")
        values[key] = _value(value)
    return values


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
            help="Which column is what, as in episode=shop,state=stock+weekday,time=date.",
        ),
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(help="The column that orders the rows of an episode.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="How long a step lasts, for example 1D, 15min, 1M or 0.05.")
    ] = None,
    gaps: Annotated[
        Gaps,
        typer.Option(
            help="Where rows are missing, cut episodes, refuse the log, or join the rows."
        ),
    ] = "cut",
    split: Annotated[
        bool,
        typer.Option("--split", help="Cut episodes that are longer than the horizon into pieces."),
    ] = False,
    rewards: Annotated[
        LoggedRewards,
        typer.Option(help="Refuse a log whose rewards contradict the models', or just say so."),
    ] = "check",
    unlisted: Annotated[
        Unlisted, typer.Option(help="Refuse rows with names that no model has, or drop them.")
    ] = "error",
    delta: Annotated[
        float, typer.Option(help="Largest probability that the right class is ruled out.")
    ] = 0.05,
    tolerance: Annotated[
        float,
        typer.Option(
            help="How far the chances of a step may be off from a model's, as 0.02: 2 points."
        ),
    ] = 0.0,
    horizon: Horizon = None,
    evidence: Annotated[
        str | None, typer.Option(help="likelihood or value; the default depends on the ladder.")
    ] = None,
    agent: Annotated[
        Path | None, typer.Option(help="Also write an agent that has learned from the log.")
    ] = None,
    alarm: Annotated[
        float | None,
        typer.Option(
            help="Watch for changes, with about this many false alarms per step or fewer."
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="Also write the policy, as CSV or, if the name ends in .json, as JSON."),
    ] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Find out which of your models a log calls for, what to do, and how much that earns.

    Exit code 3: there are not enough data; 4: no class explains them.
    """
    from occamrl.envs.ladder_file import LadderSpec

    read = _read_models if agent is None else _finite_models
    models = read(ladder, model, horizon)
    steps: Any = log  # simulators know the columns state_0, ..., action_0, ...
    if isinstance(models, LadderSpec) or columns is not None:
        steps = orl.read_log(
            log,
            _columns(columns),
            order_by=order_by,
            every=every,
            gaps=gaps,
            rewards=rewards,
            unlisted=unlisted,
            split=split,
        )
    answer = orl.select(steps, models, delta=delta, evidence=evidence, tolerance=tolerance)
    if as_json:
        show(True, answer.as_data(), ())
    else:
        show(False, {}, str(answer).splitlines())
    if policy is not None:
        _write_policy(answer, policy)
        tell(f"The policy: {policy}")
    if page is not None:
        tell(f"The page: {answer.page(page)}")
    if agent is not None and isinstance(models, LadderSpec):
        occam = orl.Occam(ladder=models.ladder, tolerance=tolerance)
        learner = orl.Agent(occam, known=models.known, alarm=alarm)
        learner.learn_from(steps).save(agent)
        tell(f"The agent: {agent}")
    if answer.status in UNDECIDED:
        raise typer.Exit(UNDECIDED[answer.status])


def _write_policy(answer: Any, path: Path) -> None:
    """Write the policy of an answer, in the format that the name of the file says."""
    if answer.ladder.kind == "simulators":
        expected = "models of finitely many states: a planner acts anew at every step"
        raise orl.errors.ParameterError("--policy", got=path, expected=expected)
    if path.suffix.lower() == ".json":
        answer.policy.to_json(path)
    else:
        answer.policy.to_csv(path)


@command()
def act(
    file: AgentFile,
    state: StateName,
    begin: Begins = False,
    new: Fresh = False,
    ladder: LadderName = None,
    model: ModelName = None,
    as_json: Json = False,
) -> None:
    """Print the action that an agent recommends in a state."""
    agent = _open_agent(file, ladder, model, begin, new)
    here = _label(state, _names(agent).states)
    action = agent.act(here)
    show(as_json, {"state": here, "action": action}, [str(action)])


@command()
def observe(
    file: AgentFile,
    state: StateName,
    action: Annotated[str, typer.Option(help="What was done, by the agent or by somebody else.")],
    next_state: Annotated[str, typer.Option(help="The state to which that led.")],
    reward: Annotated[
        float | None,
        typer.Option(help="The reward in your unit; not needed if the models know it."),
    ] = None,
    ended: Annotated[bool, typer.Option("--ended", help="The episode is over.")] = False,
    begin: Begins = False,
    new: Fresh = False,
    ladder: LadderName = None,
    model: ModelName = None,
) -> None:
    """Tell an agent what happened in a step, and save it."""
    agent = _open_agent(file, ladder, model, begin, new)
    names = _names(agent)
    agent.observe(
        _label(state, names.states),
        _label(action, names.actions),
        reward,
        _label(next_state, names.states),
        ended,
    )
    agent.save(file)
    if agent.alarm is not None:
        tell(str(agent.alarm))


def _open_agent(
    file: Path, ladder: str | None, model: str | None, begin: bool, new: bool
) -> orl.Agent:
    """Return the agent in a file, or a new one of Occam; ``begin`` begins an episode."""
    if file.exists() == new:
        got = "a file that exists" if new else "no such file"
        expected = "another name for a new agent"
        if not new:
            expected = "the file of an agent; --new begins with one that has learned nothing"
        raise orl.errors.ParameterError(str(file), got=got, expected=expected)
    if ladder is None and model is None and file.exists():
        agent = orl.Agent.load(file)
    else:
        models = _finite_models(ladder, model, None)
        algorithm = orl.Occam(ladder=models.ladder)
        if file.exists():
            agent = orl.Agent.load(file, algorithm)
        else:
            agent = orl.Agent(algorithm, known=models.known)
    if begin:
        agent.begin_episode()
    return agent


# What the user hands in ---------------------------------------------------------------------------


def _read_models(
    ladder: str | None, model: str | None, horizon: int | None
) -> LadderSpec | orl.SimulatorLadder:
    """Return the ladder in a TOML file, or the models in a Python file."""
    from occamrl.envs.ladder_file import LadderSpec
    from occamrl.models.model import ParametricLadder

    if (ladder is None) == (model is None):
        got = "neither" if model is None else "both"
        expected = "--model FILE.py:NAME, or --ladder TOML, one of them"
        raise orl.errors.ParameterError("--model", got=got, expected=expected)
    if ladder is not None:
        return orl.read_ladder(ladder, horizon=horizon)
    models = _named(str(model))
    if isinstance(models, (LadderSpec, orl.SimulatorLadder)):
        return models
    if isinstance(models, orl.Model):
        models = models.ladder({"all parameters": list(models.box)})
    if not isinstance(models, ParametricLadder):
        raise _no_ladder(model, models)
    known = models.model.known
    if horizon not in (None, known.horizon):
        raise orl.errors.ParameterError(
            "--horizon", got=horizon, expected=f"{known.horizon}, which the model has"
        )
    return LadderSpec(ladder=cast(Any, models), known=known, rewards=known.unit)


def _finite_models(ladder: str | None, model: str | None, horizon: int | None) -> LadderSpec:
    """Return the same for agents on finitely many states; simulators are refused."""
    from occamrl.envs.ladder_file import LadderSpec

    models = _read_models(ladder, model, horizon)
    if not isinstance(models, LadderSpec):
        raise _no_ladder(model, models)
    return models


def _no_ladder(name: str | None, thing: object) -> Exception:
    """Return the error about a thing in a Python file that is no ladder, or of another kind."""
    expected = "model.ladder({...}), an orl.Model, or what read_ladder returns"
    return orl.errors.ParameterError(
        "--model", got=f"{name}, a {type(thing).__name__}", expected=expected
    )


def _named(text: str) -> object:
    """Return what a Python file calls a name; the file is run."""
    path, _, name = text.rpartition(":")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    is_file = path.endswith(".py") and Path(path).is_file()
    if not is_file or not name.isidentifier() or spec is None or spec.loader is None:
        raise orl.errors.ParameterError(
            "--model", got=text, expected="FILE.py:NAME, a file that exists and a name in it"
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # of the user's code, which may raise anything
        got = f"{type(error).__name__}: {error}"
        raise orl.errors.ParameterError(
            f"--model {path}", got=got, expected="a file that runs"
        ) from error
    values = vars(module)
    if name not in values:
        public = [key for key in values if not key.startswith("_")]
        raise orl.errors.UnknownName(f"--model {path}", got=name, known=public)
    return values[name]


def _columns(text: str | None) -> dict[str, str | list[str] | None] | None:
    """Return ``role=column,role=one+two`` as a dict; nothing after the sign: there is none."""
    if text is None:
        return None
    columns: dict[str, str | list[str] | None] = {}
    for part in text.split(","):
        role, sign, column = part.strip().partition("=")
        if not role or not sign:
            raise orl.errors.ParameterError(
                "--columns", got=part, expected="role=column, or role=one+two"
            )
        columns[role] = column.split("+") if "+" in column else column or None
    return columns


def _value(text: str) -> Any:
    """Return a number, a list or whatever else JSON has, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _names(agent: orl.Agent) -> Names:
    """Return what an agent's models call states and actions."""
    from occamrl.naming import Names
    from occamrl.protocols import System

    known = agent.known
    if isinstance(known, System) or known.names is None:
        return Names((), ())
    return known.names


def _label(text: str, names: Sequence[Hashable]) -> Any:
    """Return the name of a state or action; 4+0, 4,0 and (4, 0) are a tuple unless a name is so."""
    label = _value(text)
    for sign in "+,":
        if isinstance(label, str) and label not in names and sign in label:
            label = tuple(_value(part.strip(" '")) for part in label.strip("()").split(sign))
    return label
