"""One driver for every run: it asks for a plan, plays the block, and hands back what was counted.

Random numbers have addresses (:mod:`occamrl.addresses`): nothing depends on what was drawn before,
so a run that goes on from an earlier one equals an uninterrupted one, to the bit. A block that the
end of a run interrupted is played anew when the run goes on (in the simulator), or finished first
(in an environment, whose episodes cannot be taken back); the learner is then told of the whole
block, as if there had been no end.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamrl.addresses import generator
from occamrl.errors import Interrupted, ParameterError, require_integer
from occamrl.policies import require_policy
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.progress import Progress, ctrl_c
from occamrl.protocols import (
    MOST_EPISODES,
    Controller,
    Floats,
    Flow,
    Ints,
    Known,
    Learner,
    Plan,
    Problem,
    State,
)
from occamrl.running.flow import PolicyArray, play
from occamrl.running.identity import changes, identity
from occamrl.running.result import Blocks, Cut, IfReal, Phase, Result

Facts = Mapping[str, Any]  # of a plan, or its diagnostics
MOST_PHASES = 4_096
GROWTH = 1.1  # of the episodes between two points of the history of a phase
MOST_POLICIES = 8  # whose values are remembered


class Block(NamedTuple):
    """A block of episodes as a source played it.

    In one piece by the simulator, episode by episode elsewhere.
    """

    flows: dict[int, Flow]  # by the parts of the plan that were played
    episodes: Ints  # [pieces]
    regret: Floats  # [pieces] exact, summed over the piece; NaN where the truth is not known
    returns: Floats  # [pieces] realised, summed likewise; both in the unit of the problem's rewards
    pessimistic: int = 0  # episodes whose planned value was below the optimum
    fault: BaseException | None = None  # what ended the block early
    end: int | None = None  # the state that the last episode led to, if the next one begins there


class Source:
    """Where episodes come from: the simulator, or an environment."""

    known: Known
    problem: str  # a run goes on where this is the same
    mdp: FiniteMDP | None  # the truth, where it is known
    environment: IfReal = None  # what is kept of an environment; None in the simulator
    _evaluated: tuple[tuple[PolicyArray, Floats], ...] = ()  # the latest policies, with values

    def play(
        self,
        plan: Plan,
        first: int,
        episodes: int,
        seed: int,
        stop: Callable[[], bool],
        at: int | None = None,
    ) -> Block:
        """Play episodes ``first``, ``first + 1``, ... under a plan; fewer where ``stop`` says so.

        Of a problem that goes on, the first one begins ``at`` a state.
        """
        raise NotImplementedError

    def judge(self, plan: Plan) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the exact regret of an episode by its start [S].

        And in which starts [S] the plan counts on less than the best: there its optimism fails.
        """
        if self.mdp is None:
            return np.full(self.known.states, np.nan), np.zeros(self.known.states, bool)
        best = self.mdp.optimal_values[0]
        gap = best - self._values(self.mdp, plan.policy)
        rounding = 1e-12 * self.known.horizon
        regret = self.known.unit.scale * np.where(gap > rounding, gap, 0.0)
        if plan.values is None:
            return regret, np.zeros(self.known.states, bool)
        return regret, plan.values[0] < best - 1e-9 * self.known.horizon

    def _values(self, mdp: FiniteMDP, policy: PolicyArray) -> Floats:
        """Return the true values of a policy [S]; policies often recur, so some are kept."""
        for earlier, values in self._evaluated:
            if np.array_equal(earlier, policy):
                return values
        evaluated: Floats = mdp.evaluate(policy)[0]
        self._evaluated = ((policy, evaluated), *self._evaluated[: MOST_POLICIES - 1])
        return evaluated


