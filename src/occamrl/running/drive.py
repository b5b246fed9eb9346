"""Driving: an agent that is told what happened, step by step, in the user's names.

**Between two calls** everything is plain data, in the agent and in its file: the state before the
block in force, the finished episodes of that block, the steps of the open episode, the seed. The
plan in force is derived from these, so an agent that is saved and loaded between any two calls does
what one that never stopped does, to the bit.

**Actions of others.** Whoever chose it, an action that was taken is entered as it was: the
likelihood conditions on (s, a), and a value row needs only that s, a and the value function are
fixed before s' is seen. What is judged by the returns of whole episodes, an Arena, is refused
actions that it did not choose.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from occamrl.addresses import generator
from occamrl.envs.wrapper import EnvironmentInfo, FiniteEnvironment, Integers, bonuses
from occamrl.errors import ParameterError, require_kind, require_number
from occamrl.models.model import ELSEWHERE
from occamrl.protocols import Floats, Flow, Known, Learner, Outcomes, Plan
from occamrl.running.alarm import Watch
from occamrl.running.flow import drawn
from occamrl.running.learn import EnvironmentSource, known_by_model
from occamrl.running.result import Cut, Result
from occamrl.running.run import (
    Block,
    Run,
    Source,
    joined,
    learn_block,
    plan_parts,
    record_block,
    require_plan,
)

KEPT = 20_000  # steps that are kept while an alarm is on, to go on from
_ROUNDING = 1e-3  # how far a reward may be from the one that is known, in the unit of [0, 1]


class Told(EnvironmentInfo):
    """A system of the user's that an agent is told of: states and actions have names, or are integers."""


@dataclass
class Drive:
    """What an agent that is told step by step keeps beside its result."""

    states: list[int] = field(default_factory=list)  # of the open episode
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    seen: dict[int, Flow] = field(
        default_factory=dict
    )  # finished episodes of the block in force, by part of the plan
    alarm: float | None = None  # the rate of false alarms a step
    watch: dict[str, Any] = field(default_factory=dict)  # the memory of what raises alarms
    recent: Floats = field(
        default_factory=lambda: np.zeros((0, 6))
    )  # rows of episode, step, s, a, s', reward


