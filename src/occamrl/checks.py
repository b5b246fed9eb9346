"""Contract checks: what every learner, selector, problem and family must satisfy, whoever wrote it.

Each function raises :class:`occamrl.errors.ContractError` with the broken clause, and returns None when all is well.
The project's own tests apply them to everything the registries find.
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from occamrl import seeding
from occamrl._core.arena import forget_models
from occamrl.errors import CheckpointError, ContractError, FamilyError, ParameterError
from occamrl.learners.rewards import RewardsPerPair
from occamrl.models.family import Family, packed, weighted
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import (
    Agent,
    Episode,
    EpisodeLearner,
    Floats,
    Ints,
    Known,
    Learner,
    Played,
    Problem,
    Replay,
    Rule,
    RuledBases,
    Selector,
)
from occamrl.running.files import Arrays
from occamrl.running.result import Result
from occamrl.running.run import Run, Simulator, Source, run
from occamrl.running.storage import put_together, take_apart

_EPISODES = 150  # past the first second look at dropped kernels


def check_learner(
    learner: Learner | EpisodeLearner | RuledBases,
    mdp: FiniteMDP | Problem,
    *,
    episodes: int = _EPISODES,
    seed: int = 0,
) -> None:
    """Check a learner, or an arena of learners, on a problem.

    Its state is made of arrays; the same seed gives the same bits; one run equals two halves; one loop equals one
    episode at a time; regret is never negative; a checkpoint restores everything. A learner that offers unknown rewards
    and one kernel per step is checked with these as well.
    """
    mdp = as_mdp(mdp)
    has = "a learner has model(known), begin(known) and reserve(state, episodes), or begin, plan and learn"
    _require(isinstance(learner, (Learner, EpisodeLearner, RuledBases)), has)
    for each in [learner, *extensions(learner)] if isinstance(learner, Learner) else [learner]:
        state = each.begin(mdp.known)
        list(_arrays(state))  # refuses what is no array
        for name in getattr(state, "_fields", ()) if isinstance(each, Learner) else ():
            kind = type(getattr(state, name))
            _require(issubclass(kind, np.ndarray), f"a state is made of arrays, but state.{name} is {kind.__name__}")
        _check_agent(each, mdp, episodes, seed)


def check_selector(selector: Selector, mdp: FiniteMDP | Problem, *, episodes: int = _EPISODES, seed: int = 0) -> None:
    """Check a selector on a problem: its phases cover the run, and it keeps the clauses of a learner.

    With unknown rewards as well, for one kernel and for one per step, which are compiled once for both. What is
    compiled for one kernel per step with known rewards is checked with the learners.
    """
    mdp = as_mdp(mdp)
    _require(isinstance(selector, Selector), "a selector has start, next_phase and finish_phase")
    unknown = [each for each in extensions(selector) if not isinstance(vars(each)["rewards"], str)]
    for each in (selector, *unknown):
        result = run(each, mdp, episodes=episodes, seed=seed, progress=False)
        phases = result.phases
        _require(sum(phases["episodes"].to_pylist()) == episodes, "the phases cover all episodes")
        _require(np.isclose(sum(phases["regret"].to_pylist()), result.total_regret), "the phases cover the regret")
        _check_agent(each, mdp, episodes, seed)


def check_rule(rule: Rule, *, bases: int = 3, episodes: int = _EPISODES, seed: int = 0) -> None:
    """Check a rule over some bases, whose returns are drawn at random.

    It chooses one of the bases; ``choose`` writes nothing, and the same draw gives the same answer; its memory can be
    stored, and one that was goes on to the bit, from any episode.
    """
    _require(isinstance(rule, Rule), "a rule has start(bases), choose(memory, draw) and update(memory, base, played)")
    memory = rule.start(bases)
    _require(isinstance(memory, dict), "the memory is a dict")
    _require(_stored(rule.start(bases)) == _stored(memory), "start returns the same memory every time")
    other, played = _restored(memory), [0] * bases
    for episode in range(episodes):
        before = _stored(memory)
        choice = rule.choose(memory, seeding.stream(seed, "check_rule", episode))
        _require(_stored(memory) == before, "choose writes nothing to the memory")
        again = rule.choose(memory, seeding.stream(seed, "check_rule", episode))
        _require(again == choice and type(again) is type(choice), "the same draw gives the same choice")
        resumed = rule.choose(other, seeding.stream(seed, "check_rule", episode))
        _require(resumed == choice, "a memory from a file makes the same choices")
        replay, base = isinstance(choice, Replay), choice.base if isinstance(choice, Replay) else choice
        inside = isinstance(base, (int, np.integer)) and not isinstance(base, bool) and 0 <= base < bases
        _require(inside, f"the choice is one of {bases} bases, not {choice!r}")
        if replay:
            _require(bool(getattr(rule, "replays", False)), "a rule that replays says so: replays = True")
            _require(played[base] > 0, "a replay is of a base that has played")
        told = _made_up(base, replay, seeding.stream(seed, "check_rule", "played", episode))
        rule.update(memory, base, told)
        rule.update(other, base, told)
        played[base] += not replay
        _require(_stored(memory) == _stored(other), "a memory from a file learns the same")
        other = _restored(memory)


def _made_up(base: int, replay: bool, draw: np.random.Generator) -> Played:
    """Return an episode of one step that earns 0 or 1, more often 1 for later bases; some have a planned value."""
    value = float(draw.random() < (base + 1) / (base + 2))
    planned = float("nan") if replay or draw.random() < 0.3 else float(draw.uniform(value, 1.0))
    start = int(draw.integers(2))
    episode = Episode(np.array([start, 0]), np.zeros(1, dtype=np.int64), np.array([value]))
    return Played(value, planned, start, episode, replay)


def _stored(memory: Any) -> tuple[Any, Any]:
    """Return a memory as a file would hold it: a text and the bytes of arrays."""
    arrays: Arrays = {}
    try:
        skeleton = take_apart(memory, arrays)
    except CheckpointError as error:
        raise ContractError(f"broken contract: the memory is made of plain data and arrays ({error})") from error
    for name, array in arrays.items():
        _require(not array.dtype.hasobject, f"arrays of the memory hold numbers (not so {name})")
    return repr(skeleton), {name: (str(each.dtype), each.shape, each.tobytes()) for name, each in arrays.items()}


def _restored(memory: Any) -> Any:
    """Return a memory as it comes back from a file."""
    arrays: Arrays = {}
    skeleton = take_apart(memory, arrays)
    return put_together(skeleton, {name: each.copy() for name, each in arrays.items()})


AnyAgent = TypeVar("AnyAgent", Learner, Selector)


def extensions(agent: AnyAgent) -> Iterator[AnyAgent]:
    """Yield the agent with one kernel per step, with unknown rewards, and with both, as far as it offers them.

    An agent offers them by the fields ``rewards`` and ``kernel``; what it refuses beside its other parameters is left
    out.
    """
    fields = {name: vars(agent)[name] for name, each in getattr(agent, "__dataclass_fields__", {}).items() if each.init}
    if fields.get("rewards") != "known" or fields.get("kernel") != "stationary":
        return
    each_step, unknown = {"kernel": "per_step"}, {"rewards": RewardsPerPair()}
    for changes in (each_step, unknown, {**each_step, **unknown}):
        try:
            yield type(agent)(**fields | changes)
        except ParameterError:
            continue


def check_problem(problem: Problem) -> None:
    """Check a problem: its optimum solves the Bellman equations and no policy at hand beats it."""
    mdp = problem.mdp
    _require(isinstance(mdp, FiniteMDP), "a problem has an mdp")
    best = mdp.optimal_values
    _require(best.shape == (mdp.horizon + 1, mdp.states), "optimal values are [H + 1, S]")
    for h in range(mdp.horizon + 1):
        inside = (best[h] >= -1e-12).all() and (best[h] <= mdp.horizon - h + 1e-9).all()
        _require(bool(inside), f"V*_{h + 1} lies in [0, H - h + 1]")
    _require(np.allclose(mdp.evaluate(mdp.optimal_policy), best, atol=1e-9), "the optimal policy attains V*")
    generator = seeding.stream(0, "check_problem")
    for _ in range(5):
        policy = generator.integers(mdp.actions, size=(mdp.horizon, mdp.states))
        _require(bool((mdp.evaluate(policy) <= best + 1e-9).all()), "no policy beats V*")


class Rows(NamedTuple):
    """Regression rows (s, a, V, y): V was fixed before y = bonus + V(s') was seen."""

    pair: Ints  # [n] s*A + a
    values: Floats  # [n, S] V
    target: Floats  # [n] y


def sample_rows(features: FeatureMap, known: Known, theta: Floats, draw: np.random.Generator, count: int) -> Rows:
    """Return rows at random (s, a) and V with outcomes drawn from P_theta."""
    outcomes = features.attach(known).outcomes
    pair = draw.integers(known.states * known.actions, size=count)
    values = draw.uniform(0.0, 1.0, size=(count, known.states)) * draw.integers(1, known.horizon + 1, size=(count, 1))
    probability = np.clip(features.probabilities(theta), 0.0, None)
    chosen = np.empty(count, dtype=np.int64)
    for t, sa in enumerate(pair):
        p = probability[outcomes.start[sa] : outcomes.start[sa + 1]]
        chosen[t] = outcomes.start[sa] + draw.choice(p.size, p=p / p.sum())
    return Rows(pair, values, outcomes.bonus[chosen] + values[np.arange(count), outcomes.next_state[chosen]])


def design(features: FeatureMap, known: Known, rows: Rows) -> tuple[Floats, Floats]:
    """Return x_t = phi_(W - c)(s_t, a_t)/R [n, d] and y [n] on range-weighted rows (M8, M23)."""
    x, middle, spread = weighted(features, known, rows.pair, rows.values)
    safe = np.where(spread > 0.0, spread, 1.0)
    return x, np.where(spread > 0.0, (rows.target - middle) / safe, 0.0)


def check_family(family: Family, mdp: FiniteMDP | None = None, *, rows: int = 60, seed: int = 0) -> None:
    """Check a family of kernels on rows drawn from one of its members.

    Members are kernels, and contained; no member at hand loses less on the rows, one by one (M1, M23), than the
    smallest loss that the family computes from their sums (M3), and no vector at all loses less than least squares; the
    covering number falls as the scale grows. Of a finite family: the smallest loss is that of a member, and its value
    functions are those of its members.
    """
    draw = seeding.stream(seed, "check_family")
    try:
        family.check(draw)
    except FamilyError as error:
        raise ContractError(f"broken contract: each member is a kernel ({error})") from error
    members = list(family.members(draw, 6))
    for i, member in enumerate(members):
        _require(family.contains(family.kernel(member)), f"member {i} is contained")
    states, actions = family.features.states, family.features.actions
    if mdp is None:
        mdp = _problem_of(family.kernel(members[0]), draw.uniform(size=(states, actions)), 4)
    known = mdp.known
    drawn = sample_rows(family.features, known, family.parameters_of(members[0]), draw, rows)
    x, y = design(family.own_features, known, drawn)
    least = family.smallest_loss(packed(family.own_features.blocks, x.T @ x), x.T @ y) + float(y @ y)
    every = range(family.size) if isinstance(family, FiniteFamily) else members
    losses = [_loss(family, known, member, drawn) for member in every]
    _require(least <= min(losses) + 1e-7, "no member has a smaller loss than the smallest")
    fit = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    _require(least >= float(((y - fit) ** 2).sum()) - 1e-7, "the smallest loss is not below that of least squares")
    scales = [family.log_covering_number(alpha) for alpha in (0.01, 0.1, 0.5, 2.0)]
    falling = all(one >= other for one, other in itertools.pairwise(scales))
    _require(falling and scales[-1] >= 0.0, "the log covering number is >= 0 and falls as the scale grows")
    if isinstance(family, FiniteFamily):
        _require(bool(np.isclose(least, min(losses))), "the smallest loss is that of a member")
        _check_values(family, mdp)


def _loss(family: Family, known: Known, member: Any, rows: Rows) -> float:
    """Return the loss of a member, row by row: the sum of (y - (P W)(s, a))^2/R^2 (M1, M23)."""
    probability, loss = family.features.probabilities(family.parameters_of(member)), 0.0
    outcomes = family.features.attach(known).outcomes
    for pair, values, target in zip(*rows, strict=True):
        own = slice(outcomes.start[pair], outcomes.start[pair + 1])
        w = outcomes.bonus[own] + values[outcomes.next_state[own]]
        middle, spread = (w.max() + w.min()) / 2.0, np.ptp(w)
        if spread > 0.0:  # probabilities may sum to one up to rounding only
            loss += ((target - middle - probability[own] @ (w - middle)) / spread) ** 2
    return float(loss)


def _check_values(family: FiniteFamily, mdp: FiniteMDP) -> None:
    values = family.optimal_values(mdp.known)
    _require(values.shape == (family.size, mdp.horizon + 1, mdp.states), "values are [n, H + 1, S]")
    _require(family.optimal_values(mdp.known) is values, "values are solved once per problem")
    for member in range(min(family.size, 20)):
        if mdp.known.transition_rewards is None:
            alone = _problem_of(family.kernel(member), mdp.known.base_reward, mdp.horizon)
            _require(np.allclose(alone.optimal_values, values[member], atol=1e-7), f"member {member} has its own V*")


def _problem_of(kernel: Floats, reward: Floats, horizon: int) -> FiniteMDP:
    """Return the problem of a member, whose probabilities may be off by rounding."""
    clipped = np.clip(kernel, 0.0, None)
    return FiniteMDP(transition=clipped / clipped.sum(axis=2, keepdims=True), reward=reward, horizon=horizon)


def _check_agent(agent: Agent, mdp: FiniteMDP, episodes: int, seed: int) -> None:
    whole = _fresh_run(agent, mdp, episodes=episodes, seed=seed)
    _require(bool((whole.regret >= -1e-9).all()), "regret is never negative")
    _same(whole, _fresh_run(agent, mdp, episodes=episodes, seed=seed), "the same seed gives the same bits")
    half = _fresh_run(agent, mdp, episodes=episodes // 2, seed=seed)
    kept = copy.deepcopy(half.state)
    rest = _fresh_run(agent, mdp, episodes=episodes - episodes // 2, continue_from=half)
    _same(whole, rest, "one run equals two halves")
    _same_state(half.state, kept, "continuing leaves the earlier result as it was")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.npz"
        half.save(path)
        loaded = Result.load(path, agent, mdp)
    rest = _fresh_run(agent, mdp, episodes=episodes - episodes // 2, continue_from=loaded)
    _same(whole, rest, "a run resumed from a checkpoint equals one that was never interrupted")
    _same(whole, episode_by_episode(agent, mdp, episodes, seed), "one loop equals one episode at a time")


def _fresh_run(agent: Agent, mdp: FiniteMDP, **options: Any) -> Result:
    """Run with models made anew: one that remembers, or differs from call to call, is found."""
    forget_models()
    return run(agent, mdp, progress=False, **options)


class _Stepped(Simulator):
    """The simulator, as slowly as an environment."""

    play = Source.play


def episode_by_episode(agent: Agent, mdp: FiniteMDP, episodes: int, seed: int) -> Result:
    """Play as in an environment what ``run`` plays in one loop: same random numbers, two calls an episode."""
    stepped = Run(agent, _Stepped(mdp), seed)
    stepped.play(episodes, progress=False)
    return stepped.result()


def _require(holds: bool, clause: str) -> None:
    if not holds:
        raise ContractError(f"broken contract: {clause}")


def _arrays(state: Any, path: str = "state") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Walk through the arrays of a state."""
    if isinstance(state, np.ndarray):
        yield path, state
    elif isinstance(state, tuple) and hasattr(state, "_fields"):
        for name in state._fields:
            yield from _arrays(getattr(state, name), f"{path}.{name}")
    elif isinstance(state, dict):
        for name, part in state.items():
            yield from _arrays(part, f"{path}.{name}")
    elif isinstance(state, list):
        for number, part in enumerate(state):
            yield from _arrays(part, f"{path}[{number}]")
    elif isinstance(state, (bool, int, float, str, np.generic)):  # in the state of a learner in plain NumPy
        yield path, np.asarray(state)
    elif state is None:
        yield path, np.zeros(0)
    else:
        raise ContractError(f"broken contract: a state is made of arrays, but {path} is {type(state).__name__}")


def _same_state(one: Any, other: Any, clause: str) -> None:
    pairs = zip(_arrays(one), _arrays(other), strict=True)
    for (path, left), (_, right) in pairs:
        _require(left.shape == right.shape and left.tobytes() == right.tobytes(), f"{clause} (differs at {path})")


def _same(one: Result, other: Result, clause: str) -> None:
    for name in ("regret", "cumulative_regret", "returns"):
        _require(getattr(one, name).tobytes() == getattr(other, name).tobytes(), clause)
    for name in ("total_regret", "total_return", "plans", "pessimistic_episodes"):
        _require(getattr(one, name) == getattr(other, name), clause)
    _same_state(one.state, other.state, clause)
