"""Contract checks for what you write: learners and selectors, rules, problems.

Each check uses the thing in many ways. It raises a :class:`~occamrl.errors.ContractError` that
names the broken clause, with the episode and field of the first difference; or prints and returns
what it did.
"""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np

from occamrl.addresses import generator
from occamrl.errors import ContractError, OccamRLError, require_integer
from occamrl.evidence.simulator_contract import check_simulator as check_simulator
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Flow, Known, Learner, Plan, Played, Problem, Replay, Rule, State
from occamrl.running.flow import simulate
from occamrl.running.result import Result
from occamrl.running.run import (
    Run,
    Simulator,
    learn_block,
    require_learner,
    require_plan,
)
from occamrl.running.storage import Reader, Writer

_MOST = 10**6  # episodes of a plan that are tried at once
_SAME_BITS = "the same seed gives the same bits, in one run or in two"


def _report(subject: str, *clauses: str) -> str:
    text = "\n  ".join([f"{subject}: contract kept", *clauses])
    print(text)
    return text


def _require(holds: bool, clause: str) -> None:
    if not holds:
        raise ContractError(f"broken contract: {clause}")


def leaves(tree: Any, name: str) -> dict[str, object]:
    """Return all that a tree of arrays and plain data holds, by name.

    Equal to the bit where the trees are.
    """
    if isinstance(tree, np.generic):
        tree = tree.item()
    if isinstance(tree, np.ndarray) and not tree.dtype.hasobject:
        return {name: (tree.dtype, tree.shape, tree.tobytes())}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {name: repr(tree)}
    clause = f"a state is made of arrays and plain data, but {name} is {type(tree).__name__}"
    _require(isinstance(tree, (dict, list, tuple)), clause)
    values: dict[str, object] = {name: (type(tree), len(tree))}
    branches = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, branch in branches:
        values |= leaves(branch, f"{name}.{key}")
    return values


def _same(one: object, other: object, clause: str, episode: int, name: str = "state") -> None:
    first = leaves(one, name)
    second = leaves(other, name)
    for key in {**first, **second}:
        different = first.get(key) != second.get(key)
        _require(not different, f"{clause} (episode {episode + 1}: {key} differs)")


def _restored(tree: State) -> State:
    """Return a state or memory as it comes back from a file."""
    writer = Writer()
    text = json.dumps(writer.put(tree))
    arrays = {name: array.copy() for name, array in writer.arrays.items()}
    return Reader(arrays, writer.objects).get(json.loads(text))


def _parts(plan: Plan) -> dict[str, object]:
    """Return what a plan says, as a tree; what it carries may be anything."""
    return {
        "policy": plan.policy,
        "episodes": plan.episodes,
        "values": plan.values,
        "facts": plan.facts,
        "diagnostics": plan.diagnostics,
        "starts": {start: _parts(part) for start, part in plan.starts.items()},
    }


def _plan(
    agent: Learner,
    known: Known,
    state: State,
    seed: int,
    episode: int,
    clause: str = "plan can be played",
) -> Plan:
    """Ask for a plan that can be played."""
    plan = agent.plan(known, state, generator(seed, "agent", episode))
    where = f"{clause} (episode {episode + 1}"
    try:
        require_plan(plan, known)
    except OccamRLError as error:
        raise ContractError(f"broken contract: {where}: {error})") from error
    if plan.values is not None:
        shape = (known.horizon + 1, known.states)
        finite = np.shape(plan.values) == shape and bool(np.isfinite(plan.values).all())
        _require(finite, f"{where}: plan.values are finite numbers {shape})")
    return plan


# Learners -----------------------------------------------------------------------------------------


