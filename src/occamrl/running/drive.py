"""Driving a learner: it is told what happened, step by step, in the user's names.

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
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from occamrl.addresses import generator
from occamrl.envs.wrapper import EnvironmentInfo, Integers, bonuses
from occamrl.errors import ParameterError, require_integer, require_kind, require_number
from occamrl.models.features import FeatureMap
from occamrl.models.model import ELSEWHERE, ParametricLadder
from occamrl.protocols import Floats, Flow, Known, Learner, Logged, Outcomes, Plan
from occamrl.running.alarm import Alarm, Reference, Watch, WatchState
from occamrl.running.flow import drawn
from occamrl.running.result import Blocks, Cut, Result
from occamrl.running.run import (
    Block,
    Source,
    joined,
    learn_block,
    plan_parts,
    record_block,
    require_plan,
)
from occamrl.selectors.arena import Arena

KEPT = 20_000  # steps that are kept while an alarm is on, to go on from
ROUNDING = 1e-3  # how far a reward may be from the known one, in the unit of [0, 1]
THE_CHANGE = "the change"  # that an alarm dates


class DrivenSystem(EnvironmentInfo):
    """A system of the user's that an agent is told of, by names of states and actions."""


def driven_source(known: Known) -> Source:
    """Return a system that is driven by others as a source, which never plays."""
    source = Source()
    source.known = known
    source.problem = ""
    source.environment = DrivenSystem(
        name="what was told",
        rewards=known.unit,
        observation=Integers((known.states,), (0,)),
        action=Integers((known.actions,), (0,)),
        exact=False,
    )
    return source


class Watching(NamedTuple):
    """What is kept while an alarm is on."""

    alpha: float  # the rate of false alarms a step
    memory: WatchState
    recent: Floats  # [steps, 6] episode, step, s, a, s' and reward of the last ones


class Standing(NamedTuple):
    """Where a driven learner stands between two calls, beside its result: the open episode."""

    states: tuple[int, ...] = ()
    actions: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()
    watching: Watching | None = None

    @property
    def flow(self) -> Flow:
        """The steps of the open episode."""
        return Flow.of_episode(self.states, self.actions, self.rewards)

    def after(self, s: int, a: int, next_s: int, reward: float) -> Standing:
        """Return where it stands after a step."""
        return self._replace(
            states=(*(self.states or (s,)), next_s),
            actions=(*self.actions, a),
            rewards=(*self.rewards, reward),
        )


class BlockInForce:
    """The block that is being played: what was learned before it, what was seen of it, its plan."""

    def __init__(self, algorithm: Learner, before: Result, seen: dict[int, Flow]) -> None:
        self.algorithm = algorithm
        self.before = before  # its state is that before the block; its returns are all so far
        self.seen = seen  # finished episodes, by part of the plan
        self.reference: Reference | None = None  # what a watch accuses, while the plan lasts

    @property
    def episodes(self) -> int:
        """How many episodes were finished."""
        return sum(flow.episodes for flow in self.seen.values())

    @cached_property
    def plan(self) -> Plan:
        """The plan in force: it follows from what was learned before the block."""
        before = self.before
        draw = generator(before.seed, "agent", before.total_episodes - self.episodes)
        plan = self.algorithm.plan(before.finite, before.state, draw)
        require_plan(plan, before.finite)
        return plan


