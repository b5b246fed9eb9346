"""Contract checks for what you write: learners and selectors, rules, families, problems.

Each check uses the thing in many ways. It raises a :class:`~occamrl.errors.ContractError` that names the broken clause
and, of two runs that differ, the episode and field of the first difference; or prints and returns what it did.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from occamrl.errors import CheckpointError, ContractError, FamilyError, OccamRLError
from occamrl.evidence import value
from occamrl.models.families import Family, FiniteFamily
from occamrl.problems.mdp import FiniteMDP, as_mdp, stream
from occamrl.protocols import Floats, Flow, Known, Learner, Plan, Played, Problem, Replay, Rule
from occamrl.running.flow import simulate
from occamrl.running.result import Result
from occamrl.running.run import Run, Simulator, generator, require_plan
from occamrl.running.storage import Reader, Writer, types_in

_MOST = 10**6  # episodes of a plan that are tried at once


@dataclass(frozen=True, repr=False)
class Report:
    """What a check did."""

    subject: str
    clauses: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.subject}: contract kept", *(f"  {clause}" for clause in self.clauses)])

    def __repr__(self) -> str:
        return str(self)


def _report(subject: str, clauses: Sequence[str]) -> Report:
    found = Report(subject, tuple(clauses))
    print(found)
    return found


def _require(holds: Any, clause: str) -> None:
    if not holds:
        raise ContractError(f"broken contract: {clause}")


def difference(one: Any, other: Any, name: str = "state") -> str | None:
    """Return the name of the first field in which two trees of arrays and plain data differ, to the bit.

    Raises
    ------
    ContractError
        Something in them is neither.
    """
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        _require(not one.dtype.hasobject, f"{name} holds numbers, not objects")
        same = one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        return None if same else name
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"the names in {name}"
        pairs = [(part, other[key], f"{name}.{key}") for key, part in one.items()]
    elif isinstance(one, (list, tuple)) and type(one) is type(other):
        if len(one) != len(other):
            return f"the length of {name}"
        names = getattr(one, "_fields", range(len(one)))
        pairs = [(a, b, f"{name}.{key}") for key, a, b in zip(names, one, other, strict=True)]
    else:
        for part in (one, other):
            plain = part is None or isinstance(part, (bool, int, float, str, np.generic, np.ndarray, dict, list, tuple))
            _require(plain, f"a state is made of arrays and plain data, but {name} is {type(part).__name__}")
        if not isinstance(one, (int, float, str, bool, np.generic)) or np.ndim(other):
            return None if one is None and other is None else name
        both_nan = one != one and other != other
        return None if both_nan or one == other else name
    return next((found for a, b, part in pairs if (found := difference(a, b, part))), None)


def _same(one: Any, other: Any, clause: str, episode: int, name: str = "state") -> None:
    where = difference(one, other, name)
    _require(where is None, f"{clause} (episode {episode + 1}: {where} differs)")


def _same_runs(one: Result, other: Result, clause: str) -> None:
    """Refuse runs that differ, at the first block that does."""
    first = 0
    columns = ("episodes", "regret", "returns", "pessimistic", "plans")
    for i in range(max(len(one.blocks.episodes), len(other.blocks.episodes))):
        for name in columns:
            mine, theirs = getattr(one.blocks, name)[i : i + 1], getattr(other.blocks, name)[i : i + 1]
            _same(mine, theirs, clause, first, name)
        first += one.blocks.episodes[i]
    _same(one.blocks.phases, other.blocks.phases, clause, first - 1, "phases")
    _same(one.state, other.state, clause, first - 1)


def _parts(plan: Plan) -> dict[str, Any]:
    names = ("policy", "episodes", "values", "facts", "grounds")
    return {name: getattr(plan, name) for name in names}


def _plan(agent: Learner, known: Known, state: Any, seed: int, episode: int, clause: str) -> Plan:
    """Ask for a plan that can be played."""
    plan = agent.plan(known, state, generator(seed, "agent", episode))
    try:
        require_plan(plan, known)
    except OccamRLError as error:
        raise ContractError(f"broken contract: {clause} (episode {episode + 1}: {error})") from error
    if plan.values is not None:
        shape = (known.horizon + 1, known.states)
        fine = np.shape(plan.values) == shape and np.isfinite(plan.values).all()
        _require(fine, f"{clause} (episode {episode + 1}: plan.values are finite numbers {shape})")
    return plan


def check_learner(agent: Learner, mdp: FiniteMDP | Problem, *, episodes: int = 40, seed: int = 0) -> Report:
    """Check a learner, selector or arena on a problem.

    >>> import occamrl as orl
    >>> report = orl.checks.check_learner(orl.PSRL(), orl.make_problem("river-swim", states=3), episodes=20)
    PSRL, 20 episodes of FiniteMDP(S=3, A=2, H=12), seed 0: contract kept
      begin returns the same state every time
      plan can be played, writes nothing to the state, and depends on nothing but state and draw
      learn leaves plan and flow as they are, and does the same to a copy of the state
      learn takes flows that are shorter or twice as long, and actions of others
      the same seed gives the same bits; regret is never negative
      pieces, saved and loaded between, equal one run
    """
    _require(not isinstance(agent, type) and isinstance(agent, Learner), "a learner has begin, plan and learn")
    problem, done, plans = as_mdp(mdp), 0, 0
    known, source = problem.known, Simulator(problem)
    state = agent.begin(known)
    fresh = copy.deepcopy(state)
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    while done < episodes:  # as the driver does, looking closely
        before = copy.deepcopy(state)
        plan = _plan(agent, known, state, seed, done, "plan can be played")
        _same(before, state, "plan writes nothing to the state", done)
        again = _plan(agent, known, copy.deepcopy(before), seed, done, "plan can be played")
        _same(_parts(plan), _parts(again), "the same state and draw give the same plan", done, "plan")
        block = source.play(plan, done, min(plan.episodes, episodes - done), seed, lambda: False)
        kept = copy.deepcopy((_parts(plan), vars(block.flow)))
        agent.learn(known, state, plan, block.flow)
        _same(kept, (_parts(plan), vars(block.flow)), "learn leaves plan and flow as they are", done, "plan, flow")
        agent.learn(known, before, again, block.flow)
        _same(state, before, "learn does the same to a copy of the state", done)
        done, plans = done + block.flow.episodes, plans + 1
    _learns_from_anything(agent, problem, state, seed, done)
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    whole = _run(agent, problem, [episodes], seed)
    _require(whole.total_episodes == episodes, "a run has as many episodes as were asked for")
    _require(min(whole.blocks.regret) >= -1e-9, "regret is never negative")
    _same_runs(whole, _run(agent, problem, [episodes], seed), "the same seed gives the same bits")
    _same(whole.state, state, "the same seed gives the same bits", done - 1)
    for cuts in ([episodes // 2], [1, episodes // 3]):
        pieces = [cuts[0], *np.diff([*cuts, episodes]).tolist()]
        if min(pieces) >= 1:
            clause = f"pieces of {pieces} episodes, saved and loaded between, equal one run"
            _same_runs(whole, _run(agent, problem, pieces, seed), clause)
    sizes = f"FiniteMDP(S={known.states}, A={known.actions}, H={known.horizon})"
    clauses = (
        "begin returns the same state every time",
        "plan can be played, writes nothing to the state, and depends on nothing but state and draw",
        "learn leaves plan and flow as they are, and does the same to a copy of the state",
        "learn takes flows that are shorter or twice as long, and actions of others",
        "the same seed gives the same bits; regret is never negative",
        "pieces, saved and loaded between, equal one run",
    )
    return _report(f"{type(agent).__name__}, {episodes} episodes of {sizes}, seed {seed}", clauses)


def _run(agent: Learner, mdp: FiniteMDP, pieces: Sequence[int], seed: int) -> Result:
    """Run in pieces, each from a file of what was before."""
    earlier: Result | None = None
    for episodes in pieces:
        kept = None if earlier is None else copy.deepcopy(earlier.state)
        under_way = Run(agent, Simulator(mdp), seed, earlier)
        under_way.play(episodes, progress=False)
        if earlier is not None:
            _same(earlier.state, kept, "going on leaves the earlier result as it was", earlier.total_episodes)
        if len(pieces) == 1:
            break
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint.npz"
            under_way.result.save(path)
            earlier = Result.load(path, agent, mdp)
    return under_way.result


def _learns_from_anything(agent: Learner, mdp: FiniteMDP, state: Any, seed: int, done: int) -> None:
    """Let copies of a state learn from flows that are shorter or longer than planned, and from actions of others."""
    known = mdp.known
    plan = agent.plan(known, copy.deepcopy(state), generator(seed, "agent", done))
    uniform = np.full((known.horizon, known.states, known.actions), 1.0 / known.actions)
    most = min(plan.episodes, _MOST)
    for what, policy, count in (
        ("a flow of one episode", plan.policy, 1),
        ("a flow twice as long as the plan", plan.policy, 2 * most),
        ("actions of others", uniform, most),
    ):
        other = copy.deepcopy(state)
        flow = simulate(mdp, policy, count, generator(seed, "check", done))
        clause = f"learn takes {what}"
        try:
            agent.learn(known, other, plan, flow)
        except Exception as error:
            raise ContractError(f"broken contract: {clause} (episode {done + 1}: {error!r})") from error
        _plan(agent, known, other, seed, done + count, clause)


# Rules ----------------------------------------------------------------------------------------------------------------


def check_rule(rule: Rule, *, bases: int = 3, episodes: int = 40, seed: int = 0) -> Report:
    """Check a rule over some bases, whose returns are drawn at random."""
    _require(isinstance(rule, Rule), "a rule has start(bases), choose(memory, draw) and update(memory, base, played)")
    memory = rule.start(bases)
    _require(isinstance(memory, dict), "the memory is a dict")
    _same(memory, rule.start(bases), "start returns the same memory every time", 0, "memory")
    other, played = _restored(memory), [0] * bases
    for episode in range(episodes):
        before = copy.deepcopy(memory)
        choice, again, resumed = (
            rule.choose(each, stream(seed, "check_rule", episode)) for each in (memory, memory, other)
        )
        _same(before, memory, "choose writes nothing to the memory", episode, "memory")
        _require(again == choice and type(again) is type(choice), "the same draw gives the same choice")
        _require(resumed == choice, "a memory from a file makes the same choices")
        replay, base = isinstance(choice, Replay), choice.base if isinstance(choice, Replay) else choice
        inside = isinstance(base, (int, np.integer)) and not isinstance(base, bool) and 0 <= base < bases
        _require(inside, f"the choice is one of {bases} bases, not {choice!r}")
        if replay:
            _require(getattr(rule, "replays", False), "a rule that replays says so: replays = True")
            _require(played[base] > 0, "a replay is of a base that has played")
        told = _made_up(base, replay, stream(seed, "check_rule", "played", episode))
        rule.update(memory, base, told)
        rule.update(other, base, told)
        played[base] += not replay
        _same(memory, other, "a memory from a file learns the same", episode, "memory")
        other = _restored(memory)
    clauses = (
        "start returns the same memory every time",
        "choose returns one of the bases, writes nothing, and depends on nothing but memory and draw",
        "a memory from a file goes on to the bit, after every episode",
    )
    return _report(f"{type(rule).__name__}, {episodes} episodes of {bases} bases, seed {seed}", clauses)


def _made_up(base: int, replay: bool, draw: np.random.Generator) -> Played:
    """Return an episode of one step that earns 0 or 1, more often 1 for later bases; some have a planned value."""
    earned = float(draw.random() < (base + 1) / (base + 2))
    planned = math.nan if replay or draw.random() < 0.3 else float(draw.uniform(earned, 1.0))
    start = int(draw.integers(2))
    return Played(earned, planned, start, Flow.of_episode([start, 0], [0], [earned]), replay)


def _restored(memory: Any) -> Any:
    """Return a memory as it comes back from a file."""
    writer = Writer()
    try:
        tree = json.loads(json.dumps(writer.put(memory)))
    except CheckpointError as error:
        raise ContractError(f"broken contract: the memory is made of plain data and arrays ({error})") from error
    arrays = {name: array.copy() for name, array in writer.arrays.items()}
    return Reader(arrays, writer.objects, types_in(memory)).get(tree)


# Problems and families ------------------------------------------------------------------------------------------------


def check_problem(problem: Problem) -> Report:
    """Check a problem: its optimum solves the Bellman equations, and no policy at hand beats it."""
    mdp: Any = getattr(problem, "mdp", None)
    _require(isinstance(mdp, FiniteMDP), "a problem has an mdp")
    best, horizon = mdp.optimal_values, mdp.horizon
    _require(best.shape == (horizon + 1, mdp.states), "optimal values are [H + 1, S]")
    inside = (best >= -1e-12).all() and (best <= horizon - np.arange(horizon + 1)[:, None] + 1e-9).all()
    _require(inside, "V*_h lies in [0, H - h + 1]")
    _require(np.allclose(mdp.evaluate(mdp.optimal_policy), best, atol=1e-9), "the optimal policy attains V*")
    draw = stream(0, "check_problem")
    for _ in range(5):
        policy = draw.integers(mdp.actions, size=(horizon, mdp.states))
        _require((mdp.evaluate(policy) <= best + 1e-9).all(), "no policy beats V*")
    return _report(repr(problem), ("V* is in range, attained by the optimal policy, and beaten by none of 5 others",))


def check_family(family: Family, mdp: FiniteMDP | None = None, *, rows: int = 60, seed: int = 0) -> Report:
    """Check a family of kernels, on rows drawn from one of its members."""
    draw, features = stream(seed, "check_family"), family.features
    try:
        family.check(draw)
    except FamilyError as error:
        raise ContractError(f"broken contract: each member is a kernel ({error})") from error
    members = list(family.members(draw, 6))
    for i, member in enumerate(members):
        _require(family.contains(family.kernel(member)), f"member {i} is contained")
    reward = draw.uniform(size=(features.states, features.actions))
    known = Known(features.states, features.actions, 4, reward) if mdp is None else mdp.known
    values = draw.uniform(size=(known.horizon + 1, known.states)) * known.horizon
    flow = _sampled(family, known, members[0], draw, rows)
    sums = value.begin(family.own_features)
    value.add(sums, family.own_features, known, values, flow)
    least = family.smallest_loss(sums["gram"][0], sums["xy"][0]) + float(sums["yy"][0])
    every = range(family.size) if isinstance(family, FiniteFamily) else members
    losses = [_loss(family, known, values, member, flow) for member in every]
    _require(least <= min(losses) + 1e-7, "no member has a smaller loss than the smallest")
    center = np.linalg.pinv(sums["gram"][0]) @ sums["xy"][0][..., None]
    free = float(sums["yy"][0] - (sums["xy"][0] * center[..., 0]).sum())
    _require(least >= free - 1e-7, "the smallest loss is not below that of least squares")
    scales = [family.log_covering_number(alpha) for alpha in (0.01, 0.1, 0.5, 2.0)]
    falling = all(one >= other for one, other in itertools.pairwise(scales)) and scales[-1] >= 0.0
    _require(falling, "the log covering number is >= 0 and falls as the scale grows")
    if isinstance(family, FiniteFamily):
        _require(np.isclose(least, min(losses)), "the smallest loss is that of a member")
        plain = replace(known, transition_rewards=None)
        for member in range(min(family.size, 20)):
            solved, kernel = np.zeros(known.states), family.kernel(member)
            for _ in range(known.horizon):
                solved = (known.base_reward + kernel @ solved).max(axis=1)
            _require(np.allclose(family.first_values(plain)[member], solved, atol=1e-7), f"member {member} has its V*")
    clauses = ("members are kernels, and contained", "smallest losses, by brute force", "covering numbers fall")
    return _report(repr(family), clauses)


def _sampled(family: Family, known: Known, member: Any, draw: np.random.Generator, count: int) -> Flow:
    """Return steps at random (s, a), their outcomes drawn from a member."""
    outcomes = family.features.attach(known)
    probability = np.clip(family.features.probabilities(family.parameters_of(member)), 0.0, None)
    pair, step = draw.integers(outcomes.start.size - 1, size=count), draw.integers(known.horizon, size=count)
    chosen = np.zeros(count, np.int64)
    for t, sa in enumerate(pair):
        law = probability[outcomes.start[sa] : outcomes.start[sa + 1]]
        chosen[t] = outcomes.start[sa] + draw.choice(law.size, p=law / law.sum())
    reward = known.base_reward.ravel()[pair] + outcomes.bonus[chosen]
    state, action = np.divmod(pair, known.actions)
    return Flow(step, state, action, outcomes.next_state[chosen], reward, np.ones(count, np.int64), count)


def _loss(family: Family, known: Known, values: Floats, member: Any, flow: Flow) -> float:
    """Return the loss of a member, row by row: the sum of ((W(o) - (P W)(s, a))/R)^2."""
    probability, loss = family.features.probabilities(family.parameters_of(member)), 0.0
    outcomes = family.features.attach(known)
    for h, s, a, after, reward in zip(flow.step, flow.state, flow.action, flow.next_state, flow.reward, strict=True):
        pair = s * known.actions + a
        own = slice(outcomes.start[pair], outcomes.start[pair + 1])
        w = outcomes.bonus[own] + values[h + 1, outcomes.next_state[own]]
        middle, spread = 0.5 * (w.max() + w.min()), w.max() - w.min()
        target = values[h + 1, after] + (reward - known.base_reward[s, a])
        if spread > 0.0:  # probabilities may sum to one up to rounding only
            loss += float((target - middle - probability[own] @ (w - middle)) / spread) ** 2
    return loss
