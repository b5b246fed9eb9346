"""The options of the compiled learners in plain NumPy, on top of the paper's algorithms (:mod:`occamrl.paper`).

It serves twice: compiled code is tested against it, and the benchmark's ratios are measured against it. They
give the setting, the exact values and the ball of M4; what is added here are the other radii, range weights (M23), the
sharp set (M24) and lazy planning (M12), as a researcher who knows NumPy would write them. Nothing is imported from the
compiled rooms. Arrays are dense: ``phi[s, a, s', j]``, ``kernels[n, s, a, s']``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamrl import paper, seeding
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.paper.ucrl_vtr import dense_kernels
from occamrl.paper.ucrl_vtr import optimal_values as member_values
from occamrl.protocols import Episode, EpisodeLearner, Floats, Ints, Known

Booleans = NDArray[np.bool_]
Weights = Literal["range", "none"]


# ------------------------------------------------------------------------------------------ simulation, exact regret


def environment_uniforms(seed: int, episodes: int, horizon: int) -> Floats:
    """Return the numbers [K, H + 1] that ``orl.run`` draws the first state and the transitions of K episodes with.

    Philox4x32-10 (Salmon et al. 2011) at the key of (seed, "environment") and the counter (block, 0, episode).
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    key = seeding.key(seed, "environment")
    k0, k1 = key & low, key >> half
    numbers, blocks = np.arange(episodes, dtype=np.uint64), np.arange((horizon + 2) // 2, dtype=np.uint64)
    episode, c0 = np.meshgrid(numbers, blocks, indexing="ij")
    c1, c2, c3 = np.zeros_like(c0), episode & low, episode >> half
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    pairs = [(a >> np.uint64(5)) * 2.0**26 + (b >> np.uint64(6)) for a, b in ((c0, c1), (c2, c3))]
    return np.asarray(np.stack(pairs, axis=-1).reshape(episodes, -1)[:, : horizon + 1] * 2.0**-53)


def cumulative_kernel(transition: Floats) -> Floats:
    """Return running sums over s', exactly 1 from the last state of positive probability on.

    The next state for a uniform number u is the first whose running sum exceeds u; states of probability zero repeat
    the sum before them and are never drawn.
    """
    after = np.flip(np.cumsum(np.flip(transition, axis=-1), axis=-1), axis=-1) - transition
    return np.where(after > 0.0, np.cumsum(transition, axis=-1), 1.0)


def optimal_values(transition: Floats, reward: Floats, horizon: int) -> Floats:
    """Return V*_h(s), [H + 1, S], by backward induction."""
    values = np.zeros((horizon + 1, reward.shape[0]))
    for h in reversed(range(horizon)):
        values[h] = (reward + transition @ values[h + 1]).max(axis=1)
    return values


def policy_values(transition: Floats, reward: Floats, policy: Ints) -> Floats:
    """Return V^pi_1(s) [S] under the true kernel, exactly; ``policy[h, s]`` is an action."""
    states, values = np.arange(reward.shape[0]), np.zeros(reward.shape[0])
    for actions in reversed(policy):
        values = reward[states, actions] + transition[states, actions] @ values
    return values


class Moment(NamedTuple):
    """An episode that has been planned and not yet played."""

    state: dict[str, Any]
    policy: Ints  # [H, S]
    planned_value: float  # V^k_1(s_1)
    regret: float  # exact


def play(
    learner: EpisodeLearner, known: Known, transition: Floats, initial: Floats, uniforms: Floats
) -> Iterator[Moment]:
    """Play an episode per row of ``uniforms`` [K, H + 1]: for its first state, then for its transitions."""
    reward, draw = known.base_reward, np.random.default_rng(0)
    starts, following = cumulative_kernel(initial), cumulative_kernel(transition)
    best = optimal_values(transition, reward, known.horizon)[0]
    state, achieved = learner.begin(known), best
    before: Ints | None = None  # the policy that was evaluated last
    for u in uniforms:
        states, actions = [int(np.searchsorted(starts, u[0], side="right"))], []
        plan = learner.plan(known, state, states[0], draw)
        policy, value = plan if isinstance(plan, tuple) else (plan, math.nan)
        if policy is not before:
            before, achieved = policy, policy_values(transition, reward, policy)
        yield Moment(state, policy, value, float(best[states[0]] - achieved[states[0]]))
        for h in range(known.horizon):
            actions.append(int(policy[h, states[-1]]))
            states.append(int(np.searchsorted(following[states[-1], actions[-1]], u[h + 1], side="right")))
        learner.learn(known, state, Episode(np.array(states), np.array(actions), reward[states[:-1], actions]))


# ------------------------------------------------------------------------------------------------------ the formulas


def normalised_target(values: Floats, possible: Booleans, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """Return the target function of the rows at every (s, a), its centre c and its range R (M23).

    With range weights the target is (V - c)/R over the next states that are ``possible[s, a, s']``, and 0 where R = 0:
    such rows are zero and carry nothing. Without weights it is V itself, with c = 0 and R = 1.
    """
    if weights == "none":
        centre, spread = np.zeros(possible.shape[:2]), np.ones(possible.shape[:2])
        return np.broadcast_to(values, possible.shape), centre, spread
    high = np.where(possible, values, -np.inf).max(axis=-1)
    low = np.where(possible, values, np.inf).min(axis=-1)
    centre, spread = (high + low) / 2, high - low
    unit = np.where(spread > 0.0, spread, 1.0)
    target = (values - centre[..., None]) / unit[..., None]
    target[~possible | (spread == 0.0)[..., None]] = 0.0
    return target, centre, spread


def estimate(sigma: Floats, moment: Floats) -> Floats:
    """Return the ridge estimate Sigma^-1 sum_t y_t x_t (M8)."""
    return np.asarray(np.linalg.solve(sigma, moment), dtype=np.float64)


def linear_radius(
    radius: str,
    weights: Weights,
    *,
    horizon: int,
    dimension: int,
    norm_bound: float,
    delta: float,
    lam: float,
    logdet: float,
    episodes: int,
    paper_constant: float,
    paper_clip: bool = False,
) -> Floats:
    """Return sqrt(beta) for every step, [H] (M10, M11 and Ayoub et al. 2020).

    ``logdet`` is log det Sigma, ``episodes`` the number of episodes in the data. The unit U of a row is its range: 1
    with range weights; without them H - 1 (sharp, unweighted; H where values are cut at H), H (paper), or H - h + 1 at
    step h (ayoub).
    """
    weighted = weights == "range"
    log_delta = math.log(1.0 / delta)
    growth = logdet - dimension * math.log(lam)  # log det (Sigma / lambda)
    unit = 1.0 if weighted else horizon - 1.0 + paper_clip
    if radius == "sharp":
        return np.full(horizon, math.sqrt(unit**2 / 4 * (growth + 2 * log_delta) + lam * norm_bound**2))
    if radius == "unweighted":
        return np.full(horizon, unit / 2 * math.sqrt(growth + 2 * log_delta) + math.sqrt(lam) * norm_bound)
    if radius == "paper":
        k, unit = max(1, episodes), 1.0 if weighted else float(horizon)
        noise = unit**2 * dimension * math.log(k * horizon) * math.log(k**2 * horizon / delta) ** 2
        return np.full(horizon, math.sqrt(paper_constant * (norm_bound**2 + noise)))
    if radius == "ayoub":
        units: Floats = np.ones(horizon) if weighted else np.arange(horizon, 0.0, -1.0)
        return units / 2 * math.sqrt(max(0.0, 2 * log_delta + logdet)) + math.sqrt(lam) * norm_bound
    raise ValueError(f"radius: got {radius!r}")


def prior_set(losses: Floats, log_prior: Floats, unit: float, log_delta: float) -> Booleans:
    """Return { P : L(P) <= -(U^2/2) log sum_P w(P) exp(-2 L(P)/U^2) + (U^2/2) log(1/delta) } (M22, M24)."""
    if unit == 0.0:  # every value function is flat: rows cannot tell members apart
        return np.ones(losses.shape, dtype=np.bool_)
    exponents = log_prior - 2 * losses / unit**2
    evidence = exponents.max() + np.log(np.exp(exponents - exponents.max()).sum())
    # The minimiser always belongs to the set; rounding could put it outside when delta = 1.
    inside: Booleans = losses <= max(unit**2 / 2 * (log_delta - evidence), losses.min())
    return inside


# ------------------------------------------------------------------------------------------------- UCRL-VTR-LIN


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearVariant(paper.UCRLVTRLin):
    """UCRL-VTR-LIN with the options of the compiled one; the state keeps the rows that the plan in play can produce."""

    radius: str = "sharp"
    weights: Weights = "range"
    replan: float = 0.0
    scale: float = 1.0
    lam: float = 1.0
    paper_clip: bool = False

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data: Sigma_0 = lambda I."""
        return {**super().begin(known), "sigma": self.lam * np.eye(self.features.dimension), "plans": 0}

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Plan when log det Sigma has grown by log(1 + replan) (M12), over the ellipsoid (M9, M11)."""
        logdet = float(np.linalg.slogdet(state["sigma"])[1])
        if not state["plans"] or self.replan == 0.0 or logdet - state["logdet"] >= math.log1p(self.replan):
            state["logdet"], state["plans"] = logdet, state["plans"] + 1
            self._replan(known, state)
        return state["policy"], float(state["values"][0, start])

    def _replan(self, known: Known, state: dict[str, Any]) -> None:
        H, theta, inverse = known.horizon, self.estimate(state), np.linalg.inv(state["sigma"])
        state["width"] = self.scale * linear_radius(
            self.radius,
            self.weights,
            horizon=H,
            dimension=self.features.dimension,
            norm_bound=self.norm_bound,
            delta=self.delta,
            lam=self.lam,
            logdet=state["logdet"],
            episodes=state["episodes"],
            paper_constant=self.paper_constant,
            paper_clip=self.paper_clip,
        )
        possible = np.any(self.phi != 0.0, axis=2)
        values, policy = np.zeros((H + 1, known.states)), np.zeros((H, known.states), dtype=np.int64)
        rows, targets = [], []
        for h in reversed(range(H)):
            target, centre, spread = normalised_target(values[h + 1], possible, self.weights)
            x = (self.phi @ target[..., None])[..., 0]
            norm = np.sqrt(np.maximum(((x @ inverse) * x).sum(axis=-1), 0.0))
            optimistic = x @ theta + state["width"][h] * norm
            if self.weights == "range":
                optimistic = np.clip(optimistic, -0.5, 0.5)
            q = known.base_reward + centre + spread * optimistic
            policy[h] = q.argmax(axis=1)
            values[h] = np.clip(q.max(axis=1), 0.0, H if self.paper_clip else H - h)
            rows.append(x)
            targets.append(target)
        state |= {"values": values, "policy": policy, "rows": rows[::-1], "targets": targets[::-1], "theta": theta}

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Enter the rows of the episode; that of the last step has V = 0 and carries nothing."""
        for h in range(known.horizon - 1):
            s, a, following = episode.states[h], episode.actions[h], episode.states[h + 1]
            x, y = state["rows"][h][s, a], state["targets"][h][s, a, following]
            state["sigma"] += np.outer(x, x)
            state["xy"] += y * x
        state["episodes"] += 1


def ucrl_vtr_lin(phi: Floats, *problem: Any, episodes: int, uniforms: Floats, **options: Any) -> dict[str, Any]:
    """Run UCRL-VTR-LIN on a problem: rewards, the true kernel, H and the first state.

    The options are those of :class:`LinearVariant`; ``uniforms`` [K, H] decide the transitions.

    Returns what :func:`_run` does, and of the end theta, sigma, logdet, values and policy.
    """
    learner = LinearVariant(features=FeatureMap(phi), **options)
    found, state, _ = _run(learner, problem, uniforms[:episodes])
    logdet = float(np.linalg.slogdet(state["sigma"])[1])
    kept = {name: state[name] for name in ("sigma", "values", "policy")}
    return {**found, **kept, "theta": learner.estimate(state), "logdet": logdet}


# ------------------------------------------------------------------------------------------------------ UCRL-VTR


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteVariant(paper.UCRLVTR):
    """UCRL-VTR with the options of the compiled one; every update takes the set from all rows, nothing is dropped."""

    radius: str = "sharp"
    weights: Weights = "range"
    replan: float = 0.0
    scale: float = 1.0
    log_prior: Floats | None = None

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data, and the unit U of a row: its range, or the largest of any V*_h (M7)."""
        values = member_values(self.family, known)[0]
        unit = 1.0 if self.weights == "range" else float(np.ptp(values[:, 1:], axis=-1).max())
        return {**super().begin(known), "plans": 0, "planned_at": 0, "unit": unit}

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Update the set when the data have grown by the factor 1 + replan; play its most optimistic member (M5)."""
        values, policies = member_values(self.family, known)
        k = state["episodes"]
        if not state["plans"] or self.replan == 0.0 or k >= (1 + self.replan) * state["planned_at"]:
            state["inside"] = self.confidence_set(known, state)
            state["plans"], state["planned_at"] = state["plans"] + 1, k
        member = int(np.where(state["inside"], values[:, 0, start], -np.inf).argmax())
        if member != state["member"]:
            state["member"], state["policy"] = member, policies[member]
            possible = np.asarray((dense_kernels(self.family) > 0.0).any(axis=0))  # for some member
            state["targets"] = [normalised_target(V, possible, self.weights)[0] for V in values[member, 1:]]
        return state["policy"], float(values[member, 0, start])

    def confidence_set(self, known: Known, state: dict[str, Any]) -> Booleans:
        """Return the sharp set (M24), or the ball (M4) of radius M6 or M7."""
        n, unit = self.family.size, state["unit"]
        if self.radius == "sharp":
            prior = np.full(n, -math.log(n)) if self.log_prior is None else self.log_prior
            return prior_set(state["losses"], prior, unit, self.scale * math.log(1.0 / self.delta))
        super().confidence_set(known, state)  # brings the estimate and the distances to it up to date
        height = 1.0 if self.weights == "range" else known.horizon
        factor = 8 * height**2 if self.radius == "paper" else 2 * unit**2  # M6, M7
        inside: Booleans = state["distances"] <= self.scale * factor * math.log(n / self.delta)
        return inside

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Enter range-weighted rows (M23), or those of the paper."""
        if self.weights == "none":
            super().learn(known, state, episode)
            return
        kernels = dense_kernels(self.family)
        for h in range(known.horizon - 1):
            s, a, following = episode.states[h], episode.actions[h], episode.states[h + 1]
            target = state["targets"][h][s, a]
            z = kernels[:, s, a] @ target
            state["losses"] += (target[following] - z) ** 2
            if self.radius != "sharp":  # distances to another estimate need the rows themselves
                state["distances"] += (z - z[state["estimate"]]) ** 2
                state["visits"] = np.append(state["visits"], 1.0)
                state["predictions"] = np.vstack([state["predictions"], z])
        state["episodes"] += 1


def ucrl_vtr(kernels: Floats, *problem: Any, episodes: int, uniforms: Floats, **options: Any) -> dict[str, Any]:
    """Run UCRL-VTR over ``kernels[n, s, a, s']``, with the options of :class:`FiniteVariant`.

    Returns what :func:`_run` does, played and confident (by episode), and of the end losses, values and policy.
    """
    learner = FiniteVariant(family=FiniteFamily(kernels), **options)
    names = (("played", "member"), ("confident", "inside"))
    found, state, known = _run(learner, problem, uniforms[:episodes], names)
    values = member_values(learner.family, known)[0][state["member"]]
    return {**found, "losses": state["losses"], "values": values, "policy": state["policy"]}


def _run(
    learner: Any, problem: tuple[Any, ...], uniforms: Floats, names: Sequence[tuple[str, str]] = ()
) -> tuple[dict[str, Any], dict[str, Any], Known]:
    """Play an episode per row of ``uniforms`` [K, H], which decide the transitions.

    Returns regret, planned, planned_value and the entries of the state in ``names`` (by episode), and plans; the state.
    """
    reward, transition, horizon, start = problem
    known = Known(reward.shape[0], reward.shape[1], horizon, reward)
    found: dict[str, Any] = {name: [] for name in ("regret", "planned", "planned_value", *dict(names))}
    initial, plans = np.asarray(np.eye(reward.shape[0])[start]), 0
    for moment in play(learner, known, transition, initial, np.insert(uniforms, 0, 0.0, axis=1)):
        state = moment.state
        found["regret"].append(moment.regret)
        found["planned"].append(state["plans"] > plans)
        found["planned_value"].append(moment.planned_value)
        for name, entry in names:
            found[name].append(state[entry])
        plans = state["plans"]
    return {**{name: np.array(values) for name, values in found.items()}, "plans": plans}, state, known
