"""Driving a controller step by step, by what it is told or in a Gymnasium environment with a Box.

A controller learns from every step, so a block is one episode. Random numbers have an address,
(seed, purpose, step of all): draws are fresh at every step, and a run that goes on from a file
equals an uninterrupted one. A run in an environment stops at the end of an episode only, and every
reset is given a seed found at the address (seed, episode), so that two calls of n episodes equal
one of 2n, to the bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from occamrl.addresses import Address, generator
from occamrl.control.system import Choices
from occamrl.errors import (
    EnvironmentFault,
    InvalidInput,
    ParameterError,
    ShapeError,
    SpaceError,
    as_floats,
    require_integer,
    require_kind,
)
from occamrl.protocols import (
    Controller,
    Floats,
    Learner,
    Logged,
    Note,
    Selector,
    System,
    Transition,
)
from occamrl.running.callbacks import Callbacks, EpisodeReport
from occamrl.running.result import Blocks, Result, known_by_ladder
from occamrl.running.run import Block, RunLoop, record_block, require_continuation

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_ROUNDING = 1e-6  # by which a Box of the simulators may exceed that of the environment


@dataclass(frozen=True)
class ContinuousInfo:
    """What is kept of a continuous system, driven or a Gymnasium environment."""

    name: str
    exact: bool = False
    why_not: str = "the best policy of a continuous system is not known"


class ControlStanding(NamedTuple):
    """Where a driven controller stands between two calls; with its state, all that a file holds."""

    steps: int = 0  # of all episodes
    step: int = 0  # of the open episode
    earned: float = 0.0  # in it
    notes: tuple[Note, ...] = ()  # what was done to what was observed


def is_controller(agent: Learner | Controller) -> TypeIs[Controller]:
    """Say whether an agent acts step by step; one that also plans is driven as a learner."""
    return isinstance(agent, Controller) and not isinstance(agent, Learner)


def system_of(controller: Controller, known: object = None) -> System:
    """Return the system that a controller acts in: a given one, or its ladder's."""
    system = known_by_ladder(controller) if known is None else known
    if not isinstance(system, System):
        raise ParameterError(
            "known",
            got=type(system).__name__,
            expected="known=occamrl.protocols.System(...), or a controller with a SimulatorLadder",
        )
    return system


def begin(controller: Controller, system: System, seed: int, name: str) -> Result:
    """Return the result of a controller that has learned nothing yet."""
    return Result(
        label=type(controller).__name__,
        seed=require_integer("seed", seed, 0),
        environment=ContinuousInfo(name),
        agent=controller,
        known=system,
        state=controller.begin(system),
        blocks=Blocks(),
        drive=ControlStanding(),
    )


