"""The quantities of the theorems, by brute force on tiny problems."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

import occamrl as orl
from occamrl.arrays import Floats, Ints
from occamrl.errors import ParameterError
from occamrl.paper import quantities, theorems

RATES = (0.1, 0.5, 0.9)


def kernel(p: float, q: float) -> Floats:
    """Return two states: action 1 leaves state 0 with probability p and state 1 with q."""
    return np.array([[[1, 0], [1 - p, p]], [[0, 1], [q, 1 - q]]])


def two_rates() -> tuple[orl.Ladder, orl.FiniteMDP]:
    """Return one rate in two states, or two, and a truth that needs two."""
    one = orl.FiniteFamily(np.array([kernel(p, p) for p in RATES]))
    two = orl.FiniteFamily(np.array([kernel(p, q) for p in RATES for q in RATES]))
    mdp = orl.FiniteMDP(transition=kernel(0.5, 0.9), reward=[[0.4, 0.0], [0.0, 1.0]], horizon=3)
    return orl.Ladder([one, two]), mdp


def optimum(p: Floats, mdp: orl.FiniteMDP) -> tuple[Floats, Ints]:
    """Return values [H + 1, S] and actions [H, S], written out."""
    values = np.zeros((mdp.horizon + 1, mdp.states))
    actions = np.zeros((mdp.horizon, mdp.states), dtype=np.int64)
    for h in reversed(range(mdp.horizon)):
        q = np.asarray(mdp.known.base_reward) + p @ values[h + 1]
        values[h] = q.max(axis=1)
        actions[h] = q.argmax(axis=1)
    return values, actions


def paths(p: Floats, actions: Ints, start: int) -> Any:
    """Yield all trajectories of states with their probabilities."""
    H = len(actions)
    for states in itertools.product(range(p.shape[0]), repeat=H):
        path = (start, *states)
        chance = 1.0
        for h in range(H):
            chance *= p[path[h], actions[h][path[h]], path[h + 1]]
        yield path, chance


def test_separation_is_that_of_all_trajectories() -> None:
    ladder, mdp = two_rates()
    found = orl.paper.separation(ladder, mdp)
    truth = kernel(0.5, 0.9)
    members = [kernel(p, p) for p in RATES]
    least = math.inf
    for played in members:
        values, actions = optimum(played, mdp)
        for other in members:
            mean = 0.0
            for path, chance in paths(truth, actions, 0):
                for h in range(3):
                    pair = (path[h], actions[h][path[h]])
                    mean += chance * ((other[pair] - truth[pair]) @ values[h + 1]) ** 2 / 3
            least = min(least, mean)
    assert found.played == pytest.approx((least,))
    # action 0 does the same in all members, so that assumption 1 fails
    assert found.everywhere == (0.0,)


def test_separation_on_rows_is_that_of_the_rows() -> None:
    ladder, mdp = two_rates()
    result = orl.run(orl.paper.ARLGen(ladder=ladder), mdp, episodes=40, progress=False)
    found = quantities.separation_on_rows(ladder, mdp, result.state["all"], 3)
    zz = result.state["all"]["zz"]
    truth = ladder.family.find(mdp.kernel())
    assert truth is not None
    by_hand = []
    for member in range(ladder.sizes[0]):
        weights = np.zeros(ladder.family.size)
        weights[member] += 1.0
        weights[truth] -= 1.0
        by_hand.append(weights @ zz @ weights)
    assert found == pytest.approx([min(by_hand) / (40 * 3)])


def test_a_ladder_without_the_truth_has_no_separation() -> None:
    ladder, mdp = two_rates()
    other = orl.FiniteMDP(
        transition=kernel(0.3, 0.3), reward=[[0.4, 0.0], [0.0, 1.0]], horizon=mdp.horizon
    )
    with pytest.raises(ParameterError, match="no member"):
        orl.paper.separation(ladder, other)


# Features -----------------------------------------------------------------------------------------


def test_the_feature_bound_is_the_largest_norm_over_all_vertices() -> None:
    problem = orl.make_problem("sparse-mixture", seed=3, states=5, dimension=6, nonzero=3)
    H = problem.mdp.horizon
    found = orl.paper.feature_bound(orl.FeatureMap(problem.phi), H)
    phi = problem.phi  # [S, A, S', d]
    largest = 0.0
    for vertex in itertools.product((0.0, float(H)), repeat=5):
        largest = max(largest, np.linalg.norm(np.einsum("satd,t->sad", phi, vertex), axis=2).max())
    assert found.exact
    assert found.lower == pytest.approx(largest)
    # the sums of magnitudes over next states bound each coordinate, and so the norm
    by_coordinate = np.abs(phi).sum(axis=2)
    assert largest <= H * np.linalg.norm(by_coordinate, axis=2).max()


def test_where_there_are_too_many_vertices_the_bound_comes_from_both_sides() -> None:
    draw = np.random.default_rng(0)
    for states in (16, 20):
        phi = draw.normal(size=(4, states))
        low, high = quantities._largest_image(phi)
        assert low <= high
        some = draw.integers(0, 2, size=(4_000, states)) @ phi.T
        assert np.linalg.norm(some, axis=1).max() <= low * (1.0 + 1e-9)


def test_excitation_is_that_of_all_trajectories() -> None:
    problem = orl.make_problem(
        "sparse-mixture", seed=1, states=3, actions=2, dimension=3, horizon=3
    )
    mdp = problem.mdp
    features = orl.FeatureMap(problem.phi)
    values = mdp.optimal_values
    total = np.zeros((3, 3))
    for start, chance_of_start in enumerate(mdp.initial_distribution):
        for states in itertools.product(range(3), repeat=2):
            for actions in itertools.product(range(2), repeat=3):
                path = (start, *states)
                chance = chance_of_start * 0.5**3
                for h in range(2):
                    chance *= mdp.kernel()[path[h], actions[h], path[h + 1]]
                for h in range(3):
                    x = values[h + 1] @ problem.phi[path[h], actions[h]]
                    total += chance * np.outer(x, x)
    least = np.linalg.eigvalsh(total)[0] / 3
    assert orl.paper.excitation(features, problem) == pytest.approx(max(0.0, least), abs=1e-12)


def test_excitation_of_a_run_is_that_of_its_rows() -> None:
    problem = orl.make_problem("sparse-mixture", seed=1, states=4, dimension=3, nonzero=2)
    agent = orl.paper.UCRLVTRLin(features=orl.FeatureMap(problem.phi), norm_bound=1.5)
    result = orl.run(agent, problem, episodes=30, progress=False)
    sigma = result.state["sigma"]
    found = quantities.excitation_of_run(result.state, problem.mdp.horizon)
    rows = 30 * problem.mdp.horizon
    assert np.linalg.eigvalsh(sigma - np.eye(3))[0] == pytest.approx(found * rows, abs=1e-9)


# Eluder dimension ---------------------------------------------------------------------------------


def longest_sequence(functions: Floats, scale: float, first: int) -> int:
    """Return the eluder dimension, by all sequences of points, with the condition from ``first``.

    Two points with equal gaps are two points, as in the definition.
    """
    n, points = functions.shape
    gaps = np.array([np.abs(functions[f] - functions[g]) for f in range(n) for g in range(f)])
    best = 0
    for e in sorted({float(gap) for gap in gaps.ravel() if gap > scale} | {scale + 1.0}):
        for length in range(1, points + 1):
            for sequence in itertools.permutations(range(points), length):
                holds = True
                for i in range(length):
                    if i + 1 < first:
                        continue
                    before = (gaps[:, list(sequence[:i])] ** 2).sum(axis=1)
                    # e' just below e: gaps above e' are those of at least e
                    if not ((before < e * e) & (gaps[:, sequence[i]] >= e)).any():
                        holds = False
                        break
                if holds:
                    best = max(best, length)
    return best


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_the_eluder_dimension_is_that_of_all_sequences(seed: int) -> None:
    draw = np.random.default_rng(seed)
    # multiples of 1/4, of which sums of squares are exact
    functions = draw.integers(0, 4, size=(int(draw.integers(2, 5)), int(draw.integers(1, 5)))) / 4
    standard = theorems.eluder_dimension(functions, 0.2)
    assert standard == longest_sequence(functions, 0.2, first=1)
    printed = theorems.printed_eluder_dimension(functions, 0.2)
    assert printed == longest_sequence(functions, 0.2, first=2)
    assert standard <= printed <= standard + 1
    assert quantities.longest_found(functions, 0.2) <= standard
    assert standard <= quantities.eluder_from_above(functions, 0.2)


def test_three_functions_can_have_a_sequence_of_three() -> None:
    # each point drives one pair apart and leaves the others close: |F| - 1 is no bound
    functions = np.array([[0.0, 0.0, 0.505], [1.01, 0.505, 0.0], [0.505, 1.01, 1.01]])
    assert theorems.eluder_dimension(functions, 0.9) == 3
    assert quantities.eluder_from_above(functions, 0.9) == 3


def test_eluder_bounds_of_a_family_enclose_what_a_search_finds() -> None:
    ladder, mdp = two_rates()
    exact = quantities.eluder(ladder.family, mdp.known, 0.05)
    functions = theorems.predictions(ladder.family, mdp.known)
    assert exact.exact
    assert quantities.longest_found(functions, 0.05) <= exact.lower
    assert exact.upper <= quantities.eluder_from_above(functions, 0.05)
    large = orl.make_problem("sparse-ladder")
    family = orl.Ladder.of_problem(large).family_of(2)
    bounds = orl.paper.eluder(family, large.mdp.known, 1e-3)
    assert 1 <= bounds.lower <= bounds.upper


# Covering numbers ---------------------------------------------------------------------------------


def apart(one: Floats, other: Floats) -> float:
    """Return the distance of two kernels."""
    return float(np.abs(one - other).sum(axis=-1).max())


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.8, 2.0])
def test_covering_numbers_of_lists_are_at_least_the_smallest_cover(alpha: float) -> None:
    kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(8, 3, 2))
    found = round(math.exp(orl.FiniteFamily(kernels).log_covering_number(alpha)))
    near = np.array([[apart(p, q) <= alpha for q in kernels] for p in kernels])
    smallest = 8
    for count in range(8, 0, -1):
        for centres in itertools.combinations(range(8), count):
            if near[list(centres)].any(axis=0).all():
                smallest = count
                break
    assert smallest <= found <= 8


def test_covering_numbers_of_boxes_are_those_of_a_cover() -> None:
    calm, storm = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3, 2))

    def mixed(p: Floats) -> Floats:
        return np.asarray((1 - p[0]) * calm + p[0] * storm)

    family = orl.CoverFamily(mixed, low=[0.0], high=[1.0], step=0.1)
    for alpha in (0.02, 0.2, 0.5):
        count = round(math.exp(family.log_covering_number(alpha)))
        length = apart(calm, storm)
        # an interval of this length needs length/(2 alpha) balls
        assert count >= length / (2 * alpha) - 1e-9
        assert count <= length / alpha + 12


# The threshold of lemma 1 -------------------------------------------------------------------------


def test_no_class_is_rejected_before_the_first_epoch_that_can() -> None:
    ladder, mdp = two_rates()
    delta = 0.05
    first = quantities.first_rejecting_epoch(ladder, mdp.known, 1, delta)
    assert first is not None
    early = 0
    runs = 10
    for seed in range(runs):
        # the test at the beginning of an epoch is the plan of its first episode
        episodes = 2**first - 2
        result = orl.run(
            orl.paper.ARLGen(ladder=ladder), mdp, episodes=episodes, seed=seed, progress=False
        )
        rows = [row for row in result.phase_rows if row["epoch"] < first]
        early += any(row["chosen"] > 1 for row in rows)
    assert binomtest(early, runs, delta, alternative="greater").pvalue > 1e-3


def test_a_difference_is_rejected_in_the_first_epoch_whose_threshold_it_exceeds() -> None:
    for excess in (0.5, 0.1, 1e-3):
        epoch = quantities.rejecting_epoch(excess)
        assert epoch is not None
        assert quantities.threshold(epoch) < excess <= quantities.threshold(epoch - 1)
    assert quantities.rejecting_epoch(0.0) is None


# Epochs of the theorems ---------------------------------------------------------------------------


def about(**changes: Any) -> theorems.Setting:
    """Return a setting of a linear class."""
    given: dict[str, Any] = {
        "horizon": 4,
        "episodes": 10**40,
        "delta": 0.05,
        "dimension": 6,
        "norm_bound": 2.0,
        "feature_bound": 1.0,
        "excitation": 0.05,
        "initial_episodes": 5,
    }
    return theorems.Setting(**{**given, **changes})


@pytest.mark.parametrize(
    ("growth", "estimation_growth", "threshold"), [(36.0, 6.0, 0.5), (4.0, 2.0, 0.9)]
)
def test_with_k_0_of_lemma_5_the_support_is_exact_as_early_as_it_says(
    growth: float, estimation_growth: float, threshold: float
) -> None:
    setting = about(growth=growth, estimation_growth=estimation_growth, threshold=threshold)
    k_0 = theorems.initial_episodes_dimension(setting)
    enough = about(
        growth=growth,
        estimation_growth=estimation_growth,
        threshold=threshold,
        initial_episodes=int(k_0),
    )
    for smallest in (0.9, 0.5, 0.1):
        promised = max(1, math.ceil(math.log(2.0 / smallest) / math.log(1.0 / threshold)))
        assert theorems.selection_epoch_dimension(enough, smallest=smallest) <= promised
    # a thousandth of it is not enough for the first epoch
    few = about(
        growth=growth,
        estimation_growth=estimation_growth,
        threshold=threshold,
        initial_episodes=max(1, int(k_0) // 10**6),
    )
    assert theorems.selection_epoch_dimension(few, smallest=2.0) > 1


def test_estimation_that_grows_too_slowly_has_no_k_0() -> None:
    with pytest.raises(ParameterError, match="no k_0"):
        theorems.initial_episodes_dimension(about(estimation_growth=2.0))


def test_with_k_1_of_lemma_6_norm_bounds_stay_within_the_excess() -> None:
    k_1 = theorems.initial_episodes_norm(about(), true_norm=1.2, excess=1.0)
    enough = about(initial_episodes=int(k_1))
    bounds = [epoch.norm_bound for epoch in theorems.norm_epochs(enough, true_norm=1.2)]
    assert max(bounds[1:]) <= 2.2
    half = about(initial_episodes=int(k_1) // 2)
    fewer = [epoch.norm_bound for epoch in theorems.norm_epochs(half, true_norm=1.2)]
    lengths = zip(theorems.norm_epochs(half, true_norm=1.2), itertools.count(), strict=False)
    too_short = any(
        (int(k_1) // 2) * 2**i < theorems.tau_min(about(delta=epoch.delta)) for epoch, i in lengths
    )
    assert too_short or max(fewer[1:]) > 2.2
    short = about(episodes=1_000)
    assert theorems.initial_episodes_norm(short, true_norm=1.2, excess=1.0) == math.inf


def test_the_epochs_of_theorem_2_are_those_of_the_algorithm() -> None:
    problem = orl.make_problem("sparse-mixture", seed=0, states=4, dimension=3, nonzero=2)
    agent = orl.paper.ARLLinDim(
        features=orl.FeatureMap(problem.phi),
        norm_bound=1.2,
        initial_episodes=5,
        growth=2.5,
        estimation_growth=1.7,
    )
    rows = orl.run(agent, problem, episodes=80, progress=False).phase_rows
    played: dict[tuple[int, str], int] = {}
    for row in rows:
        key = (row["epoch"], row["label"])
        played[key] = played.get(key, 0) + row["episodes"]
    for (epoch, label), episodes in list(played.items())[:-1]:
        growth, first = (2.5, 5) if label == "exploitation" else (1.7, 3)
        assert episodes == theorems._length(growth, epoch, first)


def test_what_a_theorem_needs_is_asked_for() -> None:
    bare = theorems.Setting(horizon=3, episodes=100, delta=0.05)
    with pytest.raises(ParameterError, match="feature_bound"):
        theorems.regret_bound_linear(bare)
    with pytest.raises(ParameterError, match="excitation"):
        theorems.tau_min(bare)


# The report ---------------------------------------------------------------------------------------


def test_the_report_has_the_numbers_of_the_theorems_and_names_their_statements() -> None:
    problem = orl.make_problem("sparse-ladder", states=4, actions=2, dimension=4, horizon=4)
    ladder = orl.Ladder.of_problem(problem)
    mdp = problem.mdp
    selector = orl.paper.ARLGen(ladder=ladder)
    found = orl.paper.report(selector, mdp, 1_000)
    names = ("lemma", "theorem", "assumption", "section", "definition", "algorithm", "appendix")
    assert all(line.source.startswith(names) for line in found.lines)
    shown = min(orl.paper.separation(ladder, mdp).played)
    size = ladder.sizes[-1]
    epoch = theorems.selection_epoch_generic(
        horizon=4, delta=0.05, separation=shown, entropy=math.log(size)
    )
    assert found.value("i*") == epoch
    first = found.value("first epoch that may reject class 1")
    assert first is not None
    assert first <= epoch
    right = ladder.family_of(ladder.class_of(mdp) or 0)
    eluder = quantities.eluder(right, mdp.known, 1 / 4_000).upper
    terms = theorems.regret_bound_generic(
        theorems.Setting(horizon=4, episodes=1_000, delta=0.05),
        radius=lambda k, delta: 8 * 16 * math.log(right.size / delta),
        eluder=eluder,
        first_epoch=epoch,
    )
    assert found.value("regret at most") == pytest.approx(terms["total"])
    line = next(line for line in found.lines if line.name == "regret at most")
    assert ("vacuous" in line.note) == (terms["total"] >= 4_000)
    assert "before epoch" in str(found)


def test_a_bound_that_is_called_vacuous_becomes_small_where_the_report_says() -> None:
    problem = orl.make_problem("sparse-ladder", states=4, actions=2, dimension=4, horizon=4)
    ladder = orl.Ladder.of_problem(problem)
    mdp = problem.mdp
    text = str(orl.paper.report(orl.paper.ARLGen(ladder=ladder), mdp, 1_000))
    power = int(text.split("about 10^")[1].split()[0])
    for exponent, below in ((power - 1, False), (power, True)):
        found = orl.paper.report(orl.paper.ARLGen(ladder=ladder), mdp, 10**exponent)
        line = next(line for line in found.lines if line.name == "regret at most")
        assert line.note.startswith("below") == below


def test_reports_of_linear_selectors_say_what_is_assumed() -> None:
    problem = orl.make_problem("sparse-mixture", seed=0, states=5, dimension=5)
    features = orl.FeatureMap(problem.phi)
    for kind in (orl.paper.ARLLinDim, orl.paper.ARLLinNorm):
        found = orl.paper.report(kind(features=features, norm_bound=5.0), problem, 10_000)
        assert {line.kind for line in found.lines} >= {"given", "computed", "measured", "assumed"}
        rho = orl.paper.excitation(features, problem)
        assert found.value("rho of the uniform policy") == rho
    with pytest.raises(ParameterError, match="ARLGen"):
        orl.paper.report(orl.UniformRandom(), problem, 10)


def test_the_verdict_of_the_letter_says_when_its_test_would_reject() -> None:
    ladder, mdp = two_rates()
    result = orl.run(orl.paper.ARLGen(ladder=ladder), mdp, episodes=62, progress=False)
    text = str(result.verdict)
    statistics = result.verdict["statistics"]
    later = quantities.rejecting_epoch(statistics[0] - statistics[1])
    assert f"from epoch {later} (" in text


def test_where_a_class_can_confirm_itself_nothing_is_promised() -> None:
    ladder, mdp = two_rates()
    assert orl.paper.separation(ladder, mdp).played == pytest.approx((0.0,), abs=1e-20)
    found = orl.paper.report(orl.paper.ARLGen(ladder=ladder), mdp, 1_000)
    assert found.value("i*") is None
    assert found.value("regret at most") == 3_000
    assert "not expected to" in str(found)
