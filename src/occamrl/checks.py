"""Contract checks for what you write: learners and selectors, rules, families, problems.

Each check uses the thing in many ways. It raises a :class:`~occamrl.errors.ContractError` that names the broken clause,
with the episode and field of the first difference; or prints and returns what it did.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from occamrl import bellman
from occamrl.control.ladder import check_simulator as check_simulator
from occamrl.errors import ContractError, OccamRLError
from occamrl.evidence import value
from occamrl.models.families import TOLERANCE, Family, FiniteFamily
from occamrl.problems.mdp import FiniteMDP, as_mdp, stream
from occamrl.protocols import Flow, Known, Learner, Plan, Played, Problem, Replay, Rule
from occamrl.running.flow import simulate
from occamrl.running.run import Run, Simulator, generator, require_plan
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
    return Reader({name: array.copy() for name, array in writer.arrays.items()}, writer.objects).get(json.loads(text))


def _parts(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in ("policy", "episodes", "values", "facts", "grounds")}


def _plan(
    agent: Learner, known: Known, state: Any, seed: int, episode: int, clause: str = "plan can be played"
) -> Plan:
    """Ask for a plan that can be played."""
    plan = agent.plan(known, state, generator(seed, "agent", episode))
    try:
        require_plan(plan, known)
    except OccamRLError as error:
        raise ContractError(f"broken contract: {clause} (episode {episode + 1}: {error})") from error
    shape = (known.horizon + 1, known.states)
    fine = plan.values is None or (np.shape(plan.values) == shape and np.isfinite(plan.values).all())
    _require(fine, f"{clause} (episode {episode + 1}: plan.values are finite numbers {shape})")
    return plan


def check_learner(agent: Learner, mdp: FiniteMDP | Problem, *, episodes: int = 40, seed: int = 0) -> str:
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
    _require(not isinstance(agent, type) and isinstance(agent, Learner), "a learner has begin, plan and learn")
    problem, done, played = as_mdp(mdp), 0, list[Any]()
    known, source, state = problem.known, Simulator(problem), agent.begin(problem.known)
    fresh = copy.deepcopy(state)
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    while done < episodes:  # as the driver does, but every block resumes from a file
        before, other = copy.deepcopy(state), _restored(state)
        plan, again = (_plan(agent, known, each, seed, done) for each in (state, other))
        _same(before, state, "plan writes nothing to the state", done)
        _same(_parts(plan), _parts(again), "the same state and draw give the same plan", done, "plan")
        block = source.play(plan, done, min(plan.episodes, episodes - done), seed, lambda: False)
        kept = copy.deepcopy((_parts(plan), vars(block.flow)))
        agent.learn(known, state, plan, block.flow)
        _same(kept, (_parts(plan), vars(block.flow)), "learn leaves plan and flow as they are", done, "plan, flow")
        agent.learn(known, other, again, block.flow)
        _same(state, other, "a state from a file learns the same", done)
        played.append([done, block.flow.episodes, float(block.regret[0]), float(block.returns[0]), block.pessimistic])
        state, done = other, done + block.flow.episodes
    _learns_from_anything(agent, problem, state, seed, done)
    _same(fresh, agent.begin(known), "begin returns the same state every time", 0)
    run = Run(agent, source, seed)  # by the driver, in two pieces
    run.play(max(1, episodes // 2), progress=False)
    if episodes > 1:
        run = Run(agent, source, seed, run.result)
        run.play(episodes - episodes // 2, progress=False)
    blocks, clause = run.result.blocks, "the same seed gives the same bits, in one run or in two"
    for i, (first, *block) in enumerate(played):
        found = [getattr(blocks, name)[i] for name in ("episodes", "regret", "returns", "pessimistic")]
        _same(block, found, clause, first, "block")
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
    uniform, most = np.full((*plan.policy.shape[:2], known.actions), 1.0 / known.actions), min(plan.episodes, _MOST)
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
            raise ContractError(f"broken contract: {clause} (episode {done + 1}: {error!r})") from error
        _plan(agent, known, other, seed, done + count, clause)


def check_rule(rule: Rule, *, bases: int = 3, episodes: int = 40, seed: int = 0) -> str:
    """Check a rule over some bases, whose returns are drawn at random: 0 or 1, more often 1 for later bases."""
    _require(isinstance(rule, Rule), "a rule has start(bases), choose(memory, draw) and update(memory, base, played)")
    memory, played = rule.start(bases), [0] * bases
    _require(isinstance(memory, dict), "the memory is a dict")
    _same(memory, rule.start(bases), "start returns the same memory every time", 0, "memory")
    for episode in range(episodes):
        before, other = copy.deepcopy(memory), _restored(memory)
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
        draw = stream(seed, "check_rule", "played", episode)
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
    inside = (best >= -1e-12).all() and (best <= horizon - np.arange(horizon + 1)[:, None] + 1e-9).all()
    _require(inside, "V*_h lies in [0, H - h + 1]")
    _require(np.allclose(mdp.evaluate(mdp.optimal_policy), best, atol=1e-9), "the optimal policy attains V*")
    draw = stream(0, "check_problem")
    for _ in range(5):
        policy = draw.integers(mdp.actions, size=(horizon, mdp.states))
        _require((mdp.evaluate(policy) <= best + 1e-9).all(), "no policy beats V*")
    return _report(repr(problem), "V* is in range, attained by the optimal policy, and beaten by none of 5 others")


def check_family(family: Family, mdp: FiniteMDP | None = None) -> str:
    """Check a family of kernels, on rows drawn from one of its members."""
    draw, features = stream(0, "check_family"), family.features
    members = list(family.members(draw, 8))
    _require(members, "a family has a kernel")
    for i, member in enumerate(members):
        kernel = family.kernel(member)
        _require(np.abs(kernel.sum(axis=2) - 1.0).max() <= TOLERANCE, f"member {i} is a kernel: sums are 1")
        _require(kernel.min() >= -TOLERANCE, f"member {i} is a kernel: no probability is negative")
        _require(family.contains(kernel), f"member {i} is contained")
    reward = draw.uniform(size=(features.states, features.actions))
    known = Known(features.states, features.actions, 4, reward) if mdp is None else mdp.known
    outcomes, values = features.attach(known), draw.uniform(size=(known.horizon + 1, known.states)) * known.horizon
    lists = [slice(*ends) for ends in itertools.pairwise(outcomes.start)]  # the outcomes of each (s, a)
    law = np.maximum(features.probabilities(family.parameters_of(members[0])), 0.0)
    count = np.concatenate([draw.multinomial(9, law[own] / law[own].sum()) for own in lists])
    step, pair = draw.integers(known.horizon, size=len(lists)), outcomes.pair
    rewards = known.base_reward.ravel()[pair] + outcomes.bonus
    flow = Flow(step[pair], *np.divmod(pair, known.actions), outcomes.next_state, rewards, count, 9 * len(lists))
    sums = value.begin(family.own_features)
    value.add(sums, family.own_features, known, values, flow)

    def loss(member: Any) -> float:
        """Return the sum of ((W(o) - (P W)(s, a))/R)^2 over what happened."""
        probability, total = features.probabilities(family.parameters_of(member)), 0.0
        for h, own in zip(step, lists, strict=True):
            w = outcomes.bonus[own] + values[h + 1, outcomes.next_state[own]]
            middle, spread = 0.5 * (w.max() + w.min()), float(np.ptp(w))
            if spread > 0.0:  # probabilities may sum to one up to rounding only
                total += float(count[own] @ ((w - middle - probability[own] @ (w - middle)) / spread) ** 2)
        return total

    least = family.smallest_loss(sums["gram"][0], sums["xy"][0]) + float(sums["yy"][0])
    losses = [loss(member) for member in (range(family.size) if isinstance(family, FiniteFamily) else members)]
    _require(least <= min(losses) + 1e-7, "no member has a smaller loss than the smallest")
    center = np.linalg.pinv(sums["gram"][0]) @ sums["xy"][0][..., None]
    free = float(sums["yy"][0] - (sums["xy"][0] * center[..., 0]).sum())
    _require(least >= free - 1e-7, "the smallest loss is not below that of least squares")
    if isinstance(family, FiniteFamily):
        _require(np.isclose(least, min(losses)), "the smallest loss is that of a member")
        plain = replace(known, transition_rewards=None)
        for member in range(min(family.size, 20)):
            solved, kernel = np.zeros(known.states), family.kernel(member)
            for _ in range(known.horizon):
                solved = (known.base_reward + kernel @ solved).max(axis=1)
            values, _ = bellman.solve([family.kernel_of(member, plain)], known.states, known.horizon)
            _require(np.allclose(values[0], solved, atol=1e-7), f"member {member} has its V*")
    return _report(repr(family), "members are kernels, and contained", "smallest losses, by brute force")