class ControllerDriver:
    """Drives a controller: it acts, and learns from every step."""

    def __init__(self, controller: Controller, result: Result) -> None:
        self.controller = controller
        self.resume(result)

    def resume(self, result: Result) -> None:
        """Go on from a result, which stays as it is."""
        self.known = system_of(self.controller, result.known)
        self._learned = replace(_copy(result), agent=self.controller, known=self.known)
        self.standing: ControlStanding = result.drive

    @property
    def result(self) -> Result:
        """Everything learned so far, the steps of an open episode included."""
        return replace(_copy(self._learned), drive=self.standing)

    @property
    def answer(self) -> Any:
        """What the data say so far."""
        return self.result.answer

    @property
    def step(self) -> int:
        """The number of steps in the open episode; at 0, the next step begins one."""
        return self.standing.step

    @property
    def _address(self) -> Address:
        """Where the random numbers of the next step are; no two steps share it."""
        return Address(self._learned.seed, self.standing.steps)

    def act(self, state: Any) -> Floats:
        """Return an action [m] for a state [n]."""
        observation = _vector("state", state, self.known.dimension)
        with self._place():
            action = self.controller.act(
                self.known, self._learned.state, observation, self.step, self._address
            )
        return _vector("action of the controller", action, self.known.actions.dimension)

    def observe(
        self, state: Any, action: Any, reward: Any, next_state: Any, ended: bool = False
    ) -> None:
        """Take note of a real step, whoever chose the action; a reward of None is the system's."""
        system = self.known
        before = _vector("state", state, system.dimension)
        chosen = _vector("action", action, system.actions.dimension)
        _require_inside(system, chosen)
        following = _vector("next_state", next_state, system.dimension)
        require_kind("ended", ended, (bool, np.bool_))
        if reward is None:
            reward = system.reward(before[None], chosen[None], following[None])[0]
        earned = float(_vector("reward", reward, 1)[0])
        steps, step, total, notes = self.standing
        over = bool(ended) or step + 1 >= system.horizon
        transition = Transition(before, chosen, earned, following, over, self._address, step)
        with self._place():
            self.controller.learn(system, self._learned.state, transition)
        self.standing = ControlStanding(steps + 1, step + 1, total + earned, notes)
        if over:
            self.begin_episode()

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Tell an error of a simulator, a reward or a planner with its episode and step."""
        try:
            yield
        except InvalidInput:  # which says already what to change
            raise
        except Exception as error:  # of someone else's function, which may raise anything
            raise EnvironmentFault(
                type(self.controller).__name__,
                index=(self._learned.total_episodes, self.step),
                got=f"{type(error).__name__}: {error}",
                expected="simulators, reward and planner without error",
            ) from error

    def begin_episode(self) -> None:
        """Begin an episode; the one before counts as over."""
        if self.step:
            earned = np.array([self.standing.earned])
            facts = self.facts
            decided = {name: facts[name] for name in facts if name in ("chosen", "misspecified")}
            block = Block({}, np.array([1]), np.array([np.nan]), earned)
            record_block(self._learned.blocks, decided, {}, block, new=True)
            self.standing = self.standing._replace(step=0, earned=0.0)

    @property
    def facts(self) -> dict[str, Any]:
        """What a controller that selects has decided so far, by name."""
        if not isinstance(self.controller, Selector):
            return {}
        evidence = self.controller.evidence(self.known)
        judgement = evidence.judge(self._learned.state["evidence"])
        return {
            "names": list(self.controller.ladder.names),
            "chosen": judgement.chosen,
            "misspecified": judgement.misspecified,
            "statistics": judgement.against.tolist(),
            "alive": list(judgement.alive),
            "rejected_after": list(judgement.rejected_after),
        }

    def read(self, log: Logged) -> None:
        """Learn from a log, step by step; a row that cannot be leaves the driver as it was."""
        before = self.result
        try:
            self.begin_episode()
            for step in log.transitions(self.known):
                self.observe(step.state, step.action, step.reward, step.next_state, step.ended)
        except Exception:  # whatever a row leads to
            self.resume(before)
            raise
        self.standing = self.standing._replace(notes=(*self.standing.notes, *log.notes))

    def take_over(self, result: Result) -> None:
        """Begin with what another has learned of the same simulators."""
        self.resume(replace(result, seed=self._learned.seed, environment=self._learned.environment))


def _copy(result: Result) -> Result:
    """Return a result whose state and blocks may be written to."""
    state, blocks = copy.deepcopy((result.state, result.blocks))
    return replace(result, state=state, blocks=blocks)


def _vector(field: str, value: Any, size: int) -> Floats:
    """Return finite numbers [size], or refuse what is none."""
    numbers = np.ravel(as_floats(field, value))
    if numbers.size != size or not np.isfinite(numbers).all():
        raise ShapeError(field, got=f"{value!r:.100}", expected=f"{size} finite numbers")
    return numbers


def _require_inside(system: System, action: Floats) -> None:
    """Refuse an action outside the box of the system."""
    low = system.actions.low
    high = system.actions.high
    margin = _ROUNDING * (high - low)
    inside = (action >= low - margin) & (action <= high + margin)
    if not inside.all():
        got = f"{action.tolist()}"
        expected = f"numbers from {low.tolist()} to {high.tolist()}, as the ladder's actions"
        raise ParameterError("action", got=got, expected=f"{expected}: widen its Box, or clip")


class ContinuousEnvironment:
    """A Gymnasium environment with a Box of observations, whose spaces fit a system."""

    def __init__(self, env: Any, system: System) -> None:
        if not isinstance(env, gym.Env):
            raise ParameterError(
                "env",
                got=type(env).__name__,
                expected="a Gymnasium environment, gymnasium.make(...)",
            )
        self.env = env
        self.actions = system.actions
        self.name = type(env.unwrapped).__name__ if env.spec is None else str(env.spec.id)
        _require_box("observation_space", env.observation_space, system.dimension)
        space: Any = env.action_space
        if isinstance(self.actions, Choices):
            count = len(self.actions.values)
            if not isinstance(space, spaces.Discrete) or space.n != count:
                expected = f"a Discrete of {count}, as the simulators have"
                raise SpaceError("action_space", got=space, expected=expected)
            return
        _require_box("action_space", space, self.actions.dimension)
        above = space.low.ravel() <= self.actions.low + _ROUNDING
        below = self.actions.high - _ROUNDING <= space.high.ravel()
        if not (above & below).all():
            expected = f"one that contains the simulators' {self.actions!r}"
            raise SpaceError("action_space", got=space, expected=expected)

    def nearest(self, action: Floats) -> tuple[Floats, Any]:
        """Return the possible action nearest to one, and as the environment takes it.

        A controller of others may leave the box; what was played is what is judged.
        """
        space: Any = self.env.action_space
        if isinstance(self.actions, Choices):
            index = int(np.abs(self.actions.values - action).sum(axis=1).argmin())
            return self.actions.values[index], index + int(space.start)
        inside = np.clip(action, self.actions.low, self.actions.high)
        return inside, inside.reshape(space.shape).astype(space.dtype)


def _require_box(field: str, space: Any, size: int) -> None:
    if not isinstance(space, spaces.Box) or np.prod(space.shape) != size:
        raise SpaceError(field, got=space, expected=f"a Box of {size}, as the simulators have")


class ControlRun(RunLoop):
    """A controller's run in an environment; an episode that fails leaves no trace."""

    def __init__(
        self,
        controller: Controller,
        environment: ContinuousEnvironment,
        system: System,
        callbacks: Callbacks,
        seed: int | None,
        earlier: Result | None,
    ) -> None:
        self.environment = environment
        self.callbacks = callbacks
        self.result = begin(controller, system, seed or 0, environment.name)
        if earlier is not None:
            require_continuation(earlier, controller, "", seed)
            driver = ControllerDriver(controller, replace(earlier, known=system))
            driver.begin_episode()
            self.result = replace(driver.result, environment=self.result.environment)

    def _play_block(self, end: int, stop: Callable[[], bool]) -> BaseException | None:
        """Play one episode; return what ended it early, if anything did."""
        number = self.result.total_episodes
        driver = ControllerDriver(self.result.agent, self.result)
        first = self.result.drive.steps
        try:
            self._play(driver, number)
            self.result = driver.result
            earned = self.result.blocks.returns[-1]
            steps = self.result.drive.steps - first
            self.callbacks.episode(EpisodeReport(number + 1, earned, None, steps, driver.facts))
        except (Exception, KeyboardInterrupt) as error:  # of others: raised again by the loop
            return error
        return None

    def _play(self, driver: ControllerDriver, number: int) -> None:
        env = self.environment.env
        seed = int(generator(self.result.seed, "reset", number).integers(2**31))
        with self._place(number, 0):
            observation, _ = env.reset(seed=seed)
            _vector("observation", observation, driver.known.dimension)
        over = False
        while not over:
            action, played = self.environment.nearest(driver.act(observation))
            with self._place(number, driver.step):
                following, reward, terminated, truncated, _ = env.step(played)
                _vector("observation", following, driver.known.dimension)
                _vector("reward", reward, 1)
            driver.observe(observation, action, reward, following, bool(terminated or truncated))
            observation = following
            over = driver.step == 0
            self.bar.label = f"{self.result.label}, {driver.standing.steps:,} steps"
            self.bar.update(self.bar.done)

    @contextmanager
    def _place(self, number: int, step: int) -> Iterator[None]:
        """Tell an error of the environment with its episode and step."""
        try:
            yield
        except Exception as error:  # of someone else's environment, which may raise anything
            raise EnvironmentFault(
                self.environment.name,
                index=(number, step),
                got=f"{type(error).__name__}: {error}",
                expected="a step without error",
            ) from error
