"""Models that are off by at most a tolerance: what is ruled out, and how seldom falsely.

    python -m studies.tolerance validity --runs 200     truths just inside; controls
    python -m studies.tolerance power --runs 24         episodes until members outside fall
    python -m studies.tolerance off-by --runs 50        the proved bound beside the exact distance
    python -m studies.tolerance coverage --runs 200     ranges and gains at the true distance
    python -m studies.tolerance break-even --runs 200   beside all kernels of small problems
    python -m studies.tolerance acting --runs 20        an agent none of whose models is right
    python -m studies.tolerance odd-days                the shop with odd days, a typo, a regime
    python -m studies.tolerance cost                    10,000 pairs and 500 members
    python -m studies.tolerance closed-form             the ratio beside a convex solver

Kernels are drawn at random: four states, two actions, six steps, actions at random. The truth is
within the tolerance of a member at every step: *fixed*; *alternating* between two laws from block
to block; *hidden*, one of two laws for a whole episode; *adversarial*, moving the mass that may
move from the outcome with the least e-value to the one with the largest.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, minimize
from scipy.stats import binomtest

import occamrl as orl
from occamrl.answers.tolerance import earned_today, worlds_at
from occamrl.answers.wording import points
from occamrl.arrays import Floats, Ints
from occamrl.demo import COLUMNS, shop_ladder, shop_log
from occamrl.evidence.tolerance import GRID, evidence_against, huber_ratio
from occamrl.evidence.tolerant import Exact, TolerantEvidence
from occamrl.protocols import Interval, Known, State
from occamrl.running.flow import simulate

STATES, ACTIONS, HORIZON = 4, 2, 6
BLOCK = 5  # episodes that are weighed together
TOLERANCE = 0.05
KINDS = ("fixed", "alternating", "hidden", "adversarial")


def kernels_near(draw: np.random.Generator, members: int) -> Floats:
    """Return random kernels [n, S, A, S]."""
    return np.asarray(draw.dirichlet(np.full(STATES, 0.7), size=(members, STATES, ACTIONS)))


def moved(law: Floats, score: Floats, tolerance: float) -> Floats:
    """Return a kernel with mass moved to where a score is largest from where it is least."""
    shifted = law.copy()
    for s in range(STATES):
        for a in range(ACTIONS):
            order = np.argsort(score[s, a])
            best = order[-1]
            remaining = tolerance
            for outcome in order[:-1]:
                amount = min(remaining, shifted[s, a, outcome])
                shifted[s, a, outcome] -= amount
                shifted[s, a, best] += amount
                remaining -= amount
    shifted = np.maximum(shifted, 0.0)
    return np.asarray(shifted / shifted.sum(axis=2, keepdims=True))


class Truth:
    """What happens: within the tolerance of a member at every step."""

    def __init__(self, kind: str, member: Floats, tolerance: float, draw: np.random.Generator):
        self.kind = kind
        self.member = member
        self.tolerance = tolerance
        self.draw = draw
        scores = draw.random((2, *member.shape))
        self.laws = [moved(member, score, tolerance) for score in scores]

    def laws_of_block(
        self, number: int, evidence: TolerantEvidence, state: State
    ) -> list[tuple[Floats, int]]:
        """Return the kernels of a block, and for how many of its episodes each."""
        if self.kind == "fixed":
            return [(self.laws[0], BLOCK)]
        if self.kind == "alternating":
            return [(self.laws[number % 2], BLOCK)]
        if self.kind == "hidden":
            first = int(self.draw.binomial(BLOCK, 0.5))
            return [(self.laws[0], first), (self.laws[1], BLOCK - first)]
        law = np.full(self.member.shape, 1.0 / STATES)
        first = 0
        for row in state["bet_row"].tolist():
            s, a = divmod(row, ACTIONS)
            law[s, a] = state["bet_law"][first : first + STATES]
            first += STATES + 1
        ratio = huber_ratio(law, self.member, self.tolerance)
        return [(moved(self.member, ratio, self.tolerance), BLOCK)]


def known_of() -> Known:
    """Return what is known of the problems: no rewards."""
    return Known.of_sizes(states=STATES, actions=ACTIONS, horizon=HORIZON)


def looks(
    evidence: TolerantEvidence,
    truth: Truth,
    blocks: int,
    draw: np.random.Generator,
    count: int = 12,
) -> Iterator[tuple[int, State]]:
    """Feed blocks of a truth to the evidence; yield episodes and state now and then."""
    state = evidence.begin()
    policy = np.full((HORIZON, STATES, ACTIONS), 1.0 / ACTIONS)
    reward = np.zeros((STATES, ACTIONS))
    times = set(np.unique(np.geomspace(1, blocks, count).astype(int)).tolist())
    for block in range(1, blocks + 1):
        for law, episodes in truth.laws_of_block(block, evidence, state):
            if episodes:
                mdp = orl.FiniteMDP(transition=law, reward=reward, horizon=HORIZON)
                evidence.add(state, simulate(mdp, policy, episodes, draw))
        if block in times:
            yield block * BLOCK, state


def evidence_about(members: Floats, delta: float) -> TolerantEvidence:
    """Return the evidence about a list of kernels."""
    ladder = orl.Ladder([orl.FiniteFamily(members)])
    return TolerantEvidence(cast(Exact, ladder.evidence(known_of(), delta)), 0.0)


class Case(NamedTuple):
    """Evidence, and the member that is near the truth."""

    evidence: TolerantEvidence
    member: Any  # as the evidence has it
    kernel: Floats


def listed_case(draw: np.random.Generator, members: int) -> Case:
    """Return a list whose first member is near the truth."""
    kernels = kernels_near(draw, members)
    return Case(evidence_about(kernels, 0.5), np.int64(0), kernels[0])


def real_case(draw: np.random.Generator, parameters: int) -> Case:
    """Return mixtures of random kernels, whose weights are the parameters."""
    kernels = kernels_near(draw, parameters + 1)

    def mixed(weights: Sequence[float]) -> Floats:
        shares = np.array([1.0 - sum(weights) / parameters, *(np.array(weights) / parameters)])
        return np.asarray(np.tensordot(shares, kernels, axes=1))

    def outcomes(
        state: int, action: int, *, w0: float, w1: float = 0.0, w2: float = 0.0
    ) -> Iterator[tuple[float, int, float, bool]]:
        law = mixed([w0, w1, w2][:parameters])[state, action]
        for following, chance in enumerate(law):
            yield float(chance), following, 0.0, False

    names = [f"w{number}" for number in range(parameters)]
    model = orl.Model(
        outcomes,
        start=0,
        actions=list(range(ACTIONS)),
        horizon=HORIZON,
        parameters=dict.fromkeys(names, (0.0, 1.0)),
    )
    ladder = model.ladder({"mixtures": names})
    evidence = TolerantEvidence(cast(Exact, ladder.evidence(model.known, 0.5)), 0.0)
    truth = draw.random(parameters)
    return Case(evidence, truth, mixed(truth.tolist()))


def largest_evidence(
    case: Case, kind: str, draw: np.random.Generator, tolerances: Sequence[float], blocks: int = 40
) -> Floats:
    """Return the most evidence at any time against the member near the truth, by tolerance."""
    truth = Truth(kind, case.kernel, TOLERANCE, draw)
    largest = np.full(len(tolerances), -np.inf)
    for _, state in looks(case.evidence, truth, blocks, draw):
        for number, tolerance in enumerate(tolerances):
            against = case.evidence._against(state, case.member, tolerance)
            largest[number] = max(largest[number], against)
    return largest


CASES = (("real", 1), ("real", 2), ("real", 3), ("list", 500), ("list", 50), ("list", 5))


def validity(runs: int) -> None:
    """Count false rejections, and those of a control that forgives nothing, in the same data."""
    print(
        f"| truth within {TOLERANCE} | members | at .05 | p | at .5 | p | nothing forgiven, .05 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for form, size in CASES:
        for kind in KINDS:
            evidence = []
            for seed in range(runs):
                draw = np.random.default_rng((seed, size, len(form)))
                case = listed_case(draw, size) if form == "list" else real_case(draw, size)
                evidence.append(largest_evidence(case, kind, draw, (TOLERANCE, 0.0)))
            forgiven, exact = np.array(evidence).T
            row = []
            for delta in (0.05, 0.5):
                count = int((forgiven > math.log(1.0 / delta)).sum())
                p = binomtest(count, runs, delta, alternative="greater").pvalue
                row += [f"{count} of {runs}", f"{p:.2g}"]
            row.append(f"{int((exact > math.log(20.0)).sum())} of {runs}")
            name = f"{size} listed" if form == "list" else f"{size} real"
            print(f"| {kind} | {name} | {' | '.join(row)} |", flush=True)


class Sum(NamedTuple):
    """What is added up to judge a member: a name, and the evidence in a state."""

    name: str
    against: Callable[[TolerantEvidence, State], float]


def _bets(tolerance: float) -> Callable[[TolerantEvidence, State], float]:
    def against(evidence: TolerantEvidence, state: State) -> float:
        members = evidence.exact.roster(state)[:1]
        return float(evidence_against(evidence.exact, state, members, tolerance)[0][0])

    return against


def _exact(evidence: TolerantEvidence, state: State) -> float:
    return float(evidence.exact.log_mixture(state) - evidence.exact.log_likelihoods(state)[0])


SUMS = (
    Sum("tolerance 0", lambda evidence, state: evidence.weigh(state, 0.0).against[0]),
    Sum("of it: exact", _exact),
    Sum("of it: bets", _bets(0.0)),
    Sum("tolerance .02", _bets(0.02)),
)


def power(runs: int) -> None:
    """Print after how many episodes a member falls that is off by several times the tolerance."""
    print(f"| off by | {' | '.join(each.name for each in SUMS)} |")
    print("| --- |" + " --- |" * len(SUMS))
    for factor in (2, 3, 5):
        falls = np.full((len(SUMS), runs), np.inf)
        for seed in range(runs):
            draw = np.random.default_rng(seed)
            member = kernels_near(draw, 1)
            evidence = evidence_about(member, 0.05)
            truth = Truth("fixed", member[0], factor * 0.02, draw)
            for episodes, state in looks(evidence, truth, 600, draw, 60):
                for number, each in enumerate(SUMS):
                    if each.against(evidence, state) > evidence.threshold:
                        falls[number, seed] = min(falls[number, seed], episodes)
        texts = []
        for times in falls:
            median = float(np.median(times))
            text = f"{median:,.0f}" if median < np.inf else "later"
            texts.append(f"{text} ({int(np.isfinite(times).sum())} of {runs})")
        print(f"| {factor} x .02 | {' | '.join(texts)} |", flush=True)


def off_by(runs: int) -> None:
    """Print the proved lower bound and the estimate beside the exact distance."""
    print("| steps | exact distance | proved more than: median, largest | above it | estimate |")
    print("| --- | --- | --- | --- | --- |")
    policy = np.full((HORIZON, STATES, ACTIONS), 1.0 / ACTIONS)
    reward = np.zeros((STATES, ACTIONS))
    found: dict[int, list[tuple[float, float, float]]] = {1_000: [], 10_000: [], 100_000: []}
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        member = kernels_near(draw, 1)
        evidence = evidence_about(member, 0.05)
        truth = Truth("fixed", member[0], 0.1, draw)
        distance = 0.5 * np.abs(truth.laws[0] - member[0]).sum(axis=2)
        mdp = orl.FiniteMDP(transition=truth.laws[0], reward=reward, horizon=HORIZON)
        state = evidence.begin()
        steps = 0
        for goal, rows in found.items():
            while steps < goal:
                episodes = max(1, min(steps // (10 * HORIZON), -(-(goal - steps) // HORIZON)))
                evidence.add(state, simulate(mdp, policy, episodes, draw))
                steps += episodes * HORIZON
            wrong = evidence.off_by(state)
            rows.append((float(distance.max()), wrong.more_than, wrong.estimate))
    for goal, rows in found.items():
        exact, bound, estimate = np.array(rows).T
        above = f"{int((bound > exact + 1e-12).sum())} of {runs}"
        bounds = f"{np.median(bound):.3f}, {bound.max():.3f}"
        estimated = f"{np.median(estimate):.3f}"
        print(f"| {goal:,} | {np.median(exact):.3f} | {bounds} | {above} | {estimated} |")


REWARD = np.array([[0.0, 0.1], [0.3, 0.2], [0.6, 0.5], [1.0, 0.9]])


def log_of(
    mdp: orl.FiniteMDP, habit: Floats, episodes: int, draw: np.random.Generator
) -> dict[str, Floats | Ints]:
    """Return the columns of a log of a policy [H, S, A]."""
    flows = [simulate(mdp, habit, 1, draw) for _ in range(episodes)]
    names = np.array([mdp.known.state_name(s) for s in range(mdp.states)])
    actions = np.array([mdp.known.action_name(a) for a in range(mdp.actions)])
    reward = np.concatenate([flow.reward for flow in flows])
    return {
        "episode": np.repeat(np.arange(episodes), mdp.horizon),
        "state": names[np.concatenate([flow.state for flow in flows])],
        "action": actions[np.concatenate([flow.action for flow in flows])],
        "next_state": names[np.concatenate([flow.next_state for flow in flows])],
        "reward": np.asarray(mdp.known.amount(reward, 1)),
    }


def coverage(runs: int) -> None:
    """Count misses of ranges and gains at the true distance, and of the automatic tolerance."""
    asked = {"range at the distance": 0, "gain": 0, "range where one is left": 0}
    counts = dict.fromkeys(asked, 0)
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        members = kernels_near(draw, 5)
        truth = Truth("fixed", members[0], TOLERANCE, draw).laws[0]
        mdp = orl.FiniteMDP(transition=truth, reward=REWARD, horizon=HORIZON)
        # a policy that somebody had
        habit = draw.dirichlet(np.ones(ACTIONS), size=(HORIZON, STATES))
        log = log_of(mdp, habit, 200, draw)
        ladder = orl.Ladder([orl.FiniteFamily(members)])
        answer = orl.select(log, ladder, mdp.known, tolerance=TOLERANCE, progress=False)
        worth = mdp.value(answer.policy)
        asked["range at the distance"] += 1
        counts["range at the distance"] += not _within(worth, answer.range_at(TOLERANCE))
        asked["gain"] += 1
        counts["gain"] += not _within(worth - mdp.value(habit), answer.gain)
        plain = orl.select(log, ladder, mdp.known, progress=False)
        if plain.misspecified and plain.surviving is not None:
            asked["range where one is left"] += 1
            amount = plain.range_at(plain.surviving)
            counts["range where one is left"] += not _within(mdp.value(plain.policy), amount)
    print("| 200 episodes, off by .05 | missed |")
    print("| --- | --- |")
    for name, count in counts.items():
        print(f"| {name} | {count} of {asked[name]} |")


def _within(number: float, interval: Interval) -> bool:
    return interval.low - 1e-9 <= number <= interval.high + 1e-9


def nearby(law: Floats, radius: float) -> Floats:
    """Return the corners [n, K] of the laws within a total variation of a law."""
    corners = [law]
    for goal in range(law.size):
        others = [outcome for outcome in range(law.size) if outcome != goal]
        for order in itertools.permutations(others):
            corner = law.copy()
            remaining = radius
            for source in order:
                amount = min(remaining, corner[source])
                corner[source] -= amount
                corner[goal] += amount
                remaining -= amount
            corners.append(corner)
    return np.unique(np.array(corners), axis=0)


def least_by_trial(member: Floats, policy: Ints, reward: Floats, radius: float) -> float:
    """Return the least worth of a policy [2, S] in all kernels whose rows are corners."""
    states = len(member)
    every = np.arange(states)
    last = reward[every, policy[1]]
    first = [nearby(member[s, policy[0, s]], radius) for s in range(states)]
    least = math.inf
    for rows in itertools.product(*first):
        worth = reward[every, policy[0]] + np.array(rows) @ last
        least = min(least, float(worth.mean()))
    return least


def loses(seed: int) -> tuple[bool, bool] | None:
    """Say whether the recommendation loses in some kernel below the break-even, and just above it.

    None where the break-even of the problem is not between 0 and the largest tolerance.
    """
    states = 3
    draw = np.random.default_rng(seed)
    members = draw.dirichlet(np.ones(states), size=(3, states, ACTIONS))
    reward = np.repeat(draw.random((states, 1)), ACTIONS, axis=1)
    truth = 0.95 * members[0] + 0.05 * draw.dirichlet(np.ones(states), size=(states, ACTIONS))
    start = np.full(states, 1.0 / states)
    mdp = orl.FiniteMDP(transition=truth, reward=reward, horizon=2, initial_state=start)
    worst = np.eye(ACTIONS)[np.tile((truth @ reward[:, 0]).argmin(axis=1), (2, 1))]
    log = log_of(mdp, 0.9 * worst + 0.05, 600, draw)
    ladder = orl.Ladder([orl.FiniteFamily(members)])
    answer = orl.select(log, ladder, mdp.known, progress=False)
    limit = answer.break_even
    if limit is None or limit >= GRID[-1]:
        return None
    policy = np.asarray(answer.worlds.rule(answer.policy))

    def loses_at(radius: float) -> bool:
        above = min(bound for bound in GRID if bound >= radius)
        weighed = answer.weigher.weigh(answer.state, above)
        alive = members[weighed.members[weighed.against <= answer.threshold]]
        today = earned_today(answer, worlds_at(answer, above).around(radius))
        worths = [least_by_trial(kernel, policy, reward, radius) for kernel in alive]
        return today is not None and min(worths, default=math.inf) <= today.high

    below = [bound for bound in GRID if bound < limit]
    return any(loses_at(radius) for radius in [*below, limit - 1e-9]), loses_at(limit + 2e-4)


def break_even(runs: int) -> None:
    """Look for a kernel in which the recommendation loses, below the break-even and above it."""
    tried = [found for found in map(loses, range(runs)) if found is not None]
    below, above = np.array(tried).sum(axis=0).tolist()
    print(f"{runs} problems, {len(tried)} with a break-even between 0 and {GRID[-1]}.")
    print("All kernels whose rows are corners of the balls were tried: the recommendation loses")
    print(f"at some tolerance below it in {below}, just above it in {above}.")


def acting(runs: int) -> None:
    """Print the regret of an agent none of whose models is right, beside tables alone."""
    print("| off by | episodes | regret | of tables from nothing | of the nearest model alone |")
    print("| --- | --- | --- | --- | --- |")
    times = (300, 1_500)
    for distance in (0.02, 0.05, 0.1, 0.3):
        regrets = np.zeros((3, len(times)))
        wrong = 0
        for seed in range(runs):
            draw = np.random.default_rng(seed)
            member = kernels_near(draw, 1)
            truth = Truth("fixed", member[0], distance, draw).laws[0]
            mdp = orl.FiniteMDP(transition=truth, reward=REWARD, horizon=HORIZON)
            agent = orl.Occam(ladder=orl.Ladder([orl.FiniteFamily(member)]))
            run = orl.run(agent, mdp, episodes=times[-1], seed=seed, progress=False)
            wrong += run.verdict["misspecified"]
            table = orl.run(orl.PSRL(), mdp, episodes=times[-1], seed=seed, progress=False)
            near = orl.FiniteMDP(transition=member[0], reward=REWARD, horizon=HORIZON)
            loss = mdp.optimal_value - mdp.value(near.optimal_policy)
            for number, time_ in enumerate(times):
                regrets[:, number] += run.regret_at(time_), table.regret_at(time_), time_ * loss
        for number, episodes in enumerate(times):
            ours, tables, nearest = regrets[:, number] / runs
            found = f"{distance:g} (noticed in {wrong} of {runs})"
            print(f"| {found} | {episodes:,} | {ours:.1f} | {tables:.1f} | {nearest:.1f} |")


def spoiled_logs() -> dict[str, str]:
    """Return logs of the shop by what is wrong with them, as CSV."""
    logs = {f"odd days, {share:g}": shop_log(share) for share in (0.01, 0.03, 0.1)}
    header, *lines = shop_log().splitlines()
    fields = lines[700].split(",")
    fields[3] = "0" if fields[3] == "6" else "6"  # what was ordered
    logs["one typo"] = "\n".join([header, *lines[:700], ",".join(fields), *lines[701:]])
    # a fair on every third month: its days are those of a log in which a day in three is odd
    fair = shop_log(1.0 / 3.0).splitlines()[1:]
    months = [line for line in lines if int(line.split(",")[0]) % 3]
    months += [line for line in fair if int(line.split(",")[0]) % 3 == 0]
    logs["a hidden regime"] = "\n".join([header, *months])
    return logs


def odd_days(runs: int) -> None:
    """Print what is said of the shop's log when something is wrong with it."""
    print(
        "| log | exact test | off by more than | left from | seems off by | policy | beats up to |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, text in spoiled_logs().items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "log.csv"
            file.write_text(text, "utf-8")
            log = orl.read_log(file, COLUMNS, order_by="day", rewards="model")
            answer = orl.select(log, shop_ladder(), progress=False)
            fits = "nothing fits" if answer.misspecified else f"{answer.model!r}"
            row = [name, fits, points(answer.off_by.more_than)]
            row.append("" if answer.surviving is None else points(answer.surviving))
            row.append(points(answer.off_by.estimate))
            row.append(answer.span(answer.range_at(max(0.02, answer.surviving or 0.0))))
            limit = answer.break_even
            row.append("not sure" if limit is None else points(limit))
            print(f"| {' | '.join(row)} |", flush=True)


def cost(runs: int) -> None:
    """Print the CPU time of 500 members over 10,000 pairs and 20,000 steps."""
    states, members = 2_500, 500

    def outcomes(state: int, push: int, *, up: float) -> Iterator[tuple[float, int, float, bool]]:
        rise = up * (1.0 + push) / 4.0
        yield rise, min(state + 1, states - 1), state / states, False
        yield 0.2, max(state - 1, 0), state / states, False
        yield 0.8 - rise, state, state / states, False

    def probabilities(pairs: Sequence[tuple[int, int]], *, up: float) -> Floats:
        rise = up * (1.0 + np.array([push for _, push in pairs])) / 4.0
        return np.stack([rise, np.full(rise.size, 0.2), 0.8 - rise], axis=1).ravel()

    model = orl.Model(
        outcomes,
        start=states // 2,
        actions=[0, 1, 2, 3],
        horizon=40,
        parameters={"up": (0.1, 0.7)},
        probabilities=probabilities,
    )
    ladder = orl.Ladder([model.family({"up": np.linspace(0.1, 0.7, members).tolist()})])
    mdp = model.mdp(up=0.4)
    habit = np.full((mdp.horizon, mdp.states, mdp.actions), 1.0 / mdp.actions)
    log = log_of(mdp, habit, 500, np.random.default_rng(0))
    print("| 10,000 pairs, 500 members, 20,000 steps | CPU, s |")
    print("| --- | --- |")
    began = time.process_time()
    answer = orl.select(log, ladder, mdp.known, progress=False)
    steps: dict[str, Callable[[], object]] = {
        "the log is read": lambda: answer.status,
        "off by": lambda: answer.off_by,
        "the policy": lambda: answer.policy,
        "range at .02": lambda: answer.range_at(0.02),
        "break-even": lambda: answer.break_even,
    }
    for name, step in steps.items():
        step()
        print(f"| {name} | {time.process_time() - began:.1f} |", flush=True)
        began = time.process_time()


def closed_form(cases: int) -> None:
    """Compare the ratio with a convex solver on random laws with zeros."""
    draw = np.random.default_rng(0)
    largest_gap = 0.0
    largest_mean = 0.0
    for _ in range(cases):
        size = int(draw.integers(2, 6))
        p, q = draw.dirichlet(np.full(size, 0.7), size=2)
        p = np.where(draw.random(size) < 0.2, 0.0, p)
        p = p / p.sum() if p.sum() else np.full(size, 1.0 / size)
        tolerance = float(draw.choice([0.01, 0.05, 0.2]))
        ratio = huber_ratio(q, p, tolerance)
        ours = float(q @ np.log(q / ratio))

        # the ball as linear constraints: p + up - down, sums of up and down at most the tolerance
        def loss(parts: Floats, q: Floats = q, p: Floats = p, size: int = size) -> float:
            law = p + parts[:size] - parts[size:]
            return -float(q @ np.log(np.maximum(law, 1e-12)))

        solved = minimize(
            loss,
            np.concatenate([np.full(size, tolerance / size), tolerance * p]),
            bounds=Bounds(np.zeros(2 * size), np.append(np.ones(size), p)),
            constraints=[
                LinearConstraint(np.repeat([1.0, 0.0], size), 0.0, tolerance),
                LinearConstraint(np.repeat([1.0, -1.0], size), 0.0, 0.0),
            ],
            method="SLSQP",
            options={"maxiter": 400, "ftol": 1e-12},
        )
        largest_gap = max(largest_gap, -solved.fun - ours)
        # the largest mean of e over the ball moves mass from the least e on
        mass = p.copy()
        remaining = tolerance
        for outcome in np.argsort(ratio)[:-1]:
            amount = min(remaining, mass[outcome])
            mass[outcome] -= amount
            mass[np.argmax(ratio)] += amount
            remaining -= amount
        largest_mean = max(largest_mean, float(mass @ ratio))
    print(f"{cases} cases: a solver finds at most {largest_gap:.1e} nats more")
    print(f"the largest mean of e over the ball, at most: {largest_mean:.12f}")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts: dict[str, Callable[[int], None]] = {
        "validity": validity,
        "power": power,
        "off-by": off_by,
        "coverage": coverage,
        "break-even": break_even,
        "acting": acting,
        "odd-days": odd_days,
        "cost": cost,
        "closed-form": closed_form,
    }
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    began = time.process_time()
    parts[options.part](options.runs)
    print(f"\n{time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
