r"""Posterior sampling of linear kernels by value-targeted regression, in plain NumPy.

P(o | s, a) = <phi(s, a, o), theta>. At step h of an episode W(o) = bonus(o) + V_{h+1}(next state of o) is regressed on
range-weighted rows (M23): with c the middle and R the length of the range of W over the outcomes of (s, a),
x = phi_{W - c}(s, a)/R and y = (W - c)/R. Before every episode

.. math:: \theta \sim N\big(\Sigma^{-1} \textstyle\sum y x,\; width^2 \Sigma^{-1}\big), \quad
    \Sigma = \lambda I + \textstyle\sum x x^T,

and the optimal policy for theta is played, the mean of W at every (s, a) being cut to the range of W.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_kind, require_numbers
from occamrl.models.features import FeatureMap
from occamrl.protocols import Episode, EpisodeLearner, Field, Floats, Ints, Known, Outcomes, require_parts

LARGEST_SUM = 1e100  # squares of larger numbers overflow


def transitions(outcomes: Outcomes, known: Known, episode: Episode) -> Iterator[tuple[int, int, int, int]]:
    """Yield (h, first, last, o) for the steps of an episode: the outcomes of (s, a), and the one that came.

    Of several with one next state it is the one whose reward is nearest; what the features do not list is left out.
    """
    start, after, bonus = outcomes
    pair = episode.states[:-1] * known.actions + episode.actions
    steps = zip(start[pair].tolist(), start[pair + 1].tolist(), episode.states[1:].tolist(), strict=True)
    for h, (first, last, s2) in enumerate(steps):
        fits = first + (after[first:last] == s2).nonzero()[0]
        if fits.size > 1:
            fits = fits[[np.abs(bonus[fits] - (episode.rewards[h] - known.base_reward.flat[pair[h]])).argmin()]]
        if fits.size:
            yield h, first, last, int(fits[0])


def best_actions(q: Floats, draw: np.random.Generator) -> Ints:
    """Return a best action for every state, given Q [S, A]; among several, each is as likely as another."""
    ties = q == q.max(axis=1, keepdims=True)
    return np.asarray((draw.random(q.shape) * ties).argmax(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearRival:
    """What learners in plain NumPy have whose kernels are linear in given features; rewards are known.

    A state is a dict of the arrays ``fields`` and of the counts and flags ``plain``, each at first the least it may be.
    """

    features: FeatureMap

    def __post_init__(self) -> None:
        require_kind("features", self.features, FeatureMap)

    @cached_property
    def phi(self) -> Floats:
        """The features [O, d]."""
        return np.asarray(self.features.matrix.toarray())

    def outcomes(self, known: Known) -> Outcomes:
        """Return the outcomes of the features, with the known rewards of a problem."""
        if not known.rewards_known:
            raise ParameterError("rewards", got="unknown rewards", expected="known ones; see UCRLVTRLin for others")
        return self.features.attach(known).outcomes

    @abstractmethod
    def fields(self, known: Known) -> Sequence[Field]:
        """Return what the arrays of a state hold."""

    @property
    def plain(self) -> dict[str, Any]:
        """What the counts and flags of a state may be."""
        return {}

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data."""
        self.outcomes(known)  # checks that rewards are known
        arrays = {each.name: each.make() for each in self.fields(known)}
        return arrays | {name: min(part) for name, part in self.plain.items()}

    def resume(self, known: Known, state: Any) -> None:
        """Refuse a state from a file that this learner cannot have."""
        require_parts("state", state, {each.name: each for each in self.fields(known)} | self.plain)


def values_field(known: Known) -> Field:
    """Return the field of the values of a plan [H + 1, S]; rounding is forgiven."""
    return Field("values", (known.horizon + 1, known.states), -1.0, known.horizon + 1.0)


def require_precision(name: str, matrices: Floats, least: float) -> None:
    """Refuse matrices [..., d, d] that are not lambda I + sum x x^T, ``least`` being lambda; rounding is forgiven."""
    lost = 1e-7 * np.abs(matrices).max(axis=(-2, -1))
    uneven = np.abs(matrices - np.swapaxes(matrices, -2, -1)).max(axis=(-2, -1)) > lost
    large = np.linalg.eigvalsh(matrices)[..., 0] >= least - np.minimum(lost, 0.5 * least)
    if uneven.any() or not large.all():
        expected = f"a symmetric one with eigenvalues of at least {least:g}"
        raise ParameterError(f"state.{name}", got="another matrix", expected=expected)