def check_learner(
    agent: Learner, problem: FiniteMDP | Problem, *, episodes: int = 40, seed: int = 0
) -> str:
    """Check a learner, selector or arena on a problem.

    >>> import occamrl as orl
    >>> river = orl.make_problem("river-swim", states=3)
    >>> report = orl.checks.check_learner(orl.PSRL(), river, episodes=20)
    PSRL, 20 episodes of FiniteMDP(S=3, A=2, H=12), seed 0: contract kept
      begin returns the same state every time
      plan can be played, writes nothing to the state, and depends on nothing but state and draw
      learn leaves plan and flow as they are
      learn takes flows that are shorter or twice as long, and actions of others
      a state from a file plans and learns the same, after every block
      the same seed gives the same bits, in one run or in two
    """
    try:
        require_learner(agent)
    except OccamRLError as error:
        clause = f"a learner has begin, plan and learn ({error})"
        raise ContractError(f"broken contract: {clause}") from None
    require_integer("episodes", episodes, 1)
    require_integer("seed", seed, 0)
    mdp = as_mdp(problem)
    known = mdp.known
    fresh = copy.deepcopy(agent.begin(known))
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    state, rows = _play_from_files(agent, mdp, episodes, seed)
    _learns_from_anything(agent, mdp, state, seed, episodes)
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    result = _driven(agent, mdp, episodes, seed)
    blocks = result.blocks
    columns = (blocks.episodes, blocks.regret, blocks.returns, blocks.pessimistic)
    begin = 0
    for row, *driven in zip(rows, *columns, strict=True):
        _same(row, dict(zip(row, driven, strict=True)), _SAME_BITS, begin, "block")
        begin += row["episodes"]
    _same(state, result.state, _SAME_BITS, episodes - 1)
    sizes = f"FiniteMDP(S={known.states}, A={known.actions}, H={known.horizon})"
    return _report(
        f"{type(agent).__name__}, {episodes} episodes of {sizes}, seed {seed}",
        "begin returns the same state every time",
        "plan can be played, writes nothing to the state, "
        "and depends on nothing but state and draw",
        "learn leaves plan and flow as they are",
        "learn takes flows that are shorter or twice as long, and actions of others",
        "a state from a file plans and learns the same, after every block",
        _SAME_BITS,
    )


def _play_from_files(
    agent: Learner, mdp: FiniteMDP, episodes: int, seed: int
) -> tuple[State, list[dict[str, Any]]]:
    """Play as the driver does, but each block is learned from twice: by the state, and by a file.

    Return the state in the end, and what the driver would record of each block.
    """
    known = mdp.known
    source = Simulator(mdp)
    state = agent.begin(known)
    rows: list[dict[str, Any]] = []
    done = 0
    end = None
    while done < episodes:
        before = copy.deepcopy(state)
        restored = _restored(state)
        plan = _plan(agent, known, state, seed, done)
        again = _plan(agent, known, restored, seed, done)
        _same(before, state, "plan writes nothing to the state", done)
        clause = "the same state and draw give the same plan"
        _same(_parts(plan), _parts(again), clause, done, "plan")

        count = min(plan.episodes, episodes - done)
        block = source.play(plan, done, count, seed, lambda: False, end)
        handed = [_parts(plan), *map(vars, block.flows.values())]
        kept = copy.deepcopy(handed)
        learn_block(agent, known, state, plan, block.flows)
        _same(kept, handed, "learn leaves plan and flow as they are", done, "plan, flow")
        learn_block(agent, known, restored, again, block.flows)
        _same(state, restored, "a state from a file learns the same", done)

        rows.append(
            {
                "episodes": int(block.episodes.sum()),
                "regret": float(block.regret[0]),
                "returns": float(block.returns[0]),
                "pessimistic": block.pessimistic,
            }
        )
        state = restored
        end = block.end
        done += rows[-1]["episodes"]
    return state, rows