class Simulator(Source):
    """A FiniteMDP as a source of episodes."""

    mdp: FiniteMDP

    def __init__(self, mdp: FiniteMDP) -> None:
        self.mdp = mdp
        self.known = mdp.known
        self.problem = mdp.fingerprint

    def play(
        self,
        plan: Plan,
        first: int,
        episodes: int,
        seed: int,
        stop: Callable[[], bool],
        at: int | None = None,
    ) -> Block:
        """Play a block: its visits are a multinomial flow, its regret is exact."""
        parts, which = plan_parts(plan, self.known)
        policies = [part.policy for part in parts]
        draw = generator(seed, "environment", first)
        flows, end = play(self.mdp, policies, which, episodes, draw, at)
        regret = 0.0
        earned = 0.0
        pessimistic = 0
        for number, flow in flows.items():
            lost, below = self.judge(parts[number])
            begins = flow.step == 0
            starts = np.bincount(flow.state[begins], flow.count[begins], self.mdp.states)
            weight = flow.count * self.known.discount**flow.step
            regret += float(starts @ lost)
            earned += self.known.unit.total(flow.reward @ weight, weight.sum())
            pessimistic += int(starts[below].sum())
        return Block(
            flows,
            np.array([episodes]),
            np.array([regret]),
            np.array([earned]),
            pessimistic,
            end=end if self.known.continuing else None,
        )


class RunLoop:
    """A run in progress, block by block: of a learner, or of a controller."""

    result: Result  # so far
    bar: Progress  # while it is played
    whole = True  # whether the result is of finished blocks; not if an agent failed in one

    def _play_block(self, end: int, stop: Callable[[], bool]) -> BaseException | None:
        """Play one block, until episode ``end`` at most; return what ended it early."""
        raise NotImplementedError

    def play(
        self,
        episodes: int,
        *,
        progress: bool | None = None,
        after: Callable[[Result], bool] | None = None,
    ) -> None:
        """Play that many more episodes; ``after`` every block it is asked whether to go on.

        Ctrl-C raises Interrupted, with everything so far in its ``result``.
        """
        first = self.result.total_episodes
        end = first + episodes
        began = time.perf_counter() - self.result.wall_time
        self.bar = Progress(self.result.label, episodes, progress)
        try:
            with ctrl_c() as pressed:
                while self.result.total_episodes < end:
                    self.whole = False
                    fault = self._play_block(end, pressed.is_set)
                    self.whole = True
                    self.result = replace(self.result, wall_time=time.perf_counter() - began)
                    if isinstance(fault, Exception):
                        raise fault
                    done = self.result.total_episodes
                    if pressed.is_set() or fault is not None:
                        raise Interrupted(f"stopped after episode {done:,} of {end:,}", self.result)
                    self.bar.update(done - first)
                    if after is not None and not after(self.result):
                        break
        finally:
            self.bar.close()


class Run(RunLoop):
    """A learner's run: the learner, a source of episodes, and what came of them so far.

    By default the seed is 0, or that of ``earlier``: where to go on, which is copied and stays as
    it is.
    """

    def __init__(
        self, agent: Learner, source: Source, seed: int | None = None, earlier: Result | None = None
    ) -> None:
        require_learner(agent)
        self.source = source
        if earlier is None:
            self.result = Result(
                label=label_of(agent),
                seed=require_integer("seed", 0 if seed is None else seed, 0),
                problem=source.problem,
                environment=source.environment,
                agent=agent,
                known=source.known,
                state=agent.begin(source.known),
                blocks=Blocks(),
            )
            return
        require_continuation(earlier, agent, source.problem, seed)
        blocks, state, cut = copy.deepcopy((earlier.blocks, earlier.state, earlier.cut))
        self.result = replace(
            earlier,
            problem=source.problem,
            environment=source.environment,
            agent=agent,
            known=source.known,
            state=state,
            blocks=blocks,
            cut=cut,
        )

    def _play_block(self, end: int, stop: Callable[[], bool]) -> BaseException | None:
        """Plan and play one block, until episode ``end`` at most; return what ended it early."""
        agent = self.result.agent
        known = self.source.known
        blocks = self.result.blocks
        state = self.result.state
        start = self.result.at
        seen: dict[int, Flow] = {}  # what an environment has shown of the block already
        if self.result.cut is not None:  # go back to where the interrupted block began
            state, start, seen = self.result.cut
            if not seen:
                blocks.drop_last()
        first = blocks.total_episodes
        episodes_seen = sum(flow.episodes for flow in seen.values())
        draw = generator(self.result.seed, "agent", first - episodes_seen)
        plan = agent.plan(known, state, draw)
        require_plan(plan, known)
        length = min(plan.episodes - episodes_seen, end - first)
        block = self.source.play(plan, first, length, self.result.seed, stop, start)
        # Without flows nothing was played: a fault, or a stop, came before the first episode.
        if block.flows:
            flows = joined(seen, block.flows)
            cut = None
            if episodes_seen + block.episodes.sum() < plan.episodes:
                cut = Cut(copy.deepcopy(state), start, {})
                if self.source.environment is not None:  # whose episodes cannot be taken back
                    cut = cut._replace(flows=flows)
            learn_block(agent, known, state, plan, flows)
            record_block(blocks, plan.facts, plan.diagnostics, block, new=not seen)
            self.result = replace(self.result, state=state, cut=cut, at=block.end)
        return block.fault


