"""UCRL-VTR and UCRL-VTR-LIN in plain, vectorised NumPy, independent of the package.

It serves twice: the package's compiled code is tested against it, and the benchmark's ratios are measured against it.
So it is written for reading first - the formulas of ``M1`` to ``M24`` one after the other - and then as a researcher
who knows NumPy would write them: everything that can be done for all (s, a) at once is (or for all members of a
family), value functions are kept until the next plan, policies are evaluated only when they change.

Arrays are dense: ``phi[s, a, s', j]``, ``reward[s, a]``, ``transition[s, a, s']``, ``kernels[n, s, a, s']``. Steps are
counted from 0 in the code and from 1 in the formulas: ``values[h]`` is V_{h+1}, and ``values[H]`` is V_{H+1} = 0.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Weights = Literal["range", "none"]


# --------------------------------------------------------------------------------------- exact planning, simulation


def optimal_values(transition: Floats, reward: Floats, horizon: int) -> Floats:
    """Return V*_h(s), [H + 1, S], by backward induction."""
    values = np.zeros((horizon + 1, reward.shape[0]))
    for h in reversed(range(horizon)):
        values[h] = (reward + transition @ values[h + 1]).max(axis=1)
    return values


def policy_value(transition: Floats, reward: Floats, horizon: int, policy: Ints, initial_state: int) -> float:
    """Return V^pi_1(s_1) under the true kernel, exactly; ``policy[h, s]`` is an action."""
    states = np.arange(reward.shape[0])
    values = np.zeros(reward.shape[0])
    for h in reversed(range(horizon)):
        values = reward[states, policy[h]] + transition[states, policy[h]] @ values
    return float(values[initial_state])


def cumulative_kernel(transition: Floats) -> Floats:
    """Return running sums over s', exactly 1 from the last state of positive probability on.

    The next state for a uniform number u is the first whose running sum exceeds u; states of probability zero repeat
    the sum before them and are never drawn.
    """
    cumulative = np.cumsum(transition, axis=-1)
    reached = np.flip(np.logical_or.accumulate(np.flip(transition > 0.0, axis=-1), axis=-1), axis=-1)
    certain = np.ones(transition.shape, dtype=np.bool_)
    certain[..., :-1] = ~reached[..., 1:]  # no state of positive probability comes after this one
    return np.where(certain, 1.0, cumulative)


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


def _check_uniforms(uniforms: Floats, episodes: int, horizon: int) -> None:
    if uniforms.shape != (episodes, horizon):
        raise ValueError(f"uniforms: got shape {uniforms.shape}, expected {(episodes, horizon)}")


# ----------------------------------------------------------------------------------------------------- UCRL-VTR-LIN


class LinearPlan(NamedTuple):
    """An optimistic plan (M9, M11) and the rows that it will produce."""

    values: Floats  # [H + 1, S]
    policy: Ints  # [H, S]
    rows: Floats  # [H, S, A, d] x of the row that (s, a) at step h would give
    targets: Floats  # [H, S, A, S] its y, by next state


class LinearResult(TypedDict):
    """What ``ucrl_vtr_lin`` returns."""

    regret: Floats  # [K] V*_1(s_1) - V^{pi_k}_1(s_1)
    plans: int
    planned: Booleans  # [K] whether a plan was made before the episode
    theta: Floats  # [d] the estimate from all rows, those of the last episode included
    sigma: Floats  # [d, d] likewise
    logdet: float  # log det Sigma
    values: Floats  # [H + 1, S] of the last plan
    policy: Ints  # [H, S] of the last plan
    planned_value: Floats  # [K] V^k_1(s_1) of the plan in play
    covered: NotRequired[Booleans]  # [K] theta* is in the ellipsoid of the plan in play


def linear_radius(
    radius: Literal["sharp", "paper", "unweighted", "ayoub"],
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


def linear_plan(
    phi: Floats,
    possible: Booleans,
    reward: Floats,
    horizon: int,
    weights: Weights,
    theta: Floats,
    sigma: Floats,
    sqrt_beta: Floats,
    paper_clip: bool,
) -> LinearPlan:
    """Plan optimistically over the ellipsoid around ``theta`` (M9; M11 with range weights)."""
    states, actions, _, dimension = phi.shape
    inverse = np.linalg.inv(sigma)
    values = np.zeros((horizon + 1, states))
    policy = np.zeros((horizon, states), dtype=np.int64)
    rows = np.zeros((horizon, states, actions, dimension))
    targets = np.zeros((horizon, states, actions, states))
    for h in reversed(range(horizon)):
        target, centre, spread = normalised_target(values[h + 1], possible, weights)
        x = (target[:, :, None, :] @ phi)[:, :, 0, :]
        width = np.sqrt(np.maximum(((x @ inverse) * x).sum(axis=-1), 0.0))
        optimistic = x @ theta + sqrt_beta[h] * width
        if weights == "range":
            optimistic = np.clip(optimistic, -0.5, 0.5)
        action_values = reward + centre + spread * optimistic
        policy[h] = action_values.argmax(axis=1)
        values[h] = np.clip(action_values.max(axis=1), 0.0, horizon if paper_clip else horizon - h)
        rows[h], targets[h] = x, target
    return LinearPlan(values, policy, rows, targets)


def ucrl_vtr_lin(
    phi: Floats,
    reward: Floats,
    transition: Floats,
    horizon: int,
    initial_state: int,
    *,
    episodes: int,
    uniforms: Floats,
    norm_bound: float,
    delta: float,
    lam: float = 1.0,
    radius: Literal["sharp", "paper", "unweighted", "ayoub"] = "sharp",
    weights: Weights = "range",
    replan: float = 0.0,
    scale: float = 1.0,
    paper_clip: bool = False,
    paper_constant: float = 1.0,
    theta_star: Floats | None = None,
) -> LinearResult:
    """Run UCRL-VTR-LIN (M8 to M12, M23) and return its exact regret.

    Parameters
    ----------
    phi, reward, transition : arrays
        ``phi[s, a, s', j]``, ``reward[s, a]`` in [0, 1] (known), ``transition[s, a, s']`` (the truth, for simulation).
    episodes, uniforms : int, array [K, H]
        ``uniforms[k, h]`` in [0, 1) decides the transition at step h of episode k.
    norm_bound, delta, lam : float
        ||theta*|| <= norm_bound, the confidence is 1 - delta, Sigma starts at lam I.
    radius, weights, scale, paper_constant : see ``linear_radius``
        ``scale`` multiplies sqrt(beta); ``paper_constant`` is c in M10.
    replan : float
        0 plans before every episode; otherwise when log det Sigma has grown by log(1 + replan) since the last plan.
    paper_clip : bool
        Clip values at H, as the paper does, instead of at H - h + 1.
    theta_star : array [d], optional
        When given, ``covered`` says whether it lies in the ellipsoid of the plan in play (with a radius that depends
        on the step: in the smallest, so that optimism follows).
    """
    _check_uniforms(uniforms, episodes, horizon)
    dimension = phi.shape[-1]
    possible: Booleans = np.any(phi != 0.0, axis=-1)
    cumulative = cumulative_kernel(transition)
    best = optimal_values(transition, reward, horizon)[0, initial_state]

    sigma = lam * np.eye(dimension)
    moment = np.zeros(dimension)  # sum of y x
    logdet = planned_logdet = dimension * math.log(lam)
    regret, planned_value = np.zeros(episodes), np.zeros(episodes)
    covered, planned = np.zeros(episodes, dtype=np.bool_), np.zeros(episodes, dtype=np.bool_)

    for k in range(episodes):
        if k > 0:
            logdet = float(np.linalg.slogdet(sigma)[1])
        if k == 0 or replan == 0.0 or logdet - planned_logdet >= math.log1p(replan):
            theta = estimate(sigma, moment)
            sqrt_beta = scale * linear_radius(
                radius,
                weights,
                horizon=horizon,
                dimension=dimension,
                norm_bound=norm_bound,
                delta=delta,
                lam=lam,
                logdet=logdet,
                episodes=k,
                paper_constant=paper_constant,
                paper_clip=paper_clip,
            )
            plan = linear_plan(phi, possible, reward, horizon, weights, theta, sigma, sqrt_beta, paper_clip)
            loss = best - policy_value(transition, reward, horizon, plan.policy, initial_state)
            inside = False
            if theta_star is not None:
                error = theta_star - theta
                inside = bool(np.sqrt(error @ sigma @ error) <= sqrt_beta[: max(1, horizon - 1)].min())
            planned_logdet = logdet
            planned[k] = True
        regret[k], planned_value[k], covered[k] = loss, plan.values[0, initial_state], inside

        state = initial_state
        for h in range(horizon - 1):  # the row of the last step has V = 0 and carries nothing
            action = plan.policy[h, state]
            following = np.searchsorted(cumulative[state, action], uniforms[k, h], side="right")
            x, y = plan.rows[h, state, action], plan.targets[h, state, action, following]
            sigma += np.outer(x, x)
            moment += y * x
            state = following

    result = LinearResult(
        regret=regret,
        plans=int(planned.sum()),
        planned=planned,
        theta=estimate(sigma, moment),
        sigma=sigma,
        logdet=float(np.linalg.slogdet(sigma)[1]),
        values=plan.values,
        policy=plan.policy,
        planned_value=planned_value,
    )
    if theta_star is not None:
        result["covered"] = covered
    return result


# --------------------------------------------------------------------------------------------------------- UCRL-VTR


class FiniteResult(TypedDict):
    """What ``ucrl_vtr`` returns."""

    regret: Floats  # [K] V*_1(s_1) - V^{pi_k}_1(s_1)
    plans: int
    planned: Booleans  # [K] whether the confidence set was updated before the episode
    played: Ints  # [K] the member whose optimal policy was played
    planned_value: Floats  # [K] its V*_1(s_1)
    losses: Floats  # [n] L(P) over all rows, those of the last episode included (M1)
    confident: Booleans  # [K, n] the confidence set of the plan in play
    values: Floats  # [H + 1, S] of the last plan
    policy: Ints  # [H, S] of the last plan


def prior_set(losses: Floats, log_prior: Floats, unit: float, log_delta: float) -> Booleans:
    """Return { P : L(P) <= -(U^2/2) log sum_P w(P) exp(-2 L(P)/U^2) + (U^2/2) log(1/delta) } (M22, M24)."""
    if unit == 0.0:  # every value function is flat: rows cannot tell members apart
        return np.ones(losses.shape, dtype=np.bool_)
    exponents = log_prior - 2 * losses / unit**2
    evidence = exponents.max() + np.log(np.exp(exponents - exponents.max()).sum())
    # The minimiser always belongs to the set; rounding could put it outside when delta = 1.
    inside: Booleans = losses <= max(unit**2 / 2 * (log_delta - evidence), losses.min())
    return inside


def distance_ball(predictions: Floats, losses: Floats, beta: float) -> Booleans:
    """Return { P : L(P, Phat) <= beta }, Phat the minimiser of the loss (M2 to M4); ``predictions`` is [rows, n]."""
    estimate = predictions[:, losses.argmin(), None]
    inside: Booleans = ((predictions - estimate) ** 2).sum(axis=0) <= beta
    return inside


def ucrl_vtr(
    kernels: Floats,
    reward: Floats,
    transition: Floats,
    horizon: int,
    initial_state: int,
    *,
    episodes: int,
    uniforms: Floats,
    delta: float,
    radius: Literal["sharp", "paper", "unweighted"] = "sharp",
    weights: Weights = "range",
    replan: float = 0.0,
    scale: float = 1.0,
    log_prior: Floats | None = None,
) -> FiniteResult:
    """Run UCRL-VTR over the finite family ``kernels[n, s, a, s']`` (M1 to M7, M22 to M24) and return its exact regret.

    Every plan takes the confidence set from all rows so far; nothing is dropped for good.

    Parameters
    ----------
    reward, transition, episodes, uniforms : as for ``ucrl_vtr_lin``
    radius : str
        sharp: M24 under ``log_prior`` (uniform when None), with ``scale`` on log(1/delta).
        paper, unweighted: M4 with 8 H^2 log(n/delta) (M6) or 2 U^2 log(n/delta) (M7), times ``scale``.
    weights : str
        range: rows of range 1 (M23), over the next states that some member can reach; 1 takes the place of H and U.
        none: U is the largest range of any member's V*_h, h >= 2 (M7).
    replan : float
        0 plans before every episode; otherwise when the number of episodes in the data has grown by 1 + replan.
    """
    _check_uniforms(uniforms, episodes, horizon)
    members, states = kernels.shape[:2]
    weighted = weights == "range"
    possible: Booleans = np.any(kernels > 0.0, axis=0)
    cumulative = cumulative_kernel(transition)
    best = optimal_values(transition, reward, horizon)[0, initial_state]
    if log_prior is None:
        log_prior = np.full(members, -math.log(members))

    # V*_{P,h} and its greedy policy depend on P alone: solved once, for all members together.
    values = np.zeros((horizon + 1, members, states))
    policies = np.zeros((horizon, members, states), dtype=np.int64)
    for h in reversed(range(horizon)):
        action_values = reward + (kernels @ values[h + 1][:, None, :, None])[..., 0]
        policies[h] = action_values.argmax(axis=-1)
        values[h] = action_values.max(axis=-1)
    unit = 1.0 if weighted else float(np.ptp(values[1:], axis=-1).max())
    if radius == "paper":
        beta = scale * 8 * (1.0 if weighted else horizon) ** 2 * math.log(members / delta)
    elif radius == "unweighted":
        beta = scale * 2 * unit**2 * math.log(members / delta)
    elif radius != "sharp":
        raise ValueError(f"radius: got {radius!r}")

    losses = np.zeros(members)
    # Distances between members need the rows themselves (M2), losses do not.
    predictions = np.zeros((0 if radius == "sharp" else episodes * (horizon - 1), members))
    regret, planned_value = np.zeros(episodes), np.zeros(episodes)
    played = np.zeros(episodes, dtype=np.int64)
    confident = np.zeros((episodes, members), dtype=np.bool_)
    planned = np.zeros(episodes, dtype=np.bool_)
    member, planned_at = -1, 0

    for k in range(episodes):
        if k == 0 or replan == 0.0 or k >= (1 + replan) * planned_at:
            if radius == "sharp":
                inside = prior_set(losses, log_prior, unit, scale * math.log(1.0 / delta))
            else:
                inside = distance_ball(predictions[: k * (horizon - 1)], losses, beta)
            previous, member = member, int(np.where(inside, values[0, :, initial_state], -np.inf).argmax())  # M5
            if member != previous:
                policy = policies[:, member]
                loss = best - policy_value(transition, reward, horizon, policy, initial_state)
                targets = [normalised_target(values[h + 1, member], possible, weights)[0] for h in range(horizon)]
            planned_at = k
            planned[k] = True
        regret[k], planned_value[k], played[k] = loss, values[0, member, initial_state], member
        confident[k] = inside

        state = initial_state
        for h in range(horizon - 1):  # the row of the last step has V = 0 and carries nothing
            action = policy[h, state]
            following = np.searchsorted(cumulative[state, action], uniforms[k, h], side="right")
            target = targets[h][state, action]
            predicted = kernels[:, state, action] @ target  # (P V)(s, a) for every member
            losses += (target[following] - predicted) ** 2
            if radius != "sharp":
                predictions[k * (horizon - 1) + h] = predicted
            state = following

    return FiniteResult(
        regret=regret,
        plans=int(planned.sum()),
        planned=planned,
        played=played,
        planned_value=planned_value,
        losses=losses,
        confident=confident,
        values=values[:, member],
        policy=policies[:, member],
    )
