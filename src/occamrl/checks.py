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
from occamrl.errors import ContractError, OccamRLError
from occamrl.evidence.simulator_contract import check_simulator as check_simulator
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Flow, Known, Learner, Plan, Played, Problem, Replay, Rule
from occamrl.running.flow import simulate
from occamrl.running.run import Run, Simulator, learn_block, require_learner, require_plan
from occamrl.running.storage import Reader, Writer

_MOST = 10**6  # episodes of a plan that are tried at once


def _report(subject: str, *clauses: str) -> str:
    text = "\n".join([f"{subject}: contract kept", *(f"  {clause}" for clause in clauses)])
    print(text)
    return text


def _require(holds: Any, clause: str) -> None:
    if not holds:
        raise ContractError(f"broken contract: {clause}")


def leaves(tree: Any, name: str) -> dict[str, Any]:
    """Return all that a tree of arrays and plain data holds, by name; equal to the bit where the trees are."""
    tree = tree.item() if isinstance(tree, np.generic) else tree
    if isinstance(tree, np.ndarray) and not tree.dtype.hasobject:
        return {name: (tree.dtype, tree.shape, tree.tobytes())}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {name: repr(tree)}
    clause = f"a state is made of arrays and plain data, but {name} is {type(tree).__name__}"
    _require(isinstance(tree, (dict, list, tuple)), clause)
    found: dict[str, Any] = {name: (type(tree), len(tree))}
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        found |= leaves(tree[key], f"{name}.{key}")
    return found


def _same(one: Any, other: Any, clause: str, episode: int, name: str = "state") -> None:
    first, second = leaves(one, name), leaves(other, name)
    where = next((key for key in {**first, **second} if first.get(key) != second.get(key)), None)
    _require(where is None, f"{clause} (episode {episode + 1}: {where} differs)")


def _restored(tree: Any) -> Any:
    """Return a state or memory as it comes back from a file."""
    writer = Writer()
    text = json.dumps(writer.put(tree))
    return Reader(
        {name: array.copy() for name, array in writer.arrays.items()}, writer.objects
    ).get(json.loads(text))


def _parts(plan: Plan) -> dict[str, Any]:
    about = {
        name: getattr(plan, name)
        for name in ("policy", "episodes", "values", "facts", "diagnostics")
    }
    return {**about, "starts": {start: _parts(part) for start, part in plan.starts.items()}}


def _plan(
    agent: Learner,
    known: Known,
    state: Any,
    seed: int,
    episode: int,
    clause: str = "plan can be played",
) -> Plan:
    """Ask for a plan that can be played."""
    plan = agent.plan(known, state, generator(seed, "agent", episode))
    try:
        require_plan(plan, known)
    except OccamRLError as error:
        raise ContractError(
            f"broken contract: {clause} (episode {episode + 1}: {error})"
        ) from error
    shape = (known.horizon + 1, known.states)
    fine = plan.values is None or (
        np.shape(plan.values) == shape and np.isfinite(plan.values).all()
    )
    _require(fine, f"{clause} (episode {episode + 1}: plan.values are finite numbers {shape})")
    return plan


