"""What ``occamrl learn`` does: an environment and a ladder of models in, a verdict out."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from occamrl.confidence.preflight import Preflight, preflight
from occamrl.contracts import Agent
from occamrl.environments.finite import FiniteEnvironment
from occamrl.environments.ladder_file import read_ladder
from occamrl.environments.ladder_spec import LadderSpec
from occamrl.errors import ParameterError, require_choice
from occamrl.learners.ladder_references import LadderNonAdaptive, LadderOracle, LadderSmallest
from occamrl.learners.rewards import BOUNDS
from occamrl.runs.learned import Learned
from occamrl.runs.learning import learn
from occamrl.selectors.arl_gen import ARLGen

_FEW = 12  # kernels of each class that the preflight tries: a second or two at most


def import_modules(names: Sequence[str]) -> None:
    """Import the modules that the user named, which may register environments; also from the current folder."""
    if names and "" not in sys.path:  # the installed command does not look there, `python -m occamrl` does
        sys.path.insert(0, "")
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            got = f"{name!r}: {type(error).__name__}: {error}"
            raise ParameterError("--import", got=got, expected="a module that can be imported") from error


def make_environment(identifier: str, options: Sequence[str]) -> gym.Env[Any, Any]:
    """Return the registered environment of that name; ``options`` are ``key=value`` with values as in TOML."""
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
    try:
        return gym.make(identifier, **parameters)
    except gym.error.Error as error:
        expected = "a registered environment (--import names a module that registers it)"
        raise ParameterError("ENV_ID", got=f"{identifier}: {error}", expected=expected) from error
    except Exception as error:  # of someone else's constructor, which may raise anything
        got = f"{type(error).__name__}: {error}, from {identifier} with {parameters}"
        raise ParameterError("ENV_ID", got=got, expected="options that the environment takes") from error


def agents(
    spec: LadderSpec, environment: FiniteEnvironment, *, delta: float, safe: bool, compare: bool
) -> dict[str, Agent]:
    """Return who is to learn, by name: ARL-GEN, and what it is compared with."""
    options: dict[str, Any] = {"delta": delta, **spec.options}
    found: dict[str, Agent] = {"ARL-GEN": ARLGen(ladder=spec.ladder, safe=safe, **options)}
    if compare:
        right = None if environment.mdp is None else spec.ladder.class_of(environment.mdp)
        if right is not None:
            found[f"told the class ({spec.names[right - 1]})"] = LadderOracle(ladder=spec.ladder, m=right, **options)
        found["largest class"] = LadderNonAdaptive(ladder=spec.ladder, **options)
        found["smallest class"] = LadderSmallest(ladder=spec.ladder, **options)
    return found


def learn_and_tell(
    identifier: str,
    ladder: str | Path,
    *,
    episodes: int,
    seed: int = 0,
    horizon: int | None = None,
    options: Sequence[str] = (),
    modules: Sequence[str] = (),
    delta: float = 0.05,
    rewards: str | None = None,
    kernel: str | None = None,
    safe: bool = False,
    compare: bool = False,
    checkpoint: Path | None = None,
    progress: bool | None = None,
    tell: Callable[[str], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Learn, and yield what came of each agent as plain data; ``tell`` is given the preflight's verdict before."""
    import_modules(modules)
    if rewards is not None:
        require_choice("--rewards", rewards, ("known", *BOUNDS))
    estimate = {"per_pair": rewards} if rewards in BOUNDS else rewards
    spec = read_ladder(ladder, horizon=horizon, rewards=estimate, kernel=kernel)
    env = make_environment(identifier, options)
    environment = FiniteEnvironment(env, known=spec.known, reward_range=tuple(spec.rewards))
    everybody = agents(spec, environment, delta=delta, safe=safe, compare=compare)  # checks delta
    found = look_ahead(spec, environment, episodes=episodes, delta=delta)
    if tell is not None:
        tell(forecast(found, spec, environment, safe=safe))
    for name, agent in everybody.items():
        path = checkpoint if name == "ARL-GEN" else None
        result = learn(agent, environment, episodes=episodes, seed=seed, checkpoint=path, progress=progress)
        about: dict[str, Any] = {}
        if name == "ARL-GEN" and found is not None:
            about = {"blind_pairs": len(found.blind), "pairs_tried": found.pairs_tried}
        yield {"agent": name, **told(result, spec), **about}


def look_ahead(spec: LadderSpec, environment: FiniteEnvironment, *, episodes: int, delta: float) -> Preflight | None:
    """Return a quick preflight: a few kernels of each class, from the most likely first state (0 if unknown).

    None where rewards are unknown or each step has its own kernel: it looks at plans for known rewards and one kernel.
    """
    if spec.options != {"rewards": "known", "kernel": "stationary"}:
        return None
    start = 0
    if environment.mdp is not None:
        start = int(np.argmax(environment.mdp.initial_distribution))
    few = {"truths": _FEW, "members": _FEW}
    return preflight(spec.ladder, spec.known, episodes=episodes, delta=delta, start=start, **few)


def forecast(found: Preflight | None, spec: LadderSpec, environment: FiniteEnvironment, *, safe: bool) -> str:
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


def told(result: Learned, spec: LadderSpec) -> dict[str, Any]:
    """Return a result as plain data, in the environment's own unit."""
    verdict = result.verdict
    about: dict[str, Any] = {
        "environment": result.place.name,
        "episodes": result.total_episodes,
        "steps": result.steps,
        "realised_return_per_episode": result.total_return / max(1, result.total_episodes),
        "regret": result.total_regret,
        "regret_unknown_because": result.place.why_not or None,
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
        }
    return about


def lines(about: dict[str, Any]) -> list[str]:
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
            found.append(f"  {mark} {name}: {count} model{'s' * (count > 1)}, statistic {about['statistics'][m]:.6f}")
        threshold = about["threshold"]
        limit = "no data yet" if threshold is None else f"accepted up to {threshold:.6f}"
        found.append(f"  verdict: {about['rung']!r}, in play since episode {about['since_episode']} ({limit})")
        if about["outside"]:
            found.append("  but no model of the ladder explains the data: bring a richer one")
    return found