# Blocks -------------------------------------------------------------------------------------------


def plan_parts(plan: Plan, known: Known) -> tuple[list[Plan], Ints]:
    """Return the different parts of a plan, itself first, and which is played from where [S]."""
    parts = [plan]
    numbers = {id(plan): 0}
    which = np.zeros(known.states, np.int64)
    for start, part in plan.starts.items():
        if id(part) not in numbers:
            numbers[id(part)] = len(parts)
            parts.append(part)
        which[start] = numbers[id(part)]
    return parts, which


def joined(*several: dict[int, Flow]) -> dict[int, Flow]:
    """Return flows by the parts of a plan as one for each part."""
    by_part: dict[int, list[Flow]] = {}
    for flows in several:
        for number, flow in flows.items():
            by_part.setdefault(number, []).append(flow)
    whole = {}
    for number, pieces in sorted(by_part.items()):
        # One flow stays as it is: joining sorts the rows, and a learner may add them up in order.
        whole[number] = pieces[0] if len(pieces) == 1 else Flow.joined(pieces)
    return whole


def learn_block(
    agent: Learner, known: Known, state: State, plan: Plan, flows: dict[int, Flow]
) -> None:
    """Let an agent learn from a block: of each part of the plan by itself."""
    parts, _ = plan_parts(plan, known)
    for number, flow in flows.items():
        agent.learn(known, state, parts[number], flow)


def record_block(
    blocks: Blocks, decided: Facts, grounds: Facts, block: Block, *, new: bool
) -> None:
    """Add a block, or the rest of one that is not new, to what happened, and what was decided."""
    facts = dict(decided)
    diagnostics = dict(grounds)
    if blocks.phases and blocks.phases[-1]["facts"] == facts:
        blocks.phases[-1]["diagnostics"] = diagnostics
    else:
        blocks.phases.append({"facts": facts, "diagnostics": diagnostics})
    if new and "statistics" in diagnostics:
        point = [blocks.total_episodes, *diagnostics["statistics"]]
        add_point(blocks.phases[-1].setdefault("history", []), point)
    others = [0] * (len(block.episodes) - 1)  # a plan is counted with its first piece
    blocks.episodes += block.episodes.tolist()
    blocks.regret += block.regret.tolist()
    blocks.returns += block.returns.tolist()
    blocks.pessimistic += [block.pessimistic, *others]
    blocks.plans += [int(new), *others]
    blocks.phase += [len(blocks.phases) - 1] * len(block.episodes)
    blocks.total_episodes += int(block.episodes.sum())
    if len(blocks.phases) > MOST_PHASES:
        join_phases(blocks)


def add_point(history: list[list[float]], point: list[float]) -> None:
    """Add to the history of a phase, of which the first, the last, and some between are kept."""
    if len(history) > 1 and history[-1][0] < GROWTH * history[-2][0]:
        history.pop()
    if not history or history[-1] != point:
        history.append(point)


