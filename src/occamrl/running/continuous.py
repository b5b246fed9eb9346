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
    Selector,
    System,
    Transition,
)
from occamrl.running.callbacks import Callbacks, EpisodeReport
from occamrl.running.result import Blocks, Result, known_by_ladder
from occamrl.running.run import Block, RunLoop, record_block, require_earlier

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_ROUNDING = 1e-6  # by which a Box of the simulators may exceed that of the environment


@dataclass(frozen=True)
class ContinuousInfo:
    """What is kept of a continuous system, driven or a Gymnasium environment."""

    name: str
    exact: bool = False
    why_not: str = "the best policy of a continuous system is not known"


DRIVEN = ContinuousInfo("what was observed")


class ControlStanding(NamedTuple):
    """Where a driven controller stands between two calls; with its state, all that a file holds."""

    steps: int = 0  # of all episodes
    step: int = 0  # of the open episode
    earned: float = 0.0  # in it


def is_controller(agent: Learner | Controller) -> TypeIs[Controller]:
    """Say whether an agent acts step by step; one that also plans is driven as a learner."""
    return isinstance(agent, Controller) and not isinstance(agent, Learner)


def system_of(controller: Controller, known: object = None) -> System:
    """Return the system that a controller acts in: a given one, or its ladder's."""
    system = known_by_ladder(controller) if known is None else known
    if not isinstance(system, System):
        expected = "known=occamrl.protocols.System(...), or a controller with a SimulatorLadder"
        raise ParameterError("known", got=type(system).__name__, expected=expected)
    return system


