"""One driver for every run: it asks for a plan, plays the block, and hands back what was counted.

**Random numbers have an address**, (seed, purpose, first episode of the block): nothing depends on
what was drawn before, so a run that goes on from an earlier one equals an uninterrupted one, to the
bit. A block that the end of a run interrupted is played anew when the run goes on (in the
simulator), or finished first (in an environment, whose episodes cannot be taken back); the learner
is then told of the whole block, as if there had been no end.
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
)
from occamrl.running.flow import play
from occamrl.running.identity import changes, identity
from occamrl.running.progress import Progress, ctrl_c
from occamrl.running.result import Blocks, Cut, Result

MOST_PHASES = 4_096
GROWTH = 1.1  # of the episodes between two points of the history of a phase
MOST_POLICIES = 8  # whose values are remembered


class Block(NamedTuple):
    """A block of episodes as a source played it: in one piece by the simulator, episode by episode elsewhere."""

    flows: dict[int, Flow]  # by the parts of the plan that were played
    episodes: Ints  # [pieces]
    regret: Floats  # [pieces] exact, summed over the episodes of a piece; NaN where the truth is not known
    returns: Floats  # [pieces] realised, summed likewise; both in the unit of the problem's rewards
    pessimistic: int = 0  # episodes whose planned value was below the optimum
    fault: BaseException | None = None  # what ended the block early
    end: int | None = (
        None  # the state that the last episode led to, where the next one begins there
    )


class Source:
    """Where episodes come from: the simulator, or an environment."""

    known: Known
    problem: str  # a run goes on where this is the same
    mdp: FiniteMDP | None  # the truth, where it is known
    environment: Any = None  # what is kept of an environment; None in the simulator
    _last: tuple[
        tuple[Any, Floats], ...
    ] = ()  # policies and their values: they often stay the same

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
        """Return the exact regret of an episode by its start [S], and where the plan counts on less than the best."""
        if self.mdp is None:
            return np.full(self.known.states, np.nan), np.zeros(self.known.states, bool)
        found = next(
            (values for policy, values in self._last if np.array_equal(policy, plan.policy)), None
        )
        if found is None:
            found = self.mdp.evaluate(plan.policy)[0]
            self._last = ((plan.policy, found), *self._last[: MOST_POLICIES - 1])
        best, promised = (
            self.mdp.optimal_values[0],
            np.inf if plan.values is None else plan.values[0],
        )
        gap = best - found
        lost = self.known.unit.scale * np.where(
            gap > 1e-12 * self.known.horizon, gap, 0.0
        )  # less is rounding
        return lost, promised < best - 1e-9 * self.known.horizon  # up to rounding


class Simulator(Source):
    """A FiniteMDP as a source of episodes."""

    def __init__(self, mdp: FiniteMDP) -> None:
        self.mdp: FiniteMDP = mdp
        self.known, self.problem = mdp.known, mdp.fingerprint

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
        draw = generator(seed, "environment", first)
        flows, end = play(self.mdp, [part.policy for part in parts], which, episodes, draw, at)
        regret, earned, pessimistic = 0.0, 0.0, 0
        for i, flow in flows.items():
            begins, (lost, below) = flow.step == 0, self.judge(parts[i])
            starts = np.bincount(flow.state[begins], flow.count[begins], self.mdp.states)
            weight = flow.count * self.known.discount**flow.step
            regret += float(starts @ lost)
            earned += self.known.unit.total(flow.reward @ weight, weight.sum())
            pessimistic += int(starts[below].sum())
        end = end if self.known.continuing else None
        return Block(
            flows,
            np.array([episodes]),
            np.array([regret]),
            np.array([earned]),
            pessimistic,
            end=end,
        )


class RunLoop:
    """A run in progress, block by block: of a learner, or of a controller."""

    result: Result  # so far
    bar: Progress  # while it is played
    whole = True  # whether the result is that of finished blocks; not if an agent failed in one

    def _block(self, end: int, stop: Callable[[], bool]) -> BaseException | None:
        """Play one block, until episode ``end`` at most; return what ended it early, if anything did."""
        raise NotImplementedError

    def play(
        self,
        episodes: int,
        *,
        progress: bool | None = None,
        after: Callable[[Result], bool] | None = None,
    ) -> None:
        """Play that many more episodes; after every block ``after`` is told of the result and says whether to go on.

        Ctrl-C raises Interrupted, with everything so far in its ``result``.
        """
        began = time.perf_counter()
        first = self.result.total_episodes
        end = first + episodes
        before = self.result.wall_time
        self.bar = bar = Progress(self.result.label, episodes, progress)
        try:
            with ctrl_c() as pressed:
                while self.result.total_episodes < end:
                    self.whole = False
                    fault = self._block(end, pressed.is_set)
                    self.whole = True
                    self.result = replace(
                        self.result, wall_time=before + time.perf_counter() - began
                    )
                    if isinstance(fault, Exception):
                        raise fault
                    done = self.result.total_episodes
                    if pressed.is_set() or fault is not None:
                        raise Interrupted(f"stopped after episode {done:,} of {end:,}", self.result)
                    bar.update(done - first)
                    if after is not None and not after(self.result):
                        break
        finally:
            bar.close()


class Run(RunLoop):
    """A learner's run: the learner, a source of episodes, and what came of them so far.

    By default the seed is 0, or that of ``earlier``: where to go on, which is copied and stays as
    it is.
    """

    def __init__(
        self, agent: Learner, source: Source, seed: int | None = None, earlier: Result | None = None
    ) -> None:
        require_learner(agent)
        self.agent = agent
        self.source = source
        if earlier is None:
            self.result = Result(
                label=type(agent).__name__,
                seed=require_integer("seed", 0 if seed is None else seed, 0),
                agent=agent,
                known=source.known,
                problem=source.problem,
                environment=source.environment,
                state=agent.begin(source.known),
                blocks=Blocks(),
            )
            return
        require_earlier(earlier, agent, source.problem, seed)
        blocks, state, cut = copy.deepcopy((earlier.blocks, earlier.state, earlier.cut))
        self.result = replace(
            earlier,
            agent=agent,
            known=source.known,
            problem=source.problem,
            environment=source.environment,
            blocks=blocks,
            state=state,
            cut=cut,
        )

    def _block(self, end: int, stop: Callable[[], bool]) -> BaseException | None:
        """Plan and play one block, until episode ``end`` at most; return what ended it early, if anything did."""
        agent = self.agent
        known = self.source.known
        blocks = self.result.blocks
        seed = self.result.seed
        state, at, seen = self.result.state, self.result.at, dict[int, Flow]()
        if self.result.cut is not None:  # go back to where the interrupted block began
            state, at, seen = self.result.cut
            if not seen:  # the last piece
                blocks.total_episodes -= blocks.episodes[-1]
                for name in ("episodes", "regret", "returns", "pessimistic", "plans", "phase"):
                    getattr(blocks, name).pop()
                del blocks.phases[blocks.phase[-1] + 1 if blocks.phase else 0 :]
        first = blocks.total_episodes
        before = sum(
            flow.episodes for flow in seen.values()
        )  # episodes that an environment has shown already
        plan = agent.plan(known, state, generator(seed, "agent", first - before))
        require_plan(plan, known)
        block = self.source.play(
            plan, first, min(plan.episodes - before, end - first), seed, stop, at
        )
        if block.flows:
            flows, cut = joined(seen, block.flows), None
            if before + block.episodes.sum() < plan.episodes:
                cut = Cut(
                    copy.deepcopy(state), at, {} if self.source.environment is None else flows
                )
            learn_block(agent, known, state, plan, flows)
            record_block(blocks, plan.facts, plan.diagnostics, block, new=not seen)
            self.result = replace(self.result, state=state, cut=cut, at=block.end)
        return block.fault


def plan_parts(plan: Plan, known: Known) -> tuple[list[Plan], Ints]:
    """Return the different parts of a plan, itself first, and the number of that from each first state [S]."""
    found = {id(part): part for part in (plan, *plan.starts.values())}
    numbers, which = {each: i for i, each in enumerate(found)}, np.zeros(known.states, np.int64)
    for start, part in plan.starts.items():
        which[start] = numbers[id(part)]
    return list(found.values()), which


def joined(*several: dict[int, Flow]) -> dict[int, Flow]:
    """Return flows by the parts of a plan as one for each part."""
    found: dict[int, list[Flow]] = {}
    for number, flow in (item for flows in several for item in flows.items()):
        found.setdefault(number, []).append(flow)
    return {
        i: each[0] if len(each) == 1 else Flow.joined(each) for i, each in sorted(found.items())
    }


def learn_block(
    agent: Learner, known: Known, state: Any, plan: Plan, flows: dict[int, Flow]
) -> None:
    """Let an agent learn from a block: of each part of the plan by itself."""
    parts = plan_parts(plan, known)[0]
    for number, flow in flows.items():
        agent.learn(known, state, parts[number], flow)


def record_block(
    blocks: Blocks,
    facts: Mapping[str, Any],
    diagnostics: Mapping[str, Any],
    block: Block,
    *,
    new: bool,
) -> None:
    """Add a block, or the rest of one that is not new, to what happened, with what was decided."""
    facts, diagnostics, pieces = dict(facts), dict(diagnostics), len(block.episodes)
    if not blocks.phases or blocks.phases[-1]["facts"] != facts:
        blocks.phases.append({"facts": facts})
    blocks.phases[-1]["diagnostics"] = diagnostics
    if (
        new and "statistics" in diagnostics
    ):  # of the episodes before: the first, the last, and some between are kept
        history = blocks.phases[-1].setdefault("history", [])
        if len(history) > 1 and history[-1][0] < GROWTH * history[-2][0]:
            history.pop()
        point = [blocks.total_episodes, *diagnostics["statistics"]]
        history.extend([point] if point not in history[-1:] else [])
    blocks.episodes.extend(block.episodes.tolist())
    blocks.regret.extend(block.regret.tolist())
    blocks.returns.extend(block.returns.tolist())
    blocks.pessimistic.extend([block.pessimistic] + [0] * (pieces - 1))
    blocks.plans.extend([int(new)] + [0] * (pieces - 1))
    blocks.phase.extend([len(blocks.phases) - 1] * pieces)
    blocks.total_episodes += int(block.episodes.sum())
    if len(blocks.phases) > MOST_PHASES:  # of bases that take turns, say: join neighbours
        blocks.phases = [
            {**row, "diagnostics": {**row["diagnostics"], "joined": True}}
            for row in blocks.phases[1::2]
        ]
        blocks.phase = [min(i // 2, len(blocks.phases) - 1) for i in blocks.phase]


def require_earlier(
    earlier: Any, agent: Learner | Controller, problem: str, seed: int | None
) -> None:
    """Refuse to go on from what is no result, or one of another agent, problem or seed."""
    if not isinstance(earlier, Result):
        expected = "the Result of an earlier call; an agent begins with a log by orl.Agent(...).learn_from(log)"
        raise ParameterError("continue_from", got=f"{earlier!r:.60}", expected=expected)
    if seed is not None and seed != earlier.seed:
        raise ParameterError("seed", got=seed, expected=f"{earlier.seed}, that of the earlier run")
    if earlier.problem != problem:
        raise ParameterError(
            "continue_from", got="a run on another problem", expected="one on the same problem"
        )
    if agent is not earlier.agent and (
        changed := changes(identity(earlier.agent), identity(agent))
    ):
        got = f"a run of another agent: {changed}"
        raise ParameterError("continue_from", got=got, expected="one of the same agent")


def require_learner(agent: object) -> None:
    """Refuse what is not a learner, with the methods that it lacks."""
    own = {
        name: getattr(type(agent), name, getattr(agent, name, None))
        for name in ("begin", "plan", "learn")
    }
    missing = [
        name for name, each in own.items() if not callable(each) or each is vars(Learner)[name]
    ]
    if missing or isinstance(agent, type):
        got = (
            f"{agent.__name__}, a class"
            if isinstance(agent, type)
            else f"{type(agent).__name__} without {missing}"
        )
        expected = "an instance of a class with the methods begin, plan and learn, such as orl.UCRLVTRLin(features=...)"
        raise ParameterError("agent", got=got, expected=expected)


def require_plan(plan: Any, known: Known) -> None:
    """Refuse a plan that cannot be played: plans come from users' algorithms too."""
    if not isinstance(plan, Plan):
        raise ParameterError(
            "plan", got=type(plan).__name__, expected="orl.Plan(policy=..., episodes=...)"
        )
    require_policy("plan.policy", plan.policy, known)
    require_integer("plan.episodes", plan.episodes, 1)
    for start, part in plan.starts.items():
        require_integer("plan.starts", start, 0, maximum=known.states - 1)
        require_plan(replace(part, starts={}) if isinstance(part, Plan) else part, known)


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
