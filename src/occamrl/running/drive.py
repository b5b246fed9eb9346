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
import math
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from occamrl.addresses import generator
from occamrl.envs.wrapper import EnvironmentInfo, Integers, bonuses
from occamrl.errors import ParameterError, require_integer, require_kind, require_number
from occamrl.models.features import FeatureMap
from occamrl.models.model import ELSEWHERE, ParametricLadder
from occamrl.protocols import SAME_REWARD, Flow, Known, Learner, Logged, Note, Outcomes, Plan
from occamrl.running.alarm import (
    Alarm,
    Reference,
    Watch,
    WatchState,
    keep_steps,
    kept_flow,
)
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

THE_CHANGE = "the change"  # that an alarm dates
UNSEEN = -1  # the action of a step that nobody has seen, or the state that it led to
_SHOWN = 3  # steps that a note names
Guarantee = Literal["kept", "conditional", "void"]
_HARM: tuple[Guarantee, ...] = ("kept", "conditional", "void")


class DrivenSystem(EnvironmentInfo):
    """A system of the user's that an agent is told of, by names of states and actions."""


class DrivenSource(Source):
    """A system that is driven by others: it never plays."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.problem = ""
        states = Integers((known.states,), (0,))
        actions = Integers((known.actions,), (0,))
        self.environment = DrivenSystem("what was told", known.unit, states, actions, exact=False)


class Standing(NamedTuple):
    """Where a driven learner stands between two calls, beside its result: the open episode."""

    states: tuple[int, ...] = ()
    actions: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()
    watch: WatchState | None = None  # while an alarm is on
    notes: tuple[Note, ...] = ()  # what was done to what was observed


class Moment(NamedTuple):
    """Where a driver stood before a step; what an end of an episode changes, if it ends one."""

    standing: Standing
    before: Result | None = None
    seen: dict[int, Flow] | None = None


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
        self._undoable: Moment | None = None  # before the last step, if nothing came after it
        self.resume(result)

    # Where it stands ------------------------------------------------------------------------------

    def resume(self, result: Result) -> None:
        """Go on from a result: from where its last block began, if that was interrupted."""
        state = result.state
        start = result.at
        seen: dict[int, Flow] = {}
        if result.cut is not None and result.cut.flows:
            state, start, seen = result.cut
        standing = result.drive or self._standing
        state, blocks, seen, self._standing = copy.deepcopy((state, result.blocks, seen, standing))
        before = replace(result, agent=self.algorithm, state=state, blocks=blocks, at=start)
        self._begin_block(replace(before, cut=None, drive=None), seen)

    def _begin_block(self, before: Result, seen: dict[int, Flow] | None = None) -> None:
        self._undoable = None
        self._block = BlockInForce(self.algorithm, before, seen or {})
        self._result: Result | None = None

    @property
    def known(self) -> Known:
        """What is known of the system."""
        return self._block.before.finite

    @property
    def plan(self) -> Plan:
        """The plan that is in force."""
        return self._block.plan

    @property
    def step(self) -> int:
        """The number of steps in the open episode; at 0, the next step begins one."""
        return len(self._standing.actions)

    @property
    def _open_flow(self) -> Flow:
        flow = Flow.of_episode(*self._standing[:3])
        return flow.take(flow.action != UNSEEN)

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
        if not self._open_flow.step.size:
            return self.result.answer
        state = copy.deepcopy(self.result.state)
        part = self.plan.part(self._standing.states[0])
        self.algorithm.learn(self.known, state, part, replace(self._open_flow, episodes=0))
        return replace(self.result, state=state).answer

    # Driving --------------------------------------------------------------------------------------

    def act(self, state: Any) -> Any:
        """Return what to do in a state, in the user's names."""
        return self.action_name(self._planned(self._here(state)))

    def observe(
        self,
        state: Any,
        action: Any,
        reward: Any,
        next_state: Any,
        ended: bool = False,
        *,
        impossible: str = "error",
    ) -> None:
        """Take note of a step; what is refused leaves the driver as it was."""
        known = self.known
        s = self._here(state)
        a = self._action_number(action)
        if not known.allowed[s, a]:
            names = [self.action_name(int(i)) for i in np.flatnonzero(known.allowed[s])]
            raise ParameterError(
                "action",
                got=f"{action!r} in state {state!r}",
                expected=f"one of {names!r:.200}",
            )
        if isinstance(self.algorithm, Arena) and a != self._planned(s):
            raise ParameterError(
                "action",
                got=f"{action!r}, of somebody else",
                expected=f"{self.action_name(self._planned(s))!r}, its own: a rule judges bases by "
                "the returns of what they chose",
            )
        require_kind("ended", ended, (bool, np.bool_))
        if ended:
            next_s = self._last_state(next_state)
        else:
            next_s = self.state_number("next_state", next_state)
        possible = self._possible(s, a)
        strange = possible is not None and next_s not in possible
        if strange and impossible == "error":
            self._refuse_impossible(state, action, next_state, possible)
        earned = self._unit_reward(s, a, next_s, reward)
        over = ended or self.step + 1 == known.horizon
        moment = self._moment(over)
        self._watch_step(s, a, next_s, earned)
        if strange:
            where = f"state {state!r}, action {action!r}, next state {next_state!r}"
            self._note("impossible", f"{self._when}: {where}")
        self._pass(s, a, earned, next_s)
        if over:
            self.begin_episode()
        self._undoable = moment

    @property
    def _when(self) -> str:
        """The episode and the step that come next, in words."""
        return f"episode {self._block.before.total_episodes + 1}, step {self.step + 1}"

    def _pass(self, s: int, a: int, earned: float, next_s: int) -> None:
        """Let a step of the open episode pass."""
        states, actions, rewards = self._standing[:3]
        self._standing = self._standing._replace(
            states=(*states[:-1], s, next_s),
            actions=(*actions, a),
            rewards=(*rewards, earned),
        )
        self._result = None

    def _possible(self, s: int, a: int) -> set[int] | None:
        """Return where some model leads from a state; None if no list of them is known."""
        outcomes = listed_outcomes(self.algorithm, self.known)
        if outcomes is None:
            return None
        pair = self.known.pair_in(outcomes, self.step, s, a)
        return set(outcomes.next_state[slice(*outcomes.start[pair : pair + 2])].tolist())

    def _refuse_impossible(
        self, state: Any, action: Any, next_state: Any, possible: set[int] | None
    ) -> None:
        names = [self.known.state_name(s) for s in sorted(possible or ()) if s >= 0]
        raise ParameterError(
            "next_state",
            got=f"{next_state!r} after action {action!r} in state {state!r}, which every model "
            "calls impossible",
            expected=f"one of {names!r:.200}; if it did happen, allow it in your models, or count "
            'it against all of them: observe(..., impossible="count")',
        )

    def _note(self, kind: str, example: str, guarantee: Guarantee = "kept") -> None:
        """Add one to what was done to steps, with the first examples."""
        notes = {note.kind: note for note in self._standing.notes if note.unit in ("step", "time")}
        others = tuple(note for note in self._standing.notes if note.kind != kind)
        last = notes.get(kind)
        unit = "time" if kind in ("forgotten", "forgotten_alarm") else "step"
        note = Note(kind, 1, 0, unit, example, guarantee)
        if last is not None:
            examples = last.example
            if last.affected < _SHOWN:
                examples = f"{examples}; {example}"
            worst = max(guarantee, last.guarantee, key=_HARM.index)
            note = last._replace(affected=last.affected + 1, example=examples, guarantee=worst)
        self._standing = self._standing._replace(notes=(*others, note))
        self._result = None

    def skip(self, next_state: Any = None) -> None:
        """Let a step pass unseen, to a state that is known or not."""
        if isinstance(self.algorithm, Arena):
            expected = "every step of an episode: a rule judges the returns of whole ones"
            raise ParameterError("skip", got="a step that nobody has seen", expected=expected)
        next_s = UNSEEN
        if next_state is not None:
            next_s = self.state_number("next_state", next_state)
        here = self._standing.states[-1] if self.step else UNSEEN
        self._note("skipped", self._when, "conditional")
        self._pass(here, UNSEEN, math.nan, next_s)
        if self.step == self.known.horizon:
            self.begin_episode()
        self._undoable = None

    def _moment(self, over: bool) -> Moment:
        """Return where the driver stands; with what changes if the episode is over."""
        standing = self._standing
        if standing.watch is not None:
            # the steps that are kept are replaced as a whole, never written to
            watch = {**standing.watch, "recent": np.zeros((0, 6))}
            watch = {**copy.deepcopy(watch), "recent": standing.watch["recent"]}
            standing = standing._replace(watch=cast(WatchState, watch))
        if not over:
            return Moment(standing)
        before = self._block.before
        before = replace(before, state=copy.deepcopy(before.state), blocks=before.blocks.copy())
        return Moment(standing, before, dict(self._block.seen))

    def undo(self) -> None:
        """Take back the last step that was observed."""
        moment = self._undoable
        if moment is None:
            expected = "undo() right after observe(...), of the same agent in memory"
            raise ParameterError("undo", got="no step to take back", expected=expected)
        if moment.before is not None:
            self._begin_block(moment.before, moment.seen)
        self._standing = moment.standing
        self._undoable = None
        self._note("undone", self._when, "conditional")

    def begin_episode(self) -> None:
        """Begin an episode; one that is unfinished is truncated, and the steps seen of it count.

        The learner learns from the block when its plan has lasted.
        """
        self._undoable = None
        if not self.step:
            return
        block = self._block
        states = self._standing.states
        watch = self._standing.watch
        flow = self._open_flow
        if not flow.step.size:  # nobody has seen anything of it
            self._standing = Standing(watch=watch, notes=self._standing.notes)
            block.before = replace(block.before, at=None)
            self._result = None
            return
        if watch is not None:
            keep_steps(watch, block.before.total_episodes + 1, flow)
        self._record(flow, block.plan, new=not block.seen)
        part = 0
        if states[0] != UNSEEN:
            part = int(plan_parts(block.plan, self.known)[1][states[0]])
        block.seen = joined(block.seen, {part: flow})
        if self.known.continuing:
            at = states[-1] if states[-1] != UNSEEN else None
            block.before = replace(block.before, at=at)
        self._standing = Standing(watch=watch, notes=self._standing.notes)
        self._result = None
        if block.episodes >= block.plan.episodes:
            self._end_block()

    def _end_block(self) -> None:
        block = self._block
        if block.seen:
            learn_block(self.algorithm, self.known, block.before.state, block.plan, block.seen)
        self._begin_block(block.before)

    def _record(self, flow: Flow, plan: Plan, *, new: bool) -> None:
        """Add a flow to what happened."""
        weight = flow.count * self.known.discount**flow.step
        earned = self.known.unit.total(np.nansum(flow.reward * weight), weight.sum())
        piece = Block({}, np.array([flow.episodes]), np.array([np.nan]), np.array([earned]))
        record_block(self._block.before.blocks, plan.facts, plan.diagnostics, piece, new=new)

    def _planned(self, s: int) -> int:
        """Return what the plan in force does in a state, at the step of the open episode."""
        start = self._standing.states[0] if self.step else s
        policy = self.plan.part(start).policy
        if policy.ndim == 2:
            return int(policy[self.step, s])
        before = self._block.before
        random = generator(before.seed, "actions", before.total_episodes)
        uniform = random.random(self.known.horizon)[self.step]
        return drawn(policy[self.step, s].cumsum(), uniform)

    # Other sources --------------------------------------------------------------------------------

    def read(self, log: Logged) -> None:
        """Learn from a log, flow by flow; a row that cannot be leaves the driver as it was."""
        if isinstance(self.algorithm, Arena):
            raise ParameterError(
                "source",
                got="a log for Arena",
                expected="an algorithm that learns from steps, such as Occam: a rule judges "
                "returns of its own choices",
            )
        before = self.result
        try:
            self.begin_episode()
            self._end_block()
            for flow in log.flows(self.known, outcomes_of(self.algorithm, self.known)):
                self._feed(flow)
        except Exception:  # whatever a row leads to
            self.resume(before)
            raise
        self._standing = self._standing._replace(notes=(*self._standing.notes, *log.notes))
        self._result = None

    def _feed(self, flow: Flow) -> None:
        """Learn from a flow that somebody else played."""
        if not self.known.rewards_known and np.isnan(flow.reward).any():
            raise ParameterError(
                "log", got="steps without a reward", expected="rewards: this agent estimates them"
            )
        facts = dict(self.plan.facts)
        if "playing" in facts:
            facts["playing"] = "somebody else"
        # Whose plan it was is of no matter to what others did.
        diagnostics = dict(self.plan.diagnostics)
        diagnostics.pop("source", None)
        plan = replace(self.plan, facts=facts, diagnostics=diagnostics)
        before = self._block.before
        self.algorithm.learn(self.known, before.state, plan, flow)
        self._record(flow, plan, new=True)
        self._begin_block(before)

    def take_over(self, result: Result) -> None:
        """Begin with what another has learned, of a problem of the same sizes."""
        theirs = _sizes(result.finite)
        ours = _sizes(self.known)
        if theirs != ours:
            raise ParameterError(
                "source", got=f"a problem of sizes {theirs[:3]}", expected=f"{ours[:3]}, as here"
            )
        state, blocks = copy.deepcopy((result.state, result.blocks))
        self._begin_block(replace(self._block.before, state=state, blocks=blocks))

    # Change ---------------------------------------------------------------------------------------

    def watch(self, alpha: float) -> None:
        """Watch for changes from now on, with a rate of false alarms."""
        memory = Watch(self.algorithm, self.known).begin(alpha)
        self._standing = self._standing._replace(watch=memory)
        self._result = None

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that was raised and not yet dealt with; None if there is none."""
        memory = self._standing.watch
        return None if memory is None else Watch(self.algorithm, self.known).alarm(memory)

    def dismiss(self) -> None:
        """Take an alarm for a false one."""
        if self._standing.watch is not None:
            self._standing.watch["alarm"] = []
            self._result = None

    def forget(self, since: str | int) -> None:
        """Start anew from the steps since an alarm's change, or since an episode, from 1."""
        memory = self._standing.watch
        if memory is None:
            raise ParameterError(
                "alarm", got=None, expected="Agent(..., alarm=1e-3), which keeps the steps"
            )
        alarm = self.alarm
        if since == THE_CHANGE:
            if alarm is None:
                raise ParameterError(
                    "since", got=repr(since), expected="the number of an episode: there is no alarm"
                )
            since = alarm.since
        before = self._block.before
        first = require_integer("since", since, 1, maximum=before.total_episodes + 1)
        chosen = alarm is not None
        rows = memory["recent"][memory["recent"][:, 0] >= first]
        if alarm is not None and first == alarm.since:
            rows = rows[(rows[:, 0] > first) | (rows[:, 1] + 1 >= alarm.step)]
        # Episodes that are kept are numbered anew.
        numbers = np.unique(rows[:, 0], return_inverse=True)[1] + 1
        self.watch(memory["alpha"])
        fresh = self._standing.watch
        assert fresh is not None  # noqa: S101  # it was just made
        fresh["recent"] = np.column_stack([numbers, rows[:, 1:]])
        state = self.algorithm.begin(self.known)
        self._begin_block(replace(before, state=state, blocks=Blocks(), cut=None))
        for episode in range(1, 1 + int(numbers.max(initial=0))):
            self._feed(kept_flow(fresh, episode))
        # Logs are forgotten with what was learned from them.
        kept = tuple(note for note in self._standing.notes if note.unit in ("step", "time"))
        self._standing = self._standing._replace(notes=kept)
        example = f"all before episode {first}"
        if not len(rows):
            self._note("forgotten", example)
        elif chosen:
            self._note("forgotten_alarm", example, "void")
        else:
            self._note("forgotten", example, "conditional")

    def _watch_step(self, s: int, a: int, next_s: int, reward: float) -> None:
        """Hold a step against the model in use, while an alarm is on."""
        memory = self._standing.watch
        if memory is not None:
            block = self._block
            watch = Watch(self.algorithm, self.known)
            if block.reference is None:
                block.reference = watch.reference(block.before.state, block.plan)
            when = block.before.total_episodes + 1, self.step + 1
            watch.see(memory, block.reference, (s, a, next_s, reward), when)

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
                    hint += (
                        f", or count it against all classes: tell it as {ELSEWHERE!r}, with "
                        'impossible="count"'
                    )
            raise ParameterError(field, got=error.got, expected=f"{error.expected}{hint}") from None

    def action_name(self, a: int) -> Any:
        """Return what the user calls an action."""
        if self.driven:
            return self.known.action_name(a)
        return self._block.before.environment.action.decode(a)

    def _action_number(self, name: Any) -> int:
        if self.driven:
            return self.known.action_number(name)
        return int(self._block.before.environment.action.encode(name))

    def _here(self, name: Any) -> int:
        """Return the number of the state that the next step is made in: where the last one led."""
        s = self.state_number("state", name)
        if self.step and self._standing.states[-1] not in (s, UNSEEN):
            raise ParameterError(
                "state",
                got=repr(name),
                expected=f"{self.known.state_name(self._standing.states[-1])!r}, where the last "
                "step led; if another episode begins, first begin_episode() (--begin)",
            )
        self._require_reached(s, name)
        return s

    def _require_reached(self, s: int, name: Any) -> None:
        """Refuse a state in which no model can be at the step that comes next.

        If a step that was seen led there, that step was impossible, and was told to be.
        """
        models = model_ladder(self.algorithm)
        if models is None or (self.step and self._standing.actions[-1] != UNSEEN):
            return
        known = self.known
        outcomes = models.model.layout
        pairs = known.pair_in(outcomes, self.step, s, np.arange(known.actions))
        if (outcomes.start[pairs + 1] > outcomes.start[pairs]).any():
            return
        raise ParameterError(
            "state",
            got=f"{name!r} at step {self.step + 1}",
            expected="a state that your model reaches at that step: start= says where episodes "
            "begin, continuing=True that each begins where the last one ended",
        )

    def _last_state(self, name: Any) -> int:
        """Return the state in which an episode that ended stays.

        That is the one named, if nothing happens there; the end that the model has for it; or else
        the last state, where that is one for the end.
        """
        known = self.known
        if known.names is not None and f"{name} (end)" in known.names.states:
            return known.state_number(f"{name} (end)")
        s = self.state_number("next_state", name)
        goes_on = np.zeros(known.states, bool)
        outcomes = outcomes_of(self.algorithm, known)
        if outcomes is not None:
            origin = known.origin(outcomes)
            goes_on[origin[outcomes.next_state != origin]] = True
        if not goes_on[s]:
            return s
        if goes_on[-1]:
            raise ParameterError(
                "ended",
                got=True,
                expected=f"False: all models go on in state {name!r}, and have no state at the end",
            )
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
        outcomes = listed_outcomes(self.algorithm, known)
        if outcomes is not None and outcomes.start.size > known.base_reward.size + 1:
            # a reward of another step is not one of this
            listed = bonuses(outcomes, known.pair_in(outcomes, self.step, s, a), next_s)
        if not known.rewards_known or not listed.size:  # nobody knows what this pays
            if known.rewards_known and reward is None:
                return base
            if not -SAME_REWARD <= value <= 1.0 + SAME_REWARD:
                expected = f"a number in [{unit.low:g}, {unit.high:g}]"
                raise ParameterError("reward", got=reward, expected=expected)
            return float(min(max(value, 0.0), 1.0))
        possible = base + np.unique(np.round(listed, 9))
        if reward is None and possible.size == 1:
            return float(possible[0])
        distance = np.abs(possible - value)
        if reward is None or distance.min() > SAME_REWARD:
            amounts = " or ".join(f"{unit.total(amount, 1):g}" for amount in possible)
            hint = "or None, for the known one" if possible.size == 1 else "it tells outcomes apart"
            expected = f"{amounts}, as the models have it; {hint}"
            raise ParameterError("reward", got=reward, expected=expected)
        return float(possible[distance.argmin()])


def model_ladder(algorithm: Learner) -> ParametricLadder | None:
    """Return the ladder of a model that an algorithm has, if any."""
    ladder = getattr(algorithm, "ladder", None)  # an algorithm may be a user's, and have none
    return ladder if isinstance(ladder, ParametricLadder) else None


def listed_outcomes(algorithm: Learner, known: Known) -> Outcomes | None:
    """Return what models list as possible; None of an algorithm without any."""
    models = model_ladder(algorithm)
    if models is not None:
        return models.model.layout
    # Features are those of a ladder, or of the algorithm; a user's has neither.
    features = getattr(getattr(algorithm, "ladder", algorithm), "features", None)
    return features.attach(known) if isinstance(features, FeatureMap) else None


def outcomes_of(algorithm: Learner, known: Known) -> Outcomes | None:
    """Return what the models of an algorithm allow, as logs need it."""
    listed = listed_outcomes(algorithm, known)
    return known.transition_rewards if listed is None else listed


def _sizes(known: Known) -> tuple[int, int, int, Any]:
    return known.states, known.actions, known.horizon, known.names
