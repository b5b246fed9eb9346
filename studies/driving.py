"""Agents that are told what happened: false alarms and delays, actions of others, warm starts.

``python -m studies.driving`` prints the figures of docs/driving.md; some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from scipy.stats import binomtest

import occamrl as orl
from occamrl.evidence.parametric import ParametricEvidence

H = 10  # steps of an episode
BEFORE = 1_000  # steps before a change
AFTER = 1_000

Rng = np.random.Generator


def shop(
    stock: int, order: int, *, rate: float, rush: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    """Yield what may happen on a day."""
    chance = rate + rush * (stock > 2)
    filled = min(stock + order, 4)
    yield 1 - chance, filled, -0.1 * stock, False
    yield chance, max(filled - 1, 0), 1.0 * (filled > 0) - 0.1 * stock, False


BOUNDS = {"rate": (0.1, 0.6), "rush": (0.0, 0.3)}
MODEL = orl.Model(shop, start=2, actions=[0, 1], horizon=H, parameters=BOUNDS)
LADDER = MODEL.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})


def day(draw: Rng, stock: int, order: int, rate: float, rush: float = 0.0) -> tuple[float, int]:
    """Let a day pass: reward and next stock."""
    outcomes = list(shop(stock, order, rate=rate, rush=rush))
    customer_came = draw.random() < rate + rush * (stock > 2)
    _, following, reward, _ = outcomes[int(customer_came)]
    return reward, following


def agent_of(seed: int, alarm: float | None = None) -> orl.Agent:
    """Return an agent that plays the best fit."""
    algorithm = orl.Occam(ladder=LADDER, acting="fit", replan=1.0)
    return orl.Agent(algorithm, alarm=alarm, seed=seed)


def until_alarm(seed: int, alpha: float, rate: float, change: int, steps: int) -> float:
    """Return how many steps after a change an alarm came; infinite: none.

    A change at step 0 is none: the rate is another one from the beginning.
    """
    agent = agent_of(seed, alpha)
    draw = np.random.default_rng(seed)
    stock = 2
    for step in range(steps):
        if step % H == 0:
            stock = 2
        order = int(draw.integers(2)) if draw.random() < 0.3 else agent.act(stock)
        reward, following = day(draw, stock, order, 0.37 if step < change else rate)
        agent.observe(stock, order, reward, following)
        stock = following
        if agent.alarm is not None:
            if step >= change:
                return step + 1 - change
            agent.dismiss()
    return float("inf")


def alarms(runs: int) -> None:
    """Print false alarms without a change, and delays after changes of three sizes."""
    for alpha, steps in ((1e-2, 1_000), (1e-3, 1_000), (1e-4, 600)):
        times = np.array([until_alarm(seed, alpha, 0.37, 0, steps) for seed in range(runs)])
        early = int((times <= 100 + 0.5 / alpha).sum())  # the first 100 steps are not watched
        bound = min(0.5, alpha * max(0.0, min(steps - 100, 0.5 / alpha)))
        p = binomtest(early, runs, bound, alternative="greater").pvalue
        raised = f"{np.isfinite(times).sum()} of {runs} within {steps} steps"
        print(f"alarm={alpha:g}: {raised}, mean time >= {np.minimum(times, steps).mean():.0f}")
        expected = f"at most {bound * runs:.0f} expected: p = {p:.2g}"
        print(f"  early ones {early}, {expected}", flush=True)
    for rate in (0.2, 0.5, 0.3):
        delays = []
        for seed in range(runs // 2):
            delays.append(until_alarm(seed, 1e-3, rate, BEFORE, BEFORE + AFTER))
        share = f"{np.isfinite(delays).sum()} of {len(delays)}"
        median = f"median delay {np.median(delays):.0f}"
        print(f"rate .37 -> {rate}: {median}, alarms {share}", flush=True)


def truth_is_ruled_out(agent: orl.Agent) -> bool:
    """Say whether the true parameters are outside the region of what is possible."""
    evidence = ParametricEvidence(LADDER, agent.result.finite, agent.algorithm.delta)
    state = agent.result.state["evidence"]
    truth = np.array([(0.3 - 0.1) / 0.5, 0.2 / 0.3])  # in shares of the box
    likelihood = evidence.log_likelihood(evidence.counts_of(state), truth)
    return bool(likelihood < evidence.least(state))


def foreign(runs: int) -> None:
    """Print how often the truth is ruled out when half of the actions are somebody else's.

    And how often when these are entered as if they were the agent's own.
    """
    lost = 0
    lost_denying = 0
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        stock = 2
        agent = agent_of(seed)
        denying = agent_of(seed)
        for step in range(300):
            if step % H == 0:
                stock = 2
            planned = agent.act(stock)
            order = planned
            if draw.random() < 0.5:
                order = int(draw.integers(2))
            reward, following = day(draw, stock, order, 0.3, 0.2)
            agent.observe(stock, order, reward, following)
            denying.begin_episode()
            denying.observe(stock, planned, None, following)
            stock = following
        lost += truth_is_ruled_out(agent)
        lost_denying += truth_is_ruled_out(denying)
    p = binomtest(lost, runs, 0.05, alternative="greater").pvalue
    print(f"truth ruled out: {lost} of {runs} (delta = 0.05, p = {p:.2g})")
    print(f"  entered under the plan's: {lost_denying}")


def logged_days(draw: Rng) -> list[dict[str, float]]:
    """Return a log of 100 episodes of random orders."""
    rows = []
    stock = 2
    for step in range(100 * H):
        if step % H == 0:
            stock = 2
        order = int(draw.integers(2))
        reward, following = day(draw, stock, order, 0.3, 0.25)
        rows.append(
            {
                "episode": step // H,
                "state": stock,
                "action": order,
                "reward": reward,
                "next_state": following,
            }
        )
        stock = following
    return rows


def regret_of(agent: orl.Agent, draw: Rng) -> float:
    """Return the regret of 100 episodes that an agent plays in the shop."""
    truth = MODEL.mdp(rate=0.3, rush=0.25)
    start = truth.initial_distribution
    total = 0.0
    for _ in range(100):
        lost = truth.optimal_values[0] - truth.evaluate(agent.policy())[0]
        total += float(start @ lost)
        stock = 2
        for _ in range(H):
            order = agent.act(stock)
            reward, following = day(draw, stock, order, 0.3, 0.25)
            agent.observe(stock, order, reward, following)
            stock = following
    return truth.known.unit.scale * total


def warm(seeds: int) -> None:
    """Print the regret of 100 episodes after a log of 100 episodes, and without one."""
    cold_regrets = []
    warm_regrets = []
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        rows = logged_days(draw)
        cold_regrets.append(regret_of(orl.Agent(orl.Occam(ladder=LADDER), seed=seed), draw))
        agent = orl.Agent(orl.Occam(ladder=LADDER), seed=seed).learn_from(orl.read_log(rows))
        warm_regrets.append(regret_of(agent, draw))
    for name, regrets in (("cold", cold_regrets), ("warm", warm_regrets)):
        error = np.std(regrets) / len(regrets) ** 0.5
        print(
            f"{name}: regret {np.mean(regrets):.2f} +- {error:.2f} euro, 100 episodes", flush=True
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:  # a first look
        warm(2)
        foreign(10)
        alarms(6)
    else:
        warm(10)
        foreign(400)
        alarms(200)