def _driven(agent: Learner, mdp: FiniteMDP, episodes: int, seed: int) -> Result:
    """Return what the driver makes of it, in two pieces."""
    source = Simulator(mdp)
    first = max(1, episodes // 2)
    run = Run(agent, source, seed)
    run.play(first, progress=False)
    if first < episodes:
        run = Run(agent, source, seed, run.result)
        run.play(episodes - first, progress=False)
    return run.result


def _learns_from_anything(
    agent: Learner, mdp: FiniteMDP, state: State, seed: int, done: int
) -> None:
    """Let copies of a state learn from other flows than those that were planned."""
    known = mdp.known
    plan = agent.plan(known, copy.deepcopy(state), generator(seed, "agent", done))
    allowed = known.allowed / known.allowed.sum(axis=1, keepdims=True)
    uniform = np.tile(allowed, (known.horizon, 1, 1))
    # Episodes that begin where the last one ended are walked one by one.
    episodes = min(plan.episodes, 100 if known.continuing else _MOST)
    for what, policy, count in (
        ("a flow of one episode", plan.policy, 1),
        ("a flow twice as long as the plan", plan.policy, 2 * episodes),
        ("actions of others", uniform, episodes),
    ):
        learned = copy.deepcopy(state)
        clause = f"learn takes {what}"
        flow = simulate(mdp, policy, count, generator(seed, "check", done))
        try:
            agent.learn(known, learned, plan, flow)
        except Exception as error:  # of the user's learner, which may raise anything
            where = f"{clause} (episode {done + 1}: {error!r})"
            raise ContractError(f"broken contract: {where}") from error
        _plan(agent, known, learned, seed, done + count, clause)


# Rules --------------------------------------------------------------------------------------------


def check_rule(rule: Rule, *, bases: int = 3, episodes: int = 40, seed: int = 0) -> str:
    """Check a rule over some bases, whose returns are 0 or 1 at random, later ones more often 1."""
    members = "start(bases), choose(memory, draw) and update(memory, base, played)"
    _require(isinstance(rule, Rule), f"a rule has {members}")
    memory = rule.start(bases)
    _require(isinstance(memory, dict), "the memory is a dict")
    _same(memory, rule.start(bases), "start returns the same memory every time", 0, "memory")
    plays = [0] * bases
    for episode in range(episodes):
        before = copy.deepcopy(memory)
        restored = _restored(memory)
        choice = rule.choose(memory, generator(seed, "check_rule", episode))
        again = rule.choose(memory, generator(seed, "check_rule", episode))
        resumed = rule.choose(restored, generator(seed, "check_rule", episode))
        _same(before, memory, "choose writes nothing to the memory", episode, "memory")
        same = again == choice and type(again) is type(choice)
        _require(same, "the same draw gives the same choice")
        _require(resumed == choice, "a memory from a file makes the same choices")
        replay = isinstance(choice, Replay)
        base = choice.base if isinstance(choice, Replay) else choice
        whole = isinstance(base, (int, np.integer)) and not isinstance(base, bool)
        clause = f"the choice is one of {bases} bases, not {choice!r}"
        _require(whole and 0 <= base < bases, clause)
        if replay:
            # A rule that never replays need not have the attribute.
            says_so = bool(getattr(rule, "replays", False))
            _require(says_so, "a rule that replays says so: replays = True")
            _require(plays[base] > 0, "a replay is of a base that has played")
        else:
            plays[base] += 1
        played = _played(base, replay, generator(seed, "check_rule, played", episode))
        rule.update(memory, base, played)
        rule.update(restored, base, played)
        _same(memory, restored, "a memory from a file learns the same", episode, "memory")
        memory = restored
    return _report(
        f"{type(rule).__name__}, {episodes} episodes of {bases} bases, seed {seed}",
        "start returns the same memory every time",
        "choose returns one of the bases, writes nothing, "
        "and depends on nothing but memory and draw",
        "a memory from a file goes on to the bit, after every episode",
    )


def _played(base: int, replay: bool, draw: np.random.Generator) -> Played:
    """Draw an episode of one step."""
    earned = float(draw.random() < (base + 1) / (base + 2))
    start = int(draw.integers(2))
    planned = math.nan
    if not replay and draw.random() >= 0.3:
        planned = float(draw.uniform(earned, 1.0))
    return Played(earned, planned, start, Flow.of_episode([start, 0], [0], [earned]), replay)


# Problems -----------------------------------------------------------------------------------------


def check_problem(problem: Problem) -> str:
    """Check a problem: its optimum solves the Bellman equations, and no policy at hand beats it."""
    mdp = getattr(problem, "mdp", None)  # of the user's class, which may lack it
    if not isinstance(mdp, FiniteMDP):
        raise ContractError("broken contract: a problem has an mdp")
    best = mdp.optimal_values
    horizon = mdp.horizon
    _require(best.shape == (horizon + 1, mdp.states), "optimal values are [H + 1, S]")
    most = horizon - np.arange(horizon + 1)[:, None]
    inside = (best >= -1e-12).all() and (best <= most + 1e-9).all()
    _require(bool(inside), "V*_h lies in [0, H - h + 1]")
    attained = np.allclose(mdp.evaluate(mdp.optimal_policy), best, atol=1e-9)
    _require(attained, "the optimal policy attains V*")
    draw = generator(0, "check_problem")
    for _ in range(5):
        policy = draw.integers(mdp.actions, size=(horizon, mdp.states))
        beaten = (mdp.evaluate(policy) > best + 1e-9).any()
        _require(not beaten, "no policy beats V*")
    return _report(
        repr(problem),
        "V* is in range, attained by the optimal policy, and beaten by none of 5 others",
    )


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name.startswith("check_"))
