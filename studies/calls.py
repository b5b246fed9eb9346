"""Random calls of everything public, with arguments that make no sense: what is raised has a type.

    python -m studies.robustness calls --count 6000

Each call takes a public class or function and gives every argument a sensible value, or one of
those in :func:`hostile`. It may return, raise an error of this package, or raise TypeError, as a
call that is wrong does; anything else is a raw error. A call takes at most ``SECONDS`` and the
process ``MEMORY`` bytes of addresses; more of either is counted as a raw error too.
"""

from __future__ import annotations

import inspect
import itertools
import math
import multiprocessing
import os
import resource
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import occamrl as orl
from occamrl.errors import OccamRLError
from occamrl.logs.log import simulate_log
from occamrl.progress import Progress

SECONDS = 10  # of a call
PATIENCE = 25.0  # seconds after which a process that does not hear its alarm is ended
MEMORY = 6 * 2**30  # bytes of addresses of a process
SENSIBLE = 0.6  # the share of arguments that are
GIVEN = 0.3  # the share of optional arguments that are given at all
NOT_CALLED = ("Interrupted", "InvalidInput", "OccamRLError", "Learner", "Plan", "Rule", "Flow")


class Outcome(NamedTuple):
    """What came of a call."""

    number: int
    name: str
    kind: str  # "returned", "typed", "TypeError" or "raw"
    error: str = ""


def walk(state: int, action: int, *, chance: float = 0.5) -> Iterator[tuple[float, int, float]]:
    """Yield that a walker goes on or stays."""
    yield chance, min(state + action, 3), 1.0 * (state == 3)
    yield 1.0 - chance, state, 0.0


def hostile(work: Path) -> dict[str, Any]:
    """Return values that make no sense, by name."""
    pipe = work / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    (work / "text.toml").write_text("name = 1\n[[agent]]\n")
    return {
        "None": None,
        "nan": math.nan,
        "inf": math.inf,
        "-1": -1,
        "zero": 0,
        "half": 0.5,
        "billion": 10**9,
        "huge": 10**30,
        "large float": 1e300,
        "complex": 1j,
        "True": True,
        "empty text": "",
        "text": "no such thing",
        "long text": "n" * 5_000,
        "bytes": b"\x00\xff",
        "list": [],
        "tuple": (),
        "dict": {},
        "set": {1},
        "ragged": [[1.0, 2.0], [3.0]],
        "texts": ["a", "b"],
        "pairs": {"a": (0, 1), 3: "x"},
        "nested": [[[]]],
        "negative list": [-1, 2],
        "no numbers": [math.nan, 1.0],
        "empty array": np.zeros(0),
        "flat": np.ones(3),
        "square": np.full((2, 2), 0.5),
        "cube": np.ones((2, 2, 2)),
        "strange shape": np.zeros((0, 3, 1)),
        "nans": np.full((2, 2, 2), math.nan),
        "objects": np.array([None, "x"], dtype=object),
        "object": object(),
        "class": int,
        "lambda": lambda *_, **__: None,
        "identity": lambda x: x,
        "range": range(3),
        "generator": (i for i in range(3)),
        "slice": slice(None),
        "module": math,
        "pipe": pipe,
        "device": Path("/dev/zero"),
        "folder": work,
        "file": work / "text.toml",
    }


def sensible(work: Path) -> dict[str, list[Any]]:
    """Return values that make sense, by the names of arguments."""
    uniform = np.full((3, 2, 3), 1.0 / 3.0)
    kernels = np.stack([uniform, np.roll(0.5 * uniform + 0.5 * np.eye(3)[:, None], 1, axis=0)])
    family = orl.FiniteFamily(kernels)
    ladder = orl.Ladder([orl.FiniteFamily(kernels[:1]), family], names=["one", "two"])
    mdp = orl.FiniteMDP(transition=kernels[1], reward=np.eye(3)[:, :2], horizon=4)
    known = mdp.known
    model = orl.Model(walk, start=0, actions=[0, 1], horizon=4, parameters={"chance": (0.1, 0.9)})
    features = orl.FeatureMap(np.moveaxis(kernels, 0, -1))
    agent = orl.UniformRandom()
    result = orl.run(orl.Occam(ladder=ladder), mdp, episodes=5, progress=False)
    log = simulate_log(mdp, episodes=5)
    return {
        "agent": [agent, orl.Occam(ladder=ladder)],
        "agents": [{"a": agent, "b": orl.Optimal(mdp=mdp)}],
        "algorithm": [agent],
        "learner": [agent],
        "selector": [orl.Occam(ladder=ladder)],
        "base": [agent],
        "bases": [[agent, orl.Optimal(mdp=mdp)]],
        "rule": [orl.UCB1()],
        "problem": [mdp, "river-swim"],
        "mdp": [mdp],
        "known": [known],
        "ladder": [ladder, model.ladder({"a": ["chance"]})],
        "families": [[family]],
        "family": [family],
        "features": [features],
        "phi": [np.moveaxis(kernels, 0, -1)],
        "kernels": [kernels],
        "transition": [uniform],
        "transitions": [uniform],
        "reward": [np.zeros((3, 2))],
        "horizon": [4],
        "episodes": [5],
        "seeds": [2],
        "seed": [0],
        "delta": [0.05],
        "states": [3],
        "actions": [2, [0, 1]],
        "outcomes": [walk],
        "start": [0],
        "parameters": [{"chance": (0.1, 0.9)}],
        "log": [log],
        "source": [log],
        "result": [result],
        "name": ["river-swim"],
        "path": [work / "written"],
        "folder": [work / "folder"],
        "workers": [1],
        "progress": [False],
        "norm_bound": [1.0],
        "dimension": [2],
    }