def join_phases(blocks: Blocks) -> None:
    """Halve the number of phases, by joining neighbours: of bases that take turns, say."""
    halved: list[Phase] = []
    for phase in blocks.phases[1::2]:
        halved.append({**phase, "diagnostics": {**phase["diagnostics"], "joined": True}})
    blocks.phases = halved
    blocks.phase = [min(number // 2, len(halved) - 1) for number in blocks.phase]


# At the door --------------------------------------------------------------------------------------


def label_of(agent: object) -> str:
    """Return what results call an agent: its class, and of the paper's own that it is one."""
    kind = type(agent)
    if kind.__module__.startswith("occamrl.paper."):
        return f"paper.{kind.__name__}"
    return kind.__name__


def require_learner(agent: object) -> None:
    """Refuse what is not a learner, with the methods that it lacks."""
    expected = (
        "an instance of a class with the methods begin, plan and learn, such as "
        "orl.UCRLVTRLin(features=...)"
    )
    if isinstance(agent, type):
        raise ParameterError("agent", got=f"{agent.__name__}, a class", expected=expected)
    missing = []
    for name in ("begin", "plan", "learn"):
        method = getattr(type(agent), name, getattr(agent, name, None))
        # A class that derives from Learner has its methods, which do nothing.
        if not callable(method) or method is vars(Learner)[name]:
            missing.append(name)
    if missing:
        raise ParameterError(
            "agent", got=f"{type(agent).__name__} without {missing}", expected=expected
        )


def require_plan(plan: object, known: Known) -> None:
    """Refuse a plan that cannot be played: plans come from users' algorithms too."""
    if not isinstance(plan, Plan):
        raise ParameterError(
            "plan", got=type(plan).__name__, expected="orl.Plan(policy=..., episodes=...)"
        )
    require_policy("plan.policy", plan.policy, known)
    require_integer("plan.episodes", plan.episodes, 1)
    for start, part in plan.starts.items():
        require_integer("plan.starts", start, 0, maximum=known.states - 1)
        # A part is not asked for parts of its own.
        require_plan(replace(part, starts={}) if isinstance(part, Plan) else part, known)


def require_continuation(
    earlier: object, agent: Learner | Controller, problem: str, seed: int | None
) -> None:
    """Refuse to go on from what is not a run of the same agent on the same problem."""
    if not isinstance(earlier, Result):
        raise ParameterError(
            "continue_from",
            got=f"{earlier!r:.60}",
            expected="the Result of an earlier call; an agent begins with a log by "
            "orl.Agent(...).learn_from(log)",
        )
    if seed is not None and seed != earlier.seed:
        raise ParameterError("seed", got=seed, expected=f"{earlier.seed}, that of the earlier run")
    if earlier.problem != problem:
        raise ParameterError(
            "continue_from", got="a run on another problem", expected="one on the same problem"
        )
    if agent is not earlier.agent:
        changed = changes(identity(earlier.agent), identity(agent))
        if changed:
            raise ParameterError(
                "continue_from",
                got=f"a run of another agent: {changed}",
                expected="one of the same agent",
            )


def run(
    agent: Learner,
    problem: FiniteMDP | Problem,
    *,
    episodes: int,
    seed: int | None = None,
    progress: bool | None = None,
    continue_from: Result | None = None,
) -> Result:
    """Play an agent on a problem for a number of episodes.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> agent = orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2))
    >>> result = orl.run(agent, problem, episodes=50, seed=0)
    >>> longer = orl.run(agent, problem, episodes=50, continue_from=result)

    Parameters
    ----------
    agent : Learner
        A learner or selector of this package, or yours.
    problem : FiniteMDP, or a problem that has one
    episodes : int
        How many episodes to play, in addition to those of ``continue_from``; at most 10^15 in all.
    seed : int, optional
        0 by default.
    progress : bool, optional
        Show progress on standard error; by default only when the run takes longer than a second.
    continue_from : Result, optional
        Go on where an earlier run ended; the result covers both, and equals that of one
        uninterrupted run. The agent and the problem must be the same; the seed is that of the
        earlier run.

    Ctrl-C raises Interrupted, with everything so far in its ``result``.
    """
    under_way = Run(agent, Simulator(as_mdp(problem)), seed, continue_from)
    require_integer(
        "episodes", episodes, 1, maximum=MOST_EPISODES - under_way.result.total_episodes
    )
    under_way.play(episodes, progress=progress)
    return under_way.result
