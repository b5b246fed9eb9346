"""A finite episodic MDP that is known exactly: validated, solved and evaluated without sampling.

Notation (M20 and section "Setting"): S states, A actions, H steps; values lie in [0, H - h + 1] and V_{H+1} = 0. Arrays
count steps from 0, so ``optimal_values[0]`` is V*_1 and ``optimal_values[H]`` is V*_{H+1}.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from functools import cached_property
from typing import NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from occamrl.contracts import Floats, Ints, Known, NoNoise, Truth
from occamrl.errors import HorizonError, ParameterError
from occamrl.kernels import bellman
from occamrl.problems import listing as outcome_list
from occamrl.problems.checks import require_integer
from occamrl.problems.distributions import initial_distribution, mixed_policy
from occamrl.problems.listing import Listing, read_only
from occamrl.problems.noise import BernoulliRewards, BetaRewards, RewardNoise
from occamrl.problems.reading import Sparse, read_kernel, with_rewards
from occamrl.problems.tables import Table, read_table

LARGEST_DENSE = 2**28  # entries of a kernel that will be written out: 2 GiB


class FiniteMDP:
    """A finite-horizon MDP with known kernel and rewards in [0, 1]. Immutable; input arrays are copied.

    State it by ``transition`` and ``reward``, or by ``outcomes``.

    Parameters
    ----------
    transition
        P[s, a, s'] or, one per step, P[h, s, a, s']; or a scipy.sparse matrix of shape (S*A, S), row s*A + a, or a
        sequence of H such matrices. Sparse kernels stay sparse.
    reward
        r[s, a]; or, on transitions, r[s, a, s'], dense or as a scipy.sparse matrix (S*A, S) whose unstored entries
        are 0.
    outcomes
        A table as Gymnasium's ``env.unwrapped.P``: ``outcomes[s][a]`` lists tuples (probability, next_state, reward)
        or (probability, next_state, reward, terminated). Flags are honoured; see :meth:`from_outcomes`.
    horizon
        H, the number of steps of an episode.
    initial_state
        A state, or a distribution over states [S].
    absorbing
        States to be made absorbing: under every action they stay, with reward 0, whatever the arrays say there.
    reward_noise
        How rewards scatter around the means that ``reward`` states: ``BernoulliRewards()`` or ``BetaRewards()``. Values
        and regret are those of the means, and an agent that knows the rewards knows the means.

    Examples
    --------
    >>> P = [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]]
    >>> mdp = FiniteMDP(transition=P, reward=[[0.1, 0.0], [1.0, 1.0]], horizon=3)
    >>> round(mdp.optimal_value, 6)
    1.275
    """

    states: int
    actions: int
    horizon: int
    initial_distribution: Floats
    reward_noise: RewardNoise | None
    _listing: Listing

    def __init__(
        self,
        *,
        transition: ArrayLike | Sparse | Sequence[Sparse] | None = None,
        reward: ArrayLike | Sparse | None = None,
        outcomes: Table | None = None,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        absorbing: Sequence[int] | Ints = (),
        reward_noise: RewardNoise | None = None,
    ) -> None:
        _require_noise(reward_noise)
        horizon = require_integer("horizon", horizon, 1, HorizonError)
        if outcomes is not None:
            if transition is not None or reward is not None:
                raise ParameterError("outcomes", got="transition or reward as well", expected="outcomes alone")
            states, actions, listed, listing = read_table(outcomes, end_episodes=True, reward_range=None)
            fields, reward_of_pair = ("outcomes", "outcomes"), False
        else:
            if transition is None or reward is None:
                name = "transition" if transition is None else "reward"
                raise ParameterError(name, got=None, expected="transition and reward, or outcomes")
            kernel = read_kernel(transition, horizon)
            listing, reward_of_pair = with_rewards(kernel, reward)
            states, actions, listed = kernel.states, kernel.actions, kernel.states
            fields = ("transition", "reward")
        for s in absorbing:
            if require_integer("absorbing", s, 0) >= listed:
                raise ParameterError("absorbing", got=s, expected=f"states in 0..{listed - 1}")
        listing = outcome_list.absorb(listing, np.array(absorbing, np.int64), states, actions)
        outcome_list.validate(listing, states, actions, fields, reward_of_pair)
        initial = initial_distribution(initial_state, listed, states)
        self._set(states, actions, horizon, initial, listing, reward_noise)

    @classmethod
    def from_outcomes(
        cls,
        table: Table,
        *,
        horizon: int,
        initial_state: int | ArrayLike = 0,
        absorb: bool = True,
        reward_range: tuple[float, float] | None = None,
    ) -> Self:
        """Build an MDP from a table of outcomes, as Gymnasium's ``env.unwrapped.P``.

        Parameters
        ----------
        table, horizon, initial_state
            As in the class.
        absorb
            An outcome flagged ``terminated`` leads to a state where every action stays and earns 0. One such state,
            the last, is added if the table's own target is not of that kind. False ignores the flags.
        reward_range
            (low, high) if rewards are not in [0, 1]: each r, and the 0 earned after the end of an episode, becomes
            (r - low) / (high - low). CliffWalking needs (-100, 0).
        """
        horizon = require_integer("horizon", horizon, 1, HorizonError)
        states, actions, listed, listing = read_table(table, end_episodes=absorb, reward_range=reward_range)
        outcome_list.validate(listing, states, actions, ("outcomes", "outcomes"), reward_of_pair=False)
        mdp = cls.__new__(cls)
        mdp._set(states, actions, horizon, initial_distribution(initial_state, listed, states), listing)
        return mdp

    def with_reward_noise(self, reward_noise: RewardNoise | None) -> FiniteMDP:
        """Return the same problem with rewards that scatter around their means; without noise for None."""
        _require_noise(reward_noise)
        mdp = FiniteMDP.__new__(FiniteMDP)
        parts = self.states, self.actions, self.horizon, self.initial_distribution, self._listing
        mdp._set(*parts, reward_noise)
        return mdp

    def _set(
        self,
        states: int,
        actions: int,
        horizon: int,
        initial: Floats,
        listing: Listing,
        reward_noise: RewardNoise | None = None,
    ) -> None:
        fields = ("states", "actions", "horizon", "initial_distribution", "_listing", "reward_noise")
        parts = (states, actions, horizon, read_only(initial), outcome_list.freeze(listing), reward_noise)
        self.__dict__.update(zip(fields, parts, strict=True))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"FiniteMDP cannot be changed (attribute {name!r})")

    def __getstate__(self) -> tuple[int, int, int, Floats, Listing, RewardNoise | None]:
        return self.states, self.actions, self.horizon, self.initial_distribution, self._listing, self.reward_noise

    def __setstate__(self, state: tuple[int, int, int, Floats, Listing, RewardNoise | None]) -> None:
        self._set(*state)  # arrays come back writeable from a pickle; compiled code tells the two apart

    def __repr__(self) -> str:
        count = outcome_list.possible(self._listing).reward.size
        start = np.flatnonzero(self.initial_distribution)
        return (
            f"FiniteMDP(states={self.states}, actions={self.actions}, horizon={self.horizon}, "
            f"{'one kernel' if self.stationary else 'a kernel per step'} with {count} outcomes, "
            f"rewards {'r[s, a]' if self.known.transition_rewards is None else 'on transitions'}"
            f"{'' if self.reward_noise is None else f' with {self.reward_noise!r}'}, "
            f"initial_state={start[0] if start.size == 1 else f'a distribution over {start.size} states'})"
        )

    @property
    def stationary(self) -> bool:
        """Whether one kernel serves all steps."""
        return bool(self._listing.probability.shape[0] == 1)

    @cached_property
    def _base_reward(self) -> Floats:
        return read_only(outcome_list.base_rewards(self._listing, self.states * self.actions))

    @cached_property
    def truth(self) -> Truth:
        """The problem as the simulator needs it, solved."""
        happens, base_reward = outcome_list.possible(self._listing), self._base_reward
        outcomes = outcome_list.layout(happens, base_reward)
        probability = read_only(happens.probability)
        one_row = np.array([0, self.states], np.int64)
        initial = outcome_list.running_sums(one_row, self.initial_distribution[np.newaxis])
        values = bellman.optimal_values(outcomes, probability, base_reward, self.states, self.horizon)
        return Truth(
            outcomes=outcomes,
            probability=probability,
            cumulative=read_only(outcome_list.running_sums(outcomes.start, probability)),
            base_reward=base_reward,
            initial_cumulative=read_only(initial),
            optimal_values=read_only(values),
            noise=NoNoise() if self.reward_noise is None else self.reward_noise.compiled(happens.reward),
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the problem's arrays: equal for equal problems, in any process."""
        digest = hashlib.sha256(f"{self.states} {self.actions} {self.horizon}".encode())
        truth = self.truth
        for array in (*truth.outcomes, truth.probability, truth.base_reward, truth.initial_cumulative):
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.reward_noise is not None:
            digest.update(repr(self.reward_noise).encode())
        return digest.hexdigest()

    @cached_property
    def known(self) -> Known:
        """What an agent may know: sizes and rewards. Rewards that no outcome changes count as r[s, a]."""
        rewards = outcome_list.layout(self._listing, self._base_reward)
        return Known(
            states=self.states,
            actions=self.actions,
            horizon=self.horizon,
            base_reward=self._base_reward.reshape(self.states, self.actions),
            transition_rewards=rewards if rewards.bonus.any() else None,
        )

    @property
    def optimal_values(self) -> Floats:
        """V* [H + 1, S]."""
        return self.truth.optimal_values

    @property
    def optimal_value(self) -> float:
        """The expectation of V*_1 under the initial distribution."""
        return float(self.initial_distribution @ self.optimal_values[0])

    @cached_property
    def optimal_policy(self) -> Ints:
        """An optimal policy [H, S]; ties go to the smallest action."""
        truth = self.truth
        return read_only(
            bellman.optimal_policy(truth.outcomes, truth.probability, truth.base_reward, truth.optimal_values)
        )

    def evaluate(self, policy: ArrayLike) -> Floats:
        """Return V^pi [H + 1, S], exactly.

        Parameters
        ----------
        policy
            Actions [H, S] (integers), or probabilities of actions [H, S, A].
        """
        mixed = mixed_policy(policy, self.horizon, self.states, self.actions)
        truth = self.truth
        return bellman.all_policy_values(truth.outcomes, truth.probability, truth.base_reward, mixed)

    def kernel(self) -> Floats:
        """Return the dense kernel P[s, a, s'], or P[h, s, a, s'] if there is one per step; for small problems."""
        listing = self._listing
        steps, cells = listing.probability.shape[0], self.states * self.actions * self.states
        if steps * cells > LARGEST_DENSE:
            raise ParameterError("states", got=self.states, expected="a problem small enough for a dense kernel")
        cell = listing.pair * self.states + listing.next_state
        dense = np.zeros((steps, cells))
        for t in range(steps):
            np.add.at(dense[t], cell, listing.probability[t])
        sizes = (self.states, self.actions, self.states)
        return dense.reshape(sizes if self.stationary else (steps, *sizes))


def _require_noise(reward_noise: object) -> None:
    if not (reward_noise is None or isinstance(reward_noise, (BernoulliRewards, BetaRewards))):
        raise ParameterError("reward_noise", got=repr(reward_noise), expected="BernoulliRewards or BetaRewards")


def as_mdp(problem: object) -> FiniteMDP:
    """Return a FiniteMDP, or that of a problem which has one."""
    found = problem if isinstance(problem, FiniteMDP) else getattr(problem, "mdp", None)
    if not isinstance(found, FiniteMDP):
        raise ParameterError("mdp", got=type(problem).__name__, expected="a FiniteMDP, or a problem that has one")
    return found