def public(work: Path) -> dict[str, Callable[..., Any]]:
    """Return everything public that can be called, by name."""
    calls: dict[str, Callable[..., Any]] = {}
    for name in sorted(dir(orl)):
        value = getattr(orl, name)
        if callable(value) and name not in NOT_CALLED:
            calls[name] = value
    for module in (orl.paper, orl.checks):
        for name in dir(module):
            value = getattr(module, name)
            if callable(value) and not name.startswith("_"):
                calls[f"{module.__name__.rpartition('.')[2]}.{name}"] = value
    known = sensible(work)
    calls["make_problem(...)"] = lambda **options: orl.make_problem("river-swim", **options).mdp
    for method in ("value", "evaluate"):
        calls[f"FiniteMDP.{method}"] = getattr(known["mdp"][0], method)
    for owner, names in (
        (known["result"][0], ("regret_at", "return_at", "plot", "plot_policy", "page", "save")),
        (known["result"][0].answer, ("worth_of", "compared_with", "page", "rejected_after")),
        (known["ladder"][0], ("only",)),
    ):
        for name in names:
            calls[f"{type(owner).__name__}.{name}"] = getattr(owner, name)
    for name in ("of_problem", "from_toml", "resume", "verify", "load", "of_sizes", "of_tuples"):
        for owner in (orl.Ladder, orl.Experiment, orl.Result, orl.Agent, orl.Known):
            if hasattr(owner, name):
                calls[f"{owner.__name__}.{name}"] = getattr(owner, name)
    return calls


def arguments(
    call: Callable[..., Any], good: Mapping[str, list[Any]], bad: Mapping[str, Any], draw: Any
) -> tuple[list[Any], dict[str, Any], str]:
    """Return random arguments of a call, and what they are."""
    try:
        signature = inspect.signature(call)
    except (ValueError, TypeError):
        return [], {}, ""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    texts = []
    for name, parameter in signature.parameters.items():
        required = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if name != "options":
                continue
            name, required = "states", False  # of the problem that is made by its name
        if not required and draw.random() > GIVEN:
            continue
        key = str(draw.choice(list(bad)))
        value = bad[key]
        if draw.random() < SENSIBLE and (name in good or not required):
            key = "sensible"
            value = parameter.default
            if name in good:
                value = good[name][int(draw.integers(len(good[name])))]
            elif parameter.default is parameter.empty:
                value = bad["zero"]
        texts.append(f"{name}={key}")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[name] = value
    return positional, named, ", ".join(texts)


def outcome_of(number: int, seed: int, calls: Mapping[str, Any], work: Path, good: Any) -> Outcome:
    """Make a call and return what came of it."""
    draw = np.random.default_rng([seed, number])
    names = list(calls)
    name = names[number % len(names)]
    positional, named, text = arguments(calls[name], good, hostile(work), draw)
    where = f"{name}({text})"
    signal.alarm(SECONDS)
    try:
        str(calls[name](*positional, **named))
        return Outcome(number, where, "returned")
    except OccamRLError as error:
        str(error)
        return Outcome(number, where, "typed")
    except TypeError as error:
        return Outcome(number, where, "TypeError", f"{error!s:.120}")
    except BaseException as error:  # that is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/src/" in frame[0]]
        if own:
            place = own[-1]
        text = (
            f"{type(error).__name__}: {error!s:.100} ({Path(place.filename).name}:{place.lineno})"
        )
        return Outcome(number, where, "raw", text)
    finally:
        signal.alarm(0)


def _too_long(*_: object) -> None:
    raise TimeoutError("too long")


def _work(sender: Connection, numbers: range, seed: int, work: str) -> None:
    """Make calls one after another and send what came of each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_long)
    os.chdir(work)
    warnings.simplefilter("ignore")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import matplotlib as mpl

    mpl.use("Agg")
    good = sensible(Path(work))
    calls = public(Path(work))
    for number in numbers:
        sender.send(outcome_of(number, seed, calls, Path(work), good))
    sender.send(None)


def outcomes_of(work: Path, count: int, seed: int = 0) -> list[Outcome]:
    """Make random calls in a process of its own, another one where that ended or hung."""
    outcomes: list[Outcome] = []
    context = multiprocessing.get_context("spawn")
    bar = Progress("calls", count, None, "calls")
    while len(outcomes) < count:
        receiver, sender = context.Pipe(duplex=False)
        with tempfile.TemporaryDirectory(dir=work) as folder:
            numbers = range(len(outcomes), count)
            process = context.Process(target=_work, args=(sender, numbers, seed, folder))
            process.start()
            sender.close()
            for i in itertools.count():
                patience = PATIENCE if i else 10 * PATIENCE
                try:
                    if not receiver.poll(patience):
                        raise EOFError
                    outcome = receiver.recv()
                except EOFError:
                    outcome = Outcome(len(outcomes), "", "raw", "the process hung or ended")
                    outcomes.append(outcome)
                    break
                if outcome is None:
                    break
                outcomes.append(outcome)
                bar.update(len(outcomes))
            process.kill()
            process.join()
    bar.close()
    return outcomes


def calls(work: Path, count: int, seed: int = 0) -> dict[str, Any]:
    """Make random calls; everything that is raised is an error of this package or a TypeError."""
    outcomes = outcomes_of(work, count, seed)
    raw = [outcome for outcome in outcomes if outcome.kind == "raw"]
    facts: dict[str, Any] = dict(Counter(outcome.kind for outcome in outcomes))
    if raw:
        listed = "\n".join(f"{outcome.name}: {outcome.error}" for outcome in raw)
        raise AssertionError(f"{facts}\n{listed}")
    return facts
