"""Feature maps as algebra: P_theta = <phi, theta>, its restriction, and the bonus of every outcome."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from occamrl.models.features import FeatureMap, pair_of_outcome
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Floats

S, A, D = 3, 2, 3


@st.composite
def kernels(draw: st.DrawFn) -> Floats:
    """Return d kernels [d, S, A, S], many entries of which are zero."""
    weights = draw(arrays(np.int64, (D, S, A, S), elements=st.integers(0, 3))).astype(np.float64)
    weights[..., draw(st.integers(0, S - 1))] += 1.0
    stack: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return stack


theta = arrays(np.float64, D, elements=st.floats(-2, 2))


def sparse(stack: Floats) -> FeatureMap:
    return FeatureMap([sp.csr_array(kernel.reshape(S * A, S)) for kernel in stack])


@settings(max_examples=40)
@given(stack=kernels(), theta=theta)
def test_every_layout_is_the_same_linear_map(stack: Floats, theta: Floats) -> None:
    expected = np.tensordot(theta, stack, axes=1)
    mixed = FeatureMap([stack[0], sp.coo_array(stack[1].reshape(S * A, S)), stack[2]])
    for features in (FeatureMap(np.moveaxis(stack, 0, -1)), FeatureMap(list(stack)), sparse(stack), mixed):
        assert (features.states, features.actions, features.dimension) == (S, A, D)
        np.testing.assert_allclose(features.kernel(theta), expected, rtol=0, atol=1e-14)
    one_hot = FeatureMap.tabular(states=S, actions=A)
    np.testing.assert_array_equal(one_hot.kernel(expected.ravel()), expected)
    support = expected != 0.0
    if support.any(axis=-1).all():
        limited = FeatureMap.tabular(states=S, actions=A, support=support)
        np.testing.assert_array_equal(limited.kernel(expected[support]), expected)


@settings(max_examples=40)
@given(stack=kernels(), order=st.permutations(range(D)), size=st.integers(1, D))
def test_restricting_takes_coordinates_in_the_order_given(stack: Floats, order: list[int], size: int) -> None:
    chosen = list(order[:size])
    part = np.random.default_rng(0).random(size)
    expected = np.tensordot(part, stack[chosen], axes=1)
    for features in (FeatureMap(list(stack)), sparse(stack)):
        restricted = features.restrict(chosen)
        assert restricted.dimension == size
        np.testing.assert_allclose(restricted.kernel(part), expected, rtol=0, atol=1e-14)
        # The outcomes stay those of the whole map: the range of a target (M23) does not depend on what is selected.
        np.testing.assert_array_equal(restricted.layout.outcomes.next_state, features.layout.outcomes.next_state)


@settings(max_examples=30)
@given(stack=kernels(), data=st.data())
def test_bonuses_are_the_rewards_of_the_problem(stack: Floats, data: st.DataObject) -> None:
    eighths = data.draw(arrays(np.int64, (S, A, S), elements=st.integers(0, 8)))
    reward = eighths / 8.0
    mdp = FiniteMDP(transition=stack[0], reward=reward, horizon=2)
    for features in (FeatureMap(list(stack)), sparse(stack), FeatureMap.tabular(states=S, actions=A)):
        outcomes = features.attach(mdp.known).outcomes
        pair = pair_of_outcome(outcomes)
        whole = mdp.known.base_reward.ravel()[pair] + outcomes.bonus
        np.testing.assert_array_equal(whole, reward.reshape(S * A, S)[pair, outcomes.next_state])
        assert features.attach(mdp.known) is features.attach(mdp.known)


def test_blocks_tell_where_coordinates_live() -> None:
    one_hot = FeatureMap.tabular(states=S, actions=A, support=np.eye(S, dtype=bool)[:, None, :].repeat(A, axis=1))
    assert repr(one_hot) == f"FeatureMap(tabular, S={S}, A={A}, d={S * A})"
    assert one_hot.blocks.size.tolist() == [1] * (S * A)
    assert one_hot.blocks.vector_start.tolist() == list(range(S * A + 1))
    dense = FeatureMap(np.full((S, A, S, 2), 1 / 6))
    assert (dense.blocks.size.tolist(), dense.blocks.matrix_start.tolist()) == ([2], [0, 4])
    assert not dense.blocks.of.any()


def test_a_family_is_a_list_of_kernels() -> None:
    rng = np.random.default_rng(0)
    stack = rng.dirichlet(np.ones(S), size=(4, S, A))
    stack[:, 0, 0] = (1.0, 0.0, 0.0)  # nobody goes elsewhere: one outcome less
    family = FiniteFamily(stack)
    assert (len(family), family.features.dimension) == (4, S * A * S - 2)
    for member in range(4):
        np.testing.assert_array_equal(family.kernel(member), stack[member])
    sparse_family = FiniteFamily([sp.csr_array(kernel.reshape(S * A, S)) for kernel in stack])
    mdp = FiniteMDP(transition=stack[0], reward=rng.random((S, A)), horizon=5)
    values = family.optimal_values(mdp.known)
    np.testing.assert_array_equal(sparse_family.optimal_values(mdp.known), values)
    for member in range(4):
        alone = FiniteMDP(transition=stack[member], reward=mdp.known.base_reward, horizon=5)
        np.testing.assert_allclose(values[member], alone.optimal_values, rtol=0, atol=1e-12)


def test_a_hundred_thousand_kernels_over_features_fit() -> None:
    """n d numbers are kept, not n S^2 A."""
    rng = np.random.default_rng(0)
    features = FeatureMap(list(rng.dirichlet(np.ones(S), size=(2, S, A))))
    weights = rng.dirichlet(np.ones(2), size=100_000)
    family = FiniteFamily(parameters=weights, features=features)
    assert family.size == 100_000
    assert family.theta.nbytes == 100_000 * 2 * 8
    np.testing.assert_allclose(family.kernel(77_777), features.kernel(weights[77_777]), rtol=0, atol=1e-15)
