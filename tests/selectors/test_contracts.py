"""Every selector that the registry finds keeps the contract, on a problem with rewards on states and on one without."""

from __future__ import annotations

from typing import Any

import pytest

from occamrl import registry
from occamrl.checks import check_learner, check_selector
from occamrl.models.features import FeatureMap
from occamrl.problems.mixtures import SparseMixture
from occamrl.selectors.arl_lin import ARLLin, ARLLinDim, ARLLinNorm
from occamrl.selectors.references import largest, oracle

SMALL = SparseMixture(states=5, actions=2, horizon=4, dimension=6, nonzero=3, gamma=0.5, seed=1)
LINEAR = ("ARLLin", "ARLLinDim", "ARLLinNorm")


def test_they_are_found() -> None:
    assert set(LINEAR) <= set(registry.selectors())
    assert "LinearSelector" not in registry.selectors()  # a base class


@pytest.mark.parametrize("name", LINEAR)
def test_contract(name: str) -> None:
    for selector in registry.selectors()[name].examples(SMALL.mdp):
        check_selector(selector, SMALL.mdp, episodes=120)


@pytest.mark.parametrize("kind", [ARLLin, ARLLinDim, ARLLinNorm])
def test_references_are_learners(kind: Any) -> None:
    selector = kind(features=FeatureMap(SMALL.phi), norm_bound=2.0)
    check_learner(oracle(selector, SMALL.theta), SMALL.mdp)
    check_learner(largest(selector), SMALL.mdp)
