"""Logs of a known problem, for studies and tests: what somebody would have written down."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats, Ints
from occamrl.errors import ShapeError
from occamrl.logs.episodes import Log
from occamrl.problems.checks import require_integer
from occamrl.problems.finite_mdp import FiniteMDP, as_mdp
from occamrl.seeding import stream


def simulate_log(mdp: FiniteMDP, *, episodes: int, seed: int = 0, policy: ArrayLike | None = None) -> Log:
    """Return a log of episodes of full length.

    Parameters
    ----------
    mdp : FiniteMDP, or a problem that has one
    episodes, seed : int
    policy : array [H, S, A], optional
        Probabilities of actions; uniformly random by default.
    """
    problem = as_mdp(mdp)
    count, horizon, rng = require_integer("episodes", episodes, 1), problem.horizon, stream(seed, "log")
    sizes = (horizon, problem.states, problem.actions)
    chances = np.full(sizes, 1.0 / problem.actions) if policy is None else np.asarray(policy, dtype=np.float64)
    if chances.shape != sizes:
        raise ShapeError("policy", got=chances.shape, expected=f"[H, S, A] = {sizes}")
    truth = problem.truth
    states, taken, outcomes = (np.zeros((count, horizon), dtype=np.int64) for _ in range(3))
    now = _draw(truth.initial_cumulative[0], np.zeros(count, np.int64), np.full(count, problem.states), rng)
    for h in range(horizon):
        states[:, h] = now
        whole = np.cumsum(chances[h], axis=1)
        taken[:, h] = np.minimum((rng.random(count)[:, None] >= whole[now]).sum(axis=1), problem.actions - 1)
        pair = now * problem.actions + taken[:, h]
        cumulative = truth.cumulative[h % truth.cumulative.shape[0]]
        outcomes[:, h] = _draw(cumulative, truth.outcomes.start[pair], truth.outcomes.start[pair + 1], rng)
        now = truth.outcomes.next_state[outcomes[:, h]]
    pairs, happened = (states * problem.actions + taken).ravel(), outcomes.ravel()
    last = np.zeros((count, horizon), dtype=bool)
    last[:, -1] = True
    return Log(
        state=states.ravel(),
        action=taken.ravel(),
        reward=truth.base_reward[pairs] + truth.outcomes.bonus[happened],
        next_state=truth.outcomes.next_state[happened],
        terminated=np.zeros(count * horizon, dtype=bool),
        truncated=last.ravel(),
        begin=np.arange(count + 1) * horizon,
        source=f"simulated, seed {seed}",
    )


def _draw(cumulative: Floats, first: Ints, last: Ints, rng: np.random.Generator) -> Ints:
    """Return, for each range of running sums, the first index whose sum a uniform number is below."""
    u, at = rng.random(first.size), first.copy()
    for _ in range(int((last - first).max())):
        at = np.where((at < last - 1) & (u >= cumulative[np.minimum(at, cumulative.size - 1)]), at + 1, at)
    return at
