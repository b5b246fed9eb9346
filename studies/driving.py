"""Agents that are told what happened: false alarms and delays, actions of others, warm starts.

``python -m studies.driving`` prints the figures of docs/driving.md; some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import binomtest

import occamrl as orl

H, BEFORE, AFTER = 10, 1_000, 1_000  # steps of an episode, before a change and after it


def shop(
    stock: int, order: int, *, rate: float, rush: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    """Yield what may happen on a day."""
    chance, filled = rate + rush * (stock > 2), min(stock + order, 4)
    yield 1 - chance, filled, -0.1 * stock, False
    yield chance, max(filled - 1, 0), 1.0 * (filled > 0) - 0.1 * stock, False


BOUNDS = {"rate": (0.1, 0.6), "rush": (0.0, 0.3)}
MODEL = orl.Model(shop, start=2, actions=[0, 1], horizon=H, parameters=BOUNDS)
LADDER = MODEL.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})


def day(draw: Any, stock: int, order: int, rate: float, rush: float = 0.0) -> tuple[float, int]:
    """Let a day pass: reward and next stock."""
    (_, after, reward, _), other = shop(stock, order, rate=rate, rush=rush)
    if draw.random() < rate + rush * (stock > 2):
        _, after, reward, _ = other
    return reward, after


def until_alarm(seed: int, alpha: float, rate: float, change: int, steps: int) -> float:
    """Return how many steps after a change (or after the beginning) an alarm came; infinite: none."""
    agent = orl.Agent(orl.Occam(ladder=LADDER, acting="fit", replan=1.0), alarm=alpha, seed=seed)
    draw, stock = np.random.default_rng(seed), 2
    for t in range(steps):
        stock = 2 if t % H == 0 else stock
        order = int(draw.integers(2)) if draw.random() < 0.3 else agent.act(stock)
        reward, after = day(draw, stock, order, 0.37 if t < change else rate)
        agent.observe(stock, order, reward, after)
        stock = after
        if agent.alarm is not None:
            if t >= change:
                return t + 1 - change
            agent.dismiss()
    return float("inf")


def alarms(runs: int) -> None:
    """Print false alarms without a change, and delays after changes of three sizes."""
    for alpha, steps in ((1e-2, 1_000), (1e-3, 1_000), (1e-4, 600)):
        found = np.array([until_alarm(seed, alpha, 0.37, 0, steps) for seed in range(runs)])
        early = int((found <= 100 + 0.5 / alpha).sum())  # the first 100 steps are not watched
        bound = min(0.5, alpha * max(0.0, min(steps - 100, 0.5 / alpha)))
        value = binomtest(early, runs, bound, alternative="greater").pvalue
        mean = np.minimum(found, steps).mean()
        print(
            f"alarm={alpha:g}: {np.isfinite(found).sum()} of {runs} within {steps} steps, mean time >= {mean:.0f}"
        )
        print(
            f"  early ones {early}, at most {bound * runs:.0f} expected: p = {value:.2g}",
            flush=True,
        )
    for rate in (0.2, 0.5, 0.3):
        found = np.array(
            [until_alarm(seed, 1e-3, rate, BEFORE, BEFORE + AFTER) for seed in range(runs // 2)]
        )
        share = f"{np.isfinite(found).sum()} of {found.size}"
        print(
            f"rate .37 -> {rate}: median delay {np.median(found):.0f}, alarms {share}", flush=True
        )


def foreign(runs: int) -> None:
    """Print how often the truth is ruled out when half of the actions are somebody else's; and when they are denied."""
    lost = [0, 0]
    for seed in range(runs):
        draw, stock = np.random.default_rng(seed), 2
        agents = [
            orl.Agent(orl.Occam(ladder=LADDER, acting="fit", replan=1.0), seed=seed)
            for _ in range(2)
        ]
        for t in range(300):
            stock = 2 if t % H == 0 else stock
            planned = order = agents[0].act(stock)
            if draw.random() < 0.5:
                order = int(draw.integers(2))
            reward, after = day(draw, stock, order, 0.3, 0.2)
            agents[0].observe(stock, order, reward, after)
            agents[1].begin_episode()
            agents[1].observe(stock, planned, None, after)
            stock = after
        for i, agent in enumerate(agents):
            found = agent.algorithm.evidence(agent.known)
            state = agent.result.state
            data, truth = found.counts_of(state), np.array([(0.3 - 0.1) / 0.5, 0.2 / 0.3])
            lost[i] += found.log_likelihood(data, truth) < found.least(state)
    value = binomtest(lost[0], runs, 0.05, alternative="greater").pvalue
    print(
        f"truth ruled out: {lost[0]} of {runs} (delta = 0.05, p = {value:.2g}); entered under the plan's: {lost[1]}"
    )


def warm(seeds: int) -> None:
    """Print the regret of 100 episodes after a log of 100 episodes, and without one."""
    truth = MODEL.mdp(rate=0.3, rush=0.25)
    law: Any = truth.known.initial
    best, scale = float(law @ truth.optimal_values[0]), truth.known.unit.scale
    lost: dict[str, list[float]] = {"cold": [], "warm": []}
    for seed in range(seeds):
        draw, rows, stock = np.random.default_rng(seed), [], 2
        for t in range(100 * H):
            stock = 2 if t % H == 0 else stock
            order = int(draw.integers(2))
            reward, after = day(draw, stock, order, 0.3, 0.25)
            rows.append(
                {
                    "episode": t // H,
                    "state": stock,
                    "action": order,
                    "reward": reward,
                    "next_state": after,
                }
            )
            stock = after
        for name in lost:
            agent, total = orl.Agent(orl.Occam(ladder=LADDER), seed=seed), 0.0
            if name == "warm":
                agent.learn_from(orl.read_log(rows))
            for _ in range(100):
                total += best - float(law @ truth.evaluate(agent.policy())[0])
                stock = 2
                for _ in range(H):
                    order = agent.act(stock)
                    reward, after = day(draw, stock, order, 0.3, 0.25)
                    agent.observe(stock, order, reward, after)
                    stock = after
            lost[name].append(scale * total)
    for name, each in lost.items():
        print(
            f"{name}: regret {np.mean(each):.2f} +- {np.std(each) / len(each) ** 0.5:.2f} euro, 100 episodes",
            flush=True,
        )


if __name__ == "__main__":
    few = len(sys.argv) > 1  # a first look
    warm(2 if few else 10)
    foreign(10 if few else 400)
    alarms(6 if few else 200)