class Driver:
    """What :class:`~occamrl.running.agent.Agent` does when it is told what happened."""

    def __init__(
        self, algorithm: Learner, known: Known | None, seed: int, alarm: float | None
    ) -> None:
        self._known = known if known is not None else known_by_model(algorithm)
        if self._known is not None:
            require_kind("known", self._known, Known)
        self.algorithm, self.seed = algorithm, seed
        self._learned: Result | None = None  # before the block in force
        self._shown: Result | None = None
        self._plan: Plan | None = None
        self._reference: Any = None
        self._environment: FiniteEnvironment | None = None
        self._drive = Drive(alarm=alarm)

    # What was learned -----------------------------------------------------------------------------

    @property
    def _begun(self) -> Result:
        """The result before the block in force; its state and its blocks are written to."""
        if self._learned is None:
            source: Source
            if self._environment is not None:
                source = EnvironmentSource(self._environment)
            elif self._known is not None:
                known, source = self._known, Source()
                states, actions = (
                    Integers((size,), (0,)) for size in (known.states, known.actions)
                )
                source.known, source.problem = known, ""
                source.environment = Told("what was told", known.unit, states, actions, exact=False)
            else:
                expected = "known=mdp.known, a ladder of a model, or an environment: Agent(..., env) or set_env"
                raise ParameterError(
                    "known", got="nothing learned and no environment", expected=expected
                )
            self._learned = Run(self.algorithm, source, self.seed).result
        return self._learned

    @property
    def known(self) -> Known:
        """What is known of the system."""
        return self._begun.known

    @property
    def result(self) -> Result:
        """Everything learned so far, which may be nothing; steps of an open episode count when it ends."""
        if self._shown is None:
            begun, drive = self._begun, copy.deepcopy(self._drive)
            state, blocks, cut = copy.deepcopy(begun.state), copy.deepcopy(begun.blocks), None
            if drive.seen:
                cut = Cut(copy.deepcopy(state), begun.at, drive.seen)
                learn_block(self.algorithm, begun.known, state, self.plan, drive.seen)
            self._shown = replace(begun, state=state, blocks=blocks, cut=cut, drive=drive)
        return self._shown

    def _go_on(self, result: Result) -> None:
        """Go on from a result: from where its last block began, if the end of the run interrupted it."""
        cut, drive = result.cut, result.drive or self._drive
        begun = replace(result, cut=None, drive=None)
        if cut is not None and cut.flows:
            begun = replace(begun, state=cut.state, at=cut.at)
        drive = replace(drive, seen={} if cut is None else cut.flows)
        self._learned, self._drive, self._plan, self._shown = (
            *copy.deepcopy((begun, drive)),
            None,
            None,
        )
        self._learned = replace(
            self._learned, agent=self.algorithm, known=result.known
        )  # themselves, not copies

    @property
    def answer(self) -> Any:
        """Which model is needed, what to do, what it is worth; of all steps, those of an open episode included."""
        drive, found = self._drive, self.result
        if drive.actions:
            flow, state = replace(self._open_flow(), episodes=0), copy.deepcopy(found.state)
            self.algorithm.learn(found.known, state, self.plan.part(drive.states[0]), flow)
            found = replace(found, state=state)
        return found.answer

    # Driving --------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        if self._plan is None:
            begun = self._begun
            before = sum(flow.episodes for flow in self._drive.seen.values())
            address = generator(self.seed, "agent", begun.total_episodes - before)
            plan = self.algorithm.plan(begun.known, begun.state, address)
            require_plan(plan, begun.known)
            self._plan, self._reference = plan, None
        return self._plan

    @property
    def step(self) -> int:
        """How many steps the open episode has; 0: the next step begins one."""
        return len(self._drive.actions)

    def act(self, state: Any) -> Any:
        """Return what to do in a state, in your names; the step within the episode is counted by the agent."""
        return self._action_name(self._chosen(self._here(state)))

    def observe(
        self, state: Any, action: Any, reward: Any, next_state: Any, ended: bool = False
    ) -> None:
        """Take note of a step: what was done, by whomever, and what came of it.

        ``reward`` is in your unit, or None where it is known. An episode ends when it ``ended``, after H steps, or at
        :meth:`begin_episode`. What is refused leaves the agent as it was.
        """
        known, drive = self.known, self._drive
        s, info = self._here(state), self._begun.environment
        a = (
            known.action_number(action)
            if isinstance(info, Told)
            else int(info.action.encode(action))
        )
        if not known.allowed[s, a]:
            may = [self._action_name(int(i)) for i in np.flatnonzero(known.allowed[s])]
            raise ParameterError(
                "action", got=f"{action!r} in state {state!r}", expected=f"one of {may!r:.200}"
            )
        if hasattr(self.algorithm, "rule") and a != (planned := self._chosen(s)):
            expected = f"{self._action_name(planned)!r}, its own: a rule judges bases by the returns of what they chose"
            raise ParameterError("action", got=f"{action!r}, of somebody else", expected=expected)
        require_kind("ended", ended, (bool, np.bool_))
        s2 = self._end(next_state) if ended else self._state_number("next_state", next_state)
        earned = self._reward(s, a, s2, reward)
        if drive.alarm is not None:
            if self._reference is None:
                plan = self.plan
                self._reference = self._watch.reference(self._begun.state, plan)
            where = [self._begun.total_episodes + 1, len(drive.actions) + 1]
            self._watch.see(drive.watch, self._reference, (s, a, s2, earned), where)
        drive.states, drive.actions = [*(drive.states or [s]), s2], [*drive.actions, a]
        drive.rewards, self._shown = [*drive.rewards, earned], None
        if ended or len(drive.actions) == known.horizon:
            self._end_episode()

    def begin_episode(self) -> None:
        """Begin an episode; one that is unfinished is truncated, and the steps seen of it count."""
        if self._drive.actions:
            self._end_episode()

    def _open_flow(self) -> Flow:
        return Flow.of_episode(self._drive.states, self._drive.actions, self._drive.rewards)

    def _end_episode(self) -> None:
        """Add the open episode to the block, and learn from the block when its plan has lasted."""
        begun, drive, plan, flow = self._begun, self._drive, self.plan, self._open_flow()
        if drive.alarm is not None:
            one = np.full(flow.step.size, begun.total_episodes + 1)
            rows = np.column_stack(
                [one, flow.step, flow.state, flow.action, flow.next_state, flow.reward]
            )
            drive.recent = np.vstack([drive.recent, rows])[-KEPT:]
        part = int(plan_parts(plan, begun.known)[1][drive.states[0]])
        record_block(begun.blocks, plan, self._block(flow), new=not drive.seen)
        drive.seen = joined(drive.seen, {part: flow})
        if begun.known.continuing:
            self._learned = replace(begun, at=drive.states[-1])
        drive.states, drive.actions, drive.rewards, self._shown = [], [], [], None
        if sum(each.episodes for each in drive.seen.values()) >= plan.episodes:
            self._end_block()

    def _end_block(self) -> None:
        begun, drive = self._begun, self._drive
        if drive.seen:
            learn_block(self.algorithm, begun.known, begun.state, self.plan, drive.seen)
        drive.seen, self._plan, self._shown = {}, None, None

    def _block(self, flow: Flow) -> Block:
        """Return a flow as a piece of what happened."""
        known, weight = self.known, flow.count * self.known.discount**flow.step
        earned = known.unit.total(np.nansum(flow.reward * weight), weight.sum())
        return Block({0: flow}, np.array([flow.episodes]), np.array([np.nan]), np.array([earned]))

    # Names and rewards ----------------------------------------------------------------------------

    def _state_number(self, field: str, name: Any) -> int:
        info, known = self._begun.environment, self.known
        if not isinstance(info, Told):
            return int(info.observation.encode(name))
        try:
            return known.state_number(name)
        except ParameterError as error:
            hint = "; allow it in your model" * hasattr(
                getattr(self.algorithm, "ladder", None), "model"
            )
            if hint and field == "next_state":
                hint += f", or tell it as {ELSEWHERE!r}, which speaks against all classes"
            raise ParameterError(field, got=error.got, expected=f"{error.expected}{hint}") from None

    def _action_name(self, a: int) -> Any:
        info = self._begun.environment
        return self.known.action_name(a) if isinstance(info, Told) else info.action.decode(a)

    def _here(self, name: Any) -> int:
        """Return the number of the state that the next step is made in, which is where the last one led."""
        s, states = self._state_number("state", name), self._drive.states
        if states and states[-1] != s:
            led = self.known.state_name(states[-1])
            expected = f"{led!r}, where the last step led; if another episode begins, first begin_episode() (--begin)"
            raise ParameterError("state", got=repr(name), expected=expected)
        return s

    def _chosen(self, s: int) -> int:
        """Return what the plan in force does in a state, at the step of the open episode."""
        begun, drive = self._begun, self._drive
        h, policy = (
            len(drive.actions),
            self.plan.part(drive.states[0] if drive.states else s).policy,
        )
        if policy.ndim == 2:
            return int(policy[h, s])
        draw = generator(self.seed, "actions", begun.total_episodes).random(begun.known.horizon)
        return drawn(policy[h, s].cumsum(), draw[h])

    @property
    def _outcomes(self) -> Outcomes | None:
        """What the models allow, as logs need it."""
        ladder: Any = getattr(self.algorithm, "ladder", self.algorithm)
        if hasattr(ladder, "model"):
            return cast(Outcomes, ladder.model.layout)
        features: Any = getattr(ladder, "features", None)
        return (
            self.known.transition_rewards
            if features is None
            else cast(Outcomes, features.attach(self.known))
        )

    def _end(self, name: Any) -> int:
        """Return the state at which an episode that ended rests: the one named, its end, or else the last."""
        known, outcomes, end = self.known, self._outcomes, f"{name} (end)"
        if known.names is not None and end in known.names.states:
            return known.state_number(end)
        s = self._state_number("next_state", name)
        stirs = np.zeros(known.states, bool)
        if outcomes is not None:
            origin = outcomes.pair // known.actions
            stirs[origin[outcomes.next_state != origin]] = True
        if stirs[s] and stirs[-1]:
            expected = f"False: all models go on in state {name!r}, and have no state at the end"
            raise ParameterError("ended", got=True, expected=expected)
        return known.states - 1 if stirs[s] else s

    def _reward(self, s: int, a: int, s2: int, reward: Any) -> float:
        """Return the reward of a step in [0, 1], the known one where there is one; or refuse it."""
        known, unit = self.known, self._begun.environment.rewards
        value = (
            np.nan
            if reward is None
            else unit.to_unit(require_number("reward", reward, -np.inf, np.inf))
        )
        base, listed = (
            float(known.base_reward[s, a]),
            bonuses(known.transition_rewards, s * known.actions + a, s2),
        )
        if not known.rewards_known or not listed.size:  # nobody knows what this pays
            if known.rewards_known and reward is None:
                return base
            if not -_ROUNDING <= value <= 1.0 + _ROUNDING:
                raise ParameterError(
                    "reward", got=reward, expected=f"a number in [{unit.low:g}, {unit.high:g}]"
                )
            return float(min(max(value, 0.0), 1.0))
        each = base + np.unique(np.round(listed, 9))
        nearest = each[np.nanargmin(np.abs(each - (each[0] if reward is None else value)))]
        if (reward is None and each.size > 1) or abs(nearest - value) > _ROUNDING:
            amounts = " or ".join(f"{unit.total(one, 1):g}" for one in each)
            about = (
                "; it tells outcomes apart here"
                if each.size > 1
                else "; or None, for the known one"
            )
            raise ParameterError(
                "reward", got=reward, expected=f"{amounts}, as the models have it{about}"
            )
        return float(nearest)

    @property
    def _watch(self) -> Watch:
        return Watch(self.algorithm, self.known, self._drive.alarm or 0.0)