@dataclass(frozen=True, kw_only=True, eq=False)
class LinPSRL(LinearRival, EpisodeLearner):
    """Posterior sampling for linear kernels; see the module for its formulas. There is no guarantee.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.LinPSRL(features=orl.FeatureMap(problem.phi))
    >>> result = orl.run(agent, problem, episodes=20)

    It is posterior sampling (Osband, Russo and Van Roy 2013) with the ridge estimate of UCRL-VTR-LIN and a Gaussian in
    place of its ellipsoid, as Agrawal and Goyal (2013) have it for linear bandits; no paper states it in this form.

    Parameters
    ----------
    features : FeatureMap
    width : float
        Standard deviation of the noise of a row. Targets of range one have at most 1/2.
    regularization : float
        lambda.

    Notes
    -----
    State: ``precision`` Sigma [d, d]; ``xy``, the sum of y x [d]; ``values``, V of the plan in play [H + 1, S]. A plan
    takes O(d^3 + H O) operations for O outcomes, an episode's rows O(H d^2).
    """

    guarantee = "none"
    given = ()

    width: float = 0.5
    regularization: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, 0.0, math.inf, "width")
        require_numbers(self, 0.0, math.inf, "regularization", open_low=True)

    def fields(self, known: Known) -> list[Field]:
        """Return what the arrays of a state hold."""
        d = self.features.dimension
        return [
            Field("precision", (d, d), -LARGEST_SUM, LARGEST_SUM, self.regularization * np.eye(d)),
            Field("xy", (d,), -LARGEST_SUM, LARGEST_SUM),
            values_field(known),
        ]

    def resume(self, known: Known, state: Any) -> None:
        """Refuse a state from a file that this learner cannot have."""
        super().resume(known, state)
        require_precision("precision", state["precision"], self.regularization)

    def plan(self, known: Known, state: dict[str, Any], start: int, draw: np.random.Generator) -> tuple[Ints, float]:
        """Draw theta; return its optimal policy and value."""
        root = np.linalg.inv(np.linalg.cholesky(state["precision"])).T  # root root^T = Sigma^-1
        theta = root @ (root.T @ state["xy"] + self.width * draw.standard_normal(len(root)))
        p, values, policy = self.phi @ theta, state["values"], np.zeros((known.horizon, known.states), dtype=np.int64)
        start_of, after, bonus = self.outcomes(known)
        begins, count = start_of[:-1], np.diff(start_of)
        for h in reversed(range(known.horizon)):
            w = bonus + values[h + 1][after]
            low, high = np.minimum.reduceat(w, begins), np.maximum.reduceat(w, begins)
            middle = 0.5 * (low + high)
            mean = middle + np.add.reduceat(p * (w - np.repeat(middle, count)), begins)
            q = known.base_reward + np.clip(mean, low, high).reshape(known.base_reward.shape)
            policy[h], values[h] = best_actions(q, draw), q.max(axis=1)
        return policy, float(values[0, start])

    def learn(self, known: Known, state: dict[str, Any], episode: Episode) -> None:
        """Enter the rows of the episode (M8, M23)."""
        outcomes, values = self.outcomes(known), state["values"]
        rows, targets = [], []
        for h, first, last, o in transitions(outcomes, known, episode):
            w = outcomes.bonus[first:last] + values[h + 1][outcomes.next_state[first:last]]
            low, high = w.min(), w.max()
            if high > low:
                w = (w - 0.5 * (low + high)) / (high - low)
                rows.append(w @ self.phi[first:last])
                targets.append(w[o - first])
        if rows:
            x = np.array(rows)
            state["precision"] += x.T @ x
            state["xy"] += targets @ x

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[EpisodeLearner]:
        """Small instances on a problem, for the contract checks."""
        return [cls(features=FeatureMap.tabular(states=mdp.states, actions=mdp.actions))]