def begin(controller: Controller, system: System, seed: int, info: ContinuousInfo) -> Result:
    """Return the result of a controller that has learned nothing yet."""
    return Result(
        label=type(controller).__name__,
        seed=require_integer("seed", seed, 0),
        environment=info,
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
        self._standing: ControlStanding = result.drive
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        """Everything learned so far, the steps of an open episode included."""
        if self._result is None:
            self._result = replace(_copy(self._learned), drive=self._standing)
        return self._result

    @property
    def answer(self) -> Any:
        """What the data say so far."""
        return self.result.answer

    @property
    def step(self) -> int:
        """How many steps the open episode has; 0: the next step begins one."""
        return self._standing.step

    @property
    def steps(self) -> int:
        """How many steps were observed in all."""
        return self._standing.steps

    def act(self, state: Any) -> Floats:
        """Return an action [m] for a state [n]."""
        observation = _vector("state", state, self.known.dimension)
        step = self._standing.step
        learned = self._learned
        self._result = None
        action = self.controller.act(self.known, learned.state, observation, step, self._address)
        return _vector("action of the controller", action, self.known.actions.dimension)

    def observe(
        self, state: Any, action: Any, reward: Any, next_state: Any, ended: bool = False
    ) -> None:
        """Take note of a real step, whoever chose the action; a reward of None is the system's."""
        system = self.known
        before = _vector("state", state, system.dimension)
        chosen = _vector("action", action, system.actions.dimension)
        following = _vector("next_state", next_state, system.dimension)
        require_kind("ended", ended, (bool, np.bool_))
        if reward is None:
            earned = float(system.reward(before[None], chosen[None], following[None])[0])
        else:
            earned = float(_vector("reward", reward, 1)[0])
        steps, step, total = self._standing
        transition = Transition(
            state=before,
            action=chosen,
            reward=earned,
            next_state=following,
            step=step,
            ended=bool(ended) or step + 1 >= system.horizon,
            address=self._address,
        )
        self._result = None
        self.controller.learn(system, self._learned.state, transition)
        self._standing = ControlStanding(steps + 1, step + 1, total + earned)
        if transition.ended:
            self.begin_episode()

    def begin_episode(self) -> None:
        """Begin an episode; the one before counts as over."""
        if self._standing.step:
            block = Block({}, np.array([1]), np.array([np.nan]), np.array([self._standing.earned]))
            facts = self.facts
            decided = {}
            if facts:
                decided = {"chosen": facts["chosen"], "misspecified": facts["misspecified"]}
            record_block(self._learned.blocks, decided, {}, block, new=True)
            self._standing = ControlStanding(steps=self._standing.steps)
            self._result = None

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

    def take_over(self, result: Result) -> None:
        """Begin with what another has learned of the same simulators."""
        self.resume(replace(result, seed=self._learned.seed, environment=self._learned.environment))

    @property
    def facts(self) -> dict[str, Any]:
        """What a controller that selects has decided so far, by name."""
        controller = self.controller
        if not isinstance(controller, Selector):
            return {}
        judgement = controller.evidence(self.known).judge(self._learned.state["evidence"])
        return {
            "names": list(controller.ladder.names),
            "chosen": judgement.chosen,
            "misspecified": judgement.misspecified,
            "statistics": judgement.against.tolist(),
            "alive": list(judgement.alive),
            "rejected_after": list(judgement.rejected_after),
        }

    @property
    def _address(self) -> Address:
        """Where the random numbers of the next step are; no two steps share it."""
        return Address(self._learned.seed, self._standing.steps)


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


class ContinuousEnvironment:
    """A Gymnasium environment with a Box of observations, whose spaces fit a system."""

    def __init__(self, env: Any, system: System) -> None:
        if not isinstance(env, gym.Env):
            expected = "a Gymnasium environment, gymnasium.make(...)"
            raise ParameterError("env", got=type(env).__name__, expected=expected)
        self.env = env
        self.actions = system.actions
        _require_size("observation_space", env.observation_space, spaces.Box, system.dimension)
        if isinstance(self.actions, Choices):
            count = len(self.actions.values)
            _require_size("action_space", env.action_space, spaces.Discrete, count)
        else:
            _require_size("action_space", env.action_space, spaces.Box, self.actions.dimension)
            self._require_inside(env.action_space)
        name = type(env.unwrapped).__name__ if env.spec is None else str(env.spec.id)
        self.info = ContinuousInfo(name)

    def _require_inside(self, space: Any) -> None:
        """Refuse actions of the simulators that the environment does not take."""
        above = space.low.ravel() <= self.actions.low + _ROUNDING
        below = self.actions.high - _ROUNDING <= space.high.ravel()
        if not (above.all() and below.all()):
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


def _require_size(field: str, space: Any, kind: type[Any], size: int) -> None:
    """Refuse a space of another kind, or of another number of coordinates or points."""
    count = -1
    if isinstance(space, spaces.Discrete):
        count = int(space.n)
    elif isinstance(space, spaces.Box):
        count = int(np.prod(space.shape))
    if not isinstance(space, kind) or count != size:
        expected = f"a {kind.__name__} of {size}, as the simulators have"
        raise SpaceError(field, got=space, expected=expected)


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
        require_controller(controller)
        self.controller = controller
        self.environment = environment
        self.system = system
        self.callbacks = callbacks
        if earlier is None:
            self.result = begin(controller, system, seed or 0, environment.info)
            return
        require_earlier(earlier, controller, "", seed)
        driver = ControllerDriver(controller, replace(earlier, known=system))
        driver.begin_episode()
        self.result = replace(driver.result, environment=environment.info)

    def _block(self, end: int, stop: Callable[[], bool]) -> BaseException | None:
        """Play one episode; return what ended it early, if anything did."""
        number = self.result.total_episodes
        driver = ControllerDriver(self.controller, self.result)
        first = driver.steps
        try:
            self._play(driver, number)
            self.result = driver.result
            earned = self.result.blocks.returns[-1]
            steps = driver.steps - first
            self.callbacks.episode(EpisodeReport(number + 1, earned, None, steps, driver.facts))
        except (Exception, KeyboardInterrupt) as error:  # of others: raised again by the loop
            return error
        return None

    def _play(self, driver: ControllerDriver, number: int) -> None:
        env = self.environment.env
        seed = int(generator(self.result.seed, "reset", number).integers(2**31))
        with self._place(number, 0):
            observation, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            action, played = self.environment.nearest(driver.act(observation))
            step = driver.step
            with self._place(number, step):
                following, reward, terminated, truncated, _ = env.step(played)
            ended = bool(terminated or truncated or step + 1 >= self.system.horizon)
            driver.observe(observation, action, float(reward), following, ended)
            observation = following
            self.bar.label = f"{self.result.label}, {driver.steps:,} steps"
            self.bar.update(self.bar.done)

    @contextmanager
    def _place(self, number: int, step: int) -> Iterator[None]:
        """Tell an error of the environment with its episode and step."""
        try:
            yield
        except Exception as error:  # of someone else's environment, which may raise anything
            raise EnvironmentFault(
                self.environment.info.name,
                index=(number, step),
                got=f"{type(error).__name__}: {error}",
                expected="a step without error",
            ) from error


def require_controller(controller: object) -> None:
    """Refuse what is not a controller."""
    if isinstance(controller, type) or not isinstance(controller, Controller):
        expected = "an instance of a class with the methods begin, act and learn"
        raise ParameterError("agent", got=f"{controller!r:.60}", expected=expected)