def check_learner(
    agent: Learner, problem: FiniteMDP | Problem, *, episodes: int = 40, seed: int = 0
) -> str:
    """Check a learner, selector or arena on a problem.

    >>> import occamrl as orl
    >>> report = orl.checks.check_learner(orl.PSRL(), orl.make_problem("river-swim", states=3), episodes=20)
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
        raise ContractError(
            f"broken contract: a learner has begin, plan and learn ({error})"
        ) from None
    mdp, done, played, at = as_mdp(problem), 0, list[Any](), None
    known, source, state = mdp.known, Simulator(mdp), agent.begin(mdp.known)
    fresh = copy.deepcopy(state)
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    while done < episodes:  # as the driver does, but every block resumes from a file
        before, other = copy.deepcopy(state), _restored(state)
        plan, again = (_plan(agent, known, each, seed, done) for each in (state, other))
        _same(before, state, "plan writes nothing to the state", done)
        _same(
            _parts(plan), _parts(again), "the same state and draw give the same plan", done, "plan"
        )
        block = source.play(
            plan, done, min(plan.episodes, episodes - done), seed, lambda: False, at
        )
        handed = [_parts(plan), *map(vars, block.flows.values())]
        kept = copy.deepcopy(handed)
        learn_block(agent, known, state, plan, block.flows)
        _same(kept, handed, "learn leaves plan and flow as they are", done, "plan, flow")
        learn_block(agent, known, other, again, block.flows)
        _same(state, other, "a state from a file learns the same", done)
        count = int(block.episodes.sum())
        played.append(
            [done, count, float(block.regret[0]), float(block.returns[0]), block.pessimistic]
        )
        state, done, at = other, done + count, block.end
    _learns_from_anything(agent, mdp, state, seed, done)
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    run = Run(agent, source, seed)  # by the driver, in two pieces
    run.play(max(1, episodes // 2), progress=False)
    if episodes > 1:
        run = Run(agent, source, seed, run.result)
        run.play(episodes - episodes // 2, progress=False)
    blocks, clause = run.result.blocks, "the same seed gives the same bits, in one run or in two"
    for i, (first, *block) in enumerate(played):
        names = ("episodes", "regret", "returns", "pessimistic")
        found = {name: getattr(blocks, name)[i] for name in names}
        _same(dict(zip(names, block, strict=True)), found, clause, first, "block")
    _same(state, run.result.state, clause, done - 1)
    sizes = f"FiniteMDP(S={known.states}, A={known.actions}, H={known.horizon})"
    return _report(
        f"{type(agent).__name__}, {episodes} episodes of {sizes}, seed {seed}",
        "begin returns the same state every time",
        "plan can be played, writes nothing to the state, and depends on nothing but state and draw",
        "learn leaves plan and flow as they are",
        "learn takes flows that are shorter or twice as long, and actions of others",
        "a state from a file plans and learns the same, after every block",
        clause,
    )


def _learns_from_anything(agent: Learner, mdp: FiniteMDP, state: Any, seed: int, done: int) -> None:
    """Let copies of a state learn from flows that are shorter or longer than planned, and from actions of others."""
    known = mdp.known
    plan = agent.plan(known, copy.deepcopy(state), generator(seed, "agent", done))
    uniform = np.tile(
        known.allowed / known.allowed.sum(axis=1, keepdims=True), (known.horizon, 1, 1)
    )
    most = min(plan.episodes, 100 if known.continuing else _MOST)  # those are walked one by one
    for what, policy, count in (
        ("a flow of one episode", plan.policy, 1),
        ("a flow twice as long as the plan", plan.policy, 2 * most),
        ("actions of others", uniform, most),
    ):
        other, clause = copy.deepcopy(state), f"learn takes {what}"
        flow = simulate(mdp, policy, count, generator(seed, "check", done))
        try:
            agent.learn(known, other, plan, flow)
        except Exception as error:  # of the user's learner, which may raise anything
            raise ContractError(
                f"broken contract: {clause} (episode {done + 1}: {error!r})"
            ) from error
        _plan(agent, known, other, seed, done + count, clause)


def check_rule(rule: Rule, *, bases: int = 3, episodes: int = 40, seed: int = 0) -> str:
    """Check a rule over some bases, whose returns are drawn at random: 0 or 1, more often 1 for later bases."""
    _require(
        isinstance(rule, Rule),
        "a rule has start(bases), choose(memory, draw) and update(memory, base, played)",
    )
    memory, played = rule.start(bases), [0] * bases
    _require(isinstance(memory, dict), "the memory is a dict")
    _same(memory, rule.start(bases), "start returns the same memory every time", 0, "memory")
    for episode in range(episodes):
        before, other = copy.deepcopy(memory), _restored(memory)
        choice, again, resumed = (
            rule.choose(each, generator(seed, "check_rule", episode))
            for each in (memory, memory, other)
        )
        _same(before, memory, "choose writes nothing to the memory", episode, "memory")
        _require(
            again == choice and type(again) is type(choice), "the same draw gives the same choice"
        )
        _require(resumed == choice, "a memory from a file makes the same choices")
        replay, base = (
            isinstance(choice, Replay),
            choice.base if isinstance(choice, Replay) else choice,
        )
        inside = (
            isinstance(base, (int, np.integer)) and not isinstance(base, bool) and 0 <= base < bases
        )
        _require(inside, f"the choice is one of {bases} bases, not {choice!r}")
        if replay:
            _require(getattr(rule, "replays", False), "a rule that replays says so: replays = True")
            _require(played[base] > 0, "a replay is of a base that has played")
        draw = generator(seed, "check_rule, played", episode)
        earned, start = float(draw.random() < (base + 1) / (base + 2)), int(draw.integers(2))
        planned = math.nan if replay or draw.random() < 0.3 else float(draw.uniform(earned, 1.0))
        told = Played(earned, planned, start, Flow.of_episode([start, 0], [0], [earned]), replay)
        for each in (memory, other):
            rule.update(each, base, told)
        _same(memory, other, "a memory from a file learns the same", episode, "memory")
        played[base], memory = played[base] + (not replay), other
    return _report(
        f"{type(rule).__name__}, {episodes} episodes of {bases} bases, seed {seed}",
        "start returns the same memory every time",
        "choose returns one of the bases, writes nothing, and depends on nothing but memory and draw",
        "a memory from a file goes on to the bit, after every episode",
    )


def check_problem(problem: Problem) -> str:
    """Check a problem: its optimum solves the Bellman equations, and no policy at hand beats it."""
    mdp: Any = getattr(problem, "mdp", None)
    _require(isinstance(mdp, FiniteMDP), "a problem has an mdp")
    best, horizon = mdp.optimal_values, mdp.horizon
    _require(best.shape == (horizon + 1, mdp.states), "optimal values are [H + 1, S]")
    inside = (best >= -1e-12).all() and (
        best <= horizon - np.arange(horizon + 1)[:, None] + 1e-9
    ).all()
    _require(inside, "V*_h lies in [0, H - h + 1]")
    _require(
        np.allclose(mdp.evaluate(mdp.optimal_policy), best, atol=1e-9),
        "the optimal policy attains V*",
    )
    draw = generator(0, "check_problem")
    for _ in range(5):
        policy = draw.integers(mdp.actions, size=(horizon, mdp.states))
        _require((mdp.evaluate(policy) <= best + 1e-9).all(), "no policy beats V*")
    return _report(
        repr(problem),
        "V* is in range, attained by the optimal policy, and beaten by none of 5 others",
    )


def __dir__() -> list[str]:
    return sorted(name for name in globals() if name.startswith("check_"))