class LearnerDriver:
    """Drives a learner, which learns when the plan in force has lasted."""

    def __init__(self, algorithm: Learner, result: Result) -> None:
        self.algorithm = algorithm
        self._standing = Standing()
        self.resume(result)

    # Where it stands ------------------------------------------------------------------------------

    def resume(self, result: Result) -> None:
        """Go on from a result: from where its last block began, if that was interrupted."""
        cut = result.cut
        state = result.state
        seen: dict[int, Flow] = {}
        start = result.at
        if cut is not None and cut.flows:
            state = cut.state
            seen = cut.flows
            start = cut.at
        standing = result.drive or self._standing
        state, blocks, seen, standing = copy.deepcopy((state, result.blocks, seen, standing))
        before = replace(
            result,
            agent=self.algorithm,
            state=state,
            blocks=blocks,
            at=start,
            cut=None,
            drive=None,
        )
        self._standing = standing
        self._begin_block(before, seen)

    def _begin_block(self, before: Result, seen: dict[int, Flow] | None = None) -> None:
        self._block = BlockInForce(self.algorithm, before, seen or {})
        self._result: Result | None = None

    def _stand(self, standing: Standing) -> None:
        self._standing = standing
        self._result = None

    @property
    def known(self) -> Known:
        """What is known of the system."""
        return self._block.before.finite

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._block.plan

    @property
    def step(self) -> int:
        """How many steps the open episode has; 0: the next step begins one."""
        return len(self._standing.actions)

    @property
    def result(self) -> Result:
        """Everything learned so far; steps of an open episode count when it ends."""
        if self._result is None:
            before = self._block.before
            state, blocks, seen, standing = copy.deepcopy(
                (before.state, before.blocks, self._block.seen, self._standing)
            )
            cut = None
            if seen:
                cut = Cut(copy.deepcopy(state), before.at, seen)
                learn_block(self.algorithm, self.known, state, self.plan, seen)
            self._result = replace(before, state=state, blocks=blocks, cut=cut, drive=standing)
        return self._result

    @property
    def answer(self) -> Any:
        """What the data say, the steps of an open episode included."""
        result = self.result
        if self.step:
            state = copy.deepcopy(result.state)
            flow = replace(self._standing.flow, episodes=0)
            part = self.plan.part(self._standing.states[0])
            self.algorithm.learn(self.known, state, part, flow)
            result = replace(result, state=state)
        return result.answer

    # Driving --------------------------------------------------------------------------------------

    def act(self, state: Any) -> Any:
        """Return what to do in a state, in the user's names."""
        return self.action_name(self._planned(self._here(state)))

    def observe(
        self, state: Any, action: Any, reward: Any, next_state: Any, ended: bool = False
    ) -> None:
        """Take note of a step; what is refused leaves the driver as it was."""
        known = self.known
        s = self._here(state)
        a = self._action_number(action)
        if not known.allowed[s, a]:
            names = [self.action_name(int(i)) for i in np.flatnonzero(known.allowed[s])]
            got = f"{action!r} in state {state!r}"
            raise ParameterError("action", got=got, expected=f"one of {names!r:.200}")
        self._require_own(s, a, action)
        require_kind("ended", ended, (bool, np.bool_))
        if ended:
            next_s = self._last_state(next_state)
        else:
            next_s = self.state_number("next_state", next_state)
        earned = self._unit_reward(s, a, next_s, reward)
        self._watch_step(s, a, next_s, earned)
        self._stand(self._standing.after(s, a, next_s, earned))
        if ended or self.step == known.horizon:
            self.begin_episode()

    def begin_episode(self) -> None:
        """Begin an episode; one that is unfinished is truncated, and the steps seen of it count.

        The learner learns from the block when its plan has lasted.
        """
        if not self.step:
            return
        block = self._block
        before = block.before
        flow = self._standing.flow
        start = self._standing.states[0]
        standing = Standing(watching=self._with_recent(flow))
        record_block(
            before.blocks,
            block.plan.facts,
            block.plan.diagnostics,
            self._piece(flow),
            new=not block.seen,
        )
        part = int(plan_parts(block.plan, self.known)[1][start])
        block.seen = joined(block.seen, {part: flow})
        if self.known.continuing:
            block.before = replace(before, at=self._standing.states[-1])
        self._stand(standing)
        if block.episodes >= block.plan.episodes:
            self._end_block()

    def _end_block(self) -> None:
        block = self._block
        if block.seen:
            learn_block(self.algorithm, self.known, block.before.state, block.plan, block.seen)
        self._begin_block(block.before)

    def _piece(self, flow: Flow) -> Block:
        """Return a flow as a piece of what happened."""
        known = self.known
        weight = flow.count * known.discount**flow.step
        earned = known.unit.total(np.nansum(flow.reward * weight), weight.sum())
        return Block({0: flow}, np.array([flow.episodes]), np.array([np.nan]), np.array([earned]))

    def _planned(self, s: int) -> int:
        """Return what the plan in force does in a state, at the step of the open episode."""
        standing = self._standing
        start = standing.states[0] if standing.states else s
        policy = self.plan.part(start).policy
        if policy.ndim == 2:
            return int(policy[self.step, s])
        before = self._block.before
        random = generator(before.seed, "actions", before.total_episodes)
        uniform = random.random(self.known.horizon)[self.step]
        return drawn(policy[self.step, s].cumsum(), uniform)

    def _require_own(self, s: int, a: int, action: Any) -> None:
        """Refuse actions of others to a rule, which judges bases by what they chose."""
        if not isinstance(self.algorithm, Arena):
            return
        planned = self._planned(s)
        if a != planned:
            name = self.action_name(planned)
            expected = f"{name!r}, its own: a rule judges bases by the returns of what they chose"
            raise ParameterError("action", got=f"{action!r}, of somebody else", expected=expected)

    # Other sources --------------------------------------------------------------------------------

    def read(self, log: Logged) -> None:
        """Learn from a log, flow by flow; a row that cannot be leaves the driver as it was."""
        if isinstance(self.algorithm, Arena):
            expected = (
                "an algorithm that learns from steps, such as Occam: a rule judges returns of its "
                "own choices"
            )
            raise ParameterError("source", got="a log for Arena", expected=expected)
        before = self.result
        try:
            self.begin_episode()
            self._end_block()
            for flow in log.flows(self.known, outcomes_of(self.algorithm, self.known)):
                self._feed(flow)
        except Exception:  # whatever a row leads to
            self.resume(before)
            raise

    def _feed(self, flow: Flow) -> None:
        """Learn from a flow that somebody else played."""
        before = self._block.before
        plan = self._block.plan
        if not self.known.rewards_known and np.isnan(flow.reward).any():
            expected = "rewards: this agent estimates them"
            raise ParameterError("log", got="steps without a reward", expected=expected)
        facts = dict(plan.facts)
        if "playing" in facts:
            facts["playing"] = "somebody else"
        # Whose plan it was is of no matter to what others did.
        diagnostics = dict(plan.diagnostics)
        diagnostics.pop("source", None)
        others = replace(plan, facts=facts, diagnostics=diagnostics)
        self.algorithm.learn(self.known, before.state, others, flow)
        record_block(before.blocks, facts, diagnostics, self._piece(flow), new=True)
        self._begin_block(before)

    def take_over(self, result: Result) -> None:
        """Begin with what another has learned, of a problem of the same sizes."""
        theirs = _sizes(result.finite)
        ours = _sizes(self.known)
        if theirs != ours:
            expected = f"{ours[:3]}, as here"
            got = f"a problem of sizes {theirs[:3]}"
            raise ParameterError("source", got=got, expected=expected)
        state, blocks = copy.deepcopy((result.state, result.blocks))
        self._begin_block(replace(self._block.before, state=state, blocks=blocks))

    # Change ---------------------------------------------------------------------------------------

    def watch(self, alpha: float) -> None:
        """Watch for changes from now on, with a rate of false alarms."""
        watch = Watch(self.algorithm, self.known, alpha)
        self._stand(
            self._standing._replace(watching=Watching(alpha, watch.begin(), np.zeros((0, 6))))
        )

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that was raised and not dealt with; None without."""
        watching = self._standing.watching
        if watching is None:
            return None
        return self._watch(watching).alarm(watching.memory)

    def dismiss(self) -> None:
        """Take an alarm for a false one."""
        watching = self._standing.watching
        if watching is not None:
            watching.memory["alarm"] = []
            self._result = None

    def forget(self, since: str | int) -> None:
        """Start anew from the steps since an alarm's change, or since an episode, from 1."""
        watching = self._standing.watching
        if watching is None:
            expected = "Agent(..., alarm=1e-3): steps are kept for that"
            raise ParameterError("alarm", got=None, expected=expected)
        alarm = self.alarm
        if since == THE_CHANGE:
            if alarm is None:
                expected = "the number of an episode: there is no alarm"
                raise ParameterError("since", got=repr(since), expected=expected)
            since = alarm.since
        before = self._block.before
        first = require_integer("since", since, 1, maximum=before.total_episodes + 1)
        rows = watching.recent[watching.recent[:, 0] >= first]
        if alarm is not None and first == alarm.since:
            rows = rows[(rows[:, 0] > first) | (rows[:, 1] + 1 >= alarm.step)]
        state = self.algorithm.begin(self.known)
        self._begin_block(replace(before, state=state, blocks=Blocks(), cut=None))
        episodes = np.unique(rows[:, 0])
        for episode in episodes:
            self._feed(_flow_of(rows[rows[:, 0] == episode]))
        numbers = np.searchsorted(episodes, rows[:, 0]) + 1
        recent = np.column_stack([numbers, rows[:, 1:]])
        memory = self._watch(watching).begin()
        self._stand(self._standing._replace(watching=Watching(watching.alpha, memory, recent)))

    def _watch(self, watching: Watching) -> Watch:
        return Watch(self.algorithm, self.known, watching.alpha)

    def _watch_step(self, s: int, a: int, next_s: int, reward: float) -> None:
        """Hold a step against the model in use, while an alarm is on."""
        watching = self._standing.watching
        if watching is None:
            return
        block = self._block
        watch = self._watch(watching)
        if block.reference is None:
            block.reference = watch.reference(block.before.state, block.plan)
        when = block.before.total_episodes + 1, self.step + 1
        watch.see(watching.memory, block.reference, (s, a, next_s, reward), when)

    def _with_recent(self, flow: Flow) -> Watching | None:
        """Return what is kept while an alarm is on, with the steps of an episode that ended."""
        watching = self._standing.watching
        if watching is None:
            return None
        number = np.full(flow.step.size, self._block.before.total_episodes + 1)
        rows = np.column_stack(
            [number, flow.step, flow.state, flow.action, flow.next_state, flow.reward]
        )
        return watching._replace(recent=np.vstack([watching.recent, rows])[-KEPT:])

    # Names and rewards ----------------------------------------------------------------------------

    @property
    def driven(self) -> bool:
        """Whether states and actions have the names of what is known, not of an environment."""
        return isinstance(self._block.before.environment, DrivenSystem)

    def state_number(self, field: str, name: Any) -> int:
        """Return the number of a state that the user names."""
        if not self.driven:
            return int(self._block.before.environment.observation.encode(name))
        try:
            return self.known.state_number(name)
        except ParameterError as error:
            hint = ""
            if model_ladder(self.algorithm) is not None:
                hint = "; allow it in your model"
                if field == "next_state":
                    hint += f", or tell it as {ELSEWHERE!r}, which speaks against all classes"
            raise ParameterError(field, got=error.got, expected=f"{error.expected}{hint}") from None

    def action_name(self, a: int) -> Any:
        """Return what the user calls an action."""
        if not self.driven:
            return self._block.before.environment.action.decode(a)
        return self.known.action_name(a)

    def _action_number(self, name: Any) -> int:
        if not self.driven:
            return int(self._block.before.environment.action.encode(name))
        return self.known.action_number(name)

    def _here(self, name: Any) -> int:
        """Return the number of the state that the next step is made in: where the last one led."""
        s = self.state_number("state", name)
        states = self._standing.states
        if states and states[-1] != s:
            led = self.known.state_name(states[-1])
            expected = (
                f"{led!r}, where the last step led; if another episode begins, first "
                "begin_episode() (--begin)"
            )
            raise ParameterError("state", got=repr(name), expected=expected)
        return s

    def _last_state(self, name: Any) -> int:
        """Return the state in which an episode that ended stays.

        That is the one named, if nothing happens there; the end that the model has for it; or else
        the last state, where that is one for the end.
        """
        known = self.known
        end = f"{name} (end)"
        if known.names is not None and end in known.names.states:
            return known.state_number(end)
        s = self.state_number("next_state", name)
        goes_on = np.zeros(known.states, bool)
        outcomes = outcomes_of(self.algorithm, known)
        if outcomes is not None:
            origin = outcomes.pair // known.actions
            goes_on[origin[outcomes.next_state != origin]] = True
        if not goes_on[s]:
            return s
        if goes_on[-1]:
            expected = f"False: all models go on in state {name!r}, and have no state at the end"
            raise ParameterError("ended", got=True, expected=expected)
        return known.states - 1

    def _unit_reward(self, s: int, a: int, next_s: int, reward: Any) -> float:
        """Return the reward of a step in [0, 1], the known one where there is one; or refuse it."""
        known = self.known
        unit = self._block.before.environment.rewards
        value = np.nan
        if reward is not None:
            value = unit.to_unit(require_number("reward", reward, -np.inf, np.inf))
        base = float(known.base_reward[s, a])
        listed = bonuses(known.transition_rewards, s * known.actions + a, next_s)
        if not known.rewards_known or not listed.size:  # nobody knows what this pays
            if known.rewards_known and reward is None:
                return base
            if not -ROUNDING <= value <= 1.0 + ROUNDING:
                expected = f"a number in [{unit.low:g}, {unit.high:g}]"
                raise ParameterError("reward", got=reward, expected=expected)
            return float(min(max(value, 0.0), 1.0))
        possible = base + np.unique(np.round(listed, 9))
        if reward is None and possible.size == 1:
            return float(possible[0])
        distance = np.abs(possible - value)
        if reward is None or distance.min() > ROUNDING:
            amounts = " or ".join(f"{unit.total(amount, 1):g}" for amount in possible)
            hint = "; or None, for the known one"
            if possible.size > 1:
                hint = "; it tells outcomes apart here"
            expected = f"{amounts}, as the models have it{hint}"
            raise ParameterError("reward", got=reward, expected=expected)
        return float(possible[distance.argmin()])


def model_ladder(algorithm: Learner) -> ParametricLadder | None:
    """Return the ladder of a model that an algorithm has, if any."""
    ladder = getattr(algorithm, "ladder", None)  # an algorithm may be a user's, and have none
    return ladder if isinstance(ladder, ParametricLadder) else None


def outcomes_of(algorithm: Learner, known: Known) -> Outcomes | None:
    """Return what the models of an algorithm allow, as logs need it."""
    models = model_ladder(algorithm)
    if models is not None:
        return models.model.layout
    # Features are those of a ladder, or of the algorithm; a user's has neither.
    ladder = getattr(algorithm, "ladder", algorithm)
    features = getattr(ladder, "features", None)
    if isinstance(features, FeatureMap):
        return features.attach(known)
    return known.transition_rewards


def _sizes(known: Known) -> tuple[int, int, int, Any]:
    return known.states, known.actions, known.horizon, known.names


def _flow_of(rows: Floats) -> Flow:
    """Return the flow of kept steps [n, 6] of one episode."""
    step, state, action, next_state = rows[:, 1:5].astype(np.int64).T
    count = np.ones(len(rows), np.int64)
    return Flow(step, state, action, next_state, rows[:, 5], count, episodes=1)
