from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import occamrl as orl
from occamrl.envs.spaces import Integers
from occamrl.envs.wrapper import RewardMap
from occamrl.running.result import EnvironmentInfo, smoothed

ICE = orl.make_problem("patchy-ice")


@pytest.fixture(scope="module")
def played() -> orl.Result:
    return orl.run(orl.Occam(ladder=orl.Ladder.of_problem(ICE)), ICE, episodes=60, seed=0)


def test_the_verdict_keeps_its_facts_and_says_them(played: orl.Result) -> None:
    verdict = played.verdict
    name = ICE.rung_names[verdict["chosen"] - 1]
    assert verdict.sentences[0].startswith(f"{name!r} is in play, class {verdict['chosen']} of 4, since episode ")
    assert f"lost {played.total_regret:,.4g} against the best policy" in str(verdict)
    assert all(f"<p>{line[:5]}" in verdict._repr_html_().replace("&#x27;", "'") for line in verdict.sentences)


def test_a_truth_outside_the_ladder_is_said() -> None:
    wrong = orl.make_problem("river-swim", states=3)
    kernel = wrong.mdp.kernel()
    small = orl.FiniteFamily(np.stack([0.5 * kernel + 0.5 * np.eye(3)[:, None, :]]))
    ladder = orl.Ladder([small], names=["a slow river"])
    verdict = orl.run(orl.Occam(ladder=ladder), wrong, episodes=400, seed=0).verdict
    assert verdict["outside"]
    assert "No class of the ladder explains the data" in str(verdict)
    assert "'a slow river', the largest, is rejected too" in str(verdict)
    assert "Next: add a richer class" in str(verdict)


def test_a_learner_decides_nothing() -> None:
    result = orl.run(orl.UniformRandom(), ICE, episodes=3)
    assert result.verdict == {}
    assert "nothing was selected" in str(result.verdict)
    assert "<svg" in result._repr_html_()


def test_an_arena_says_who_played() -> None:
    arena = orl.Arena(bases=[orl.UniformRandom(), orl.UniformRandom()], rule=orl.UCB1())
    result = orl.run(arena, ICE, episodes=5, progress=False)
    first, second = result.state["plays"]
    text = str(result.verdict)
    assert f"1 (UniformRandom) {first} and 2 (UniformRandom) {second}." in text
    assert f"played most, {max(first, second)} of 5 episodes" in text
    assert "nothing was selected" not in text


def test_a_policy_has_the_names_of_states_and_actions(played: orl.Result) -> None:
    states, actions = [f"cell {s}" for s in range(ICE.mdp.states)], [f"go {a}" for a in range(ICE.mdp.actions)]
    rows = played.policy_table(states=states, actions=actions).to_pylist()
    policy = played.policy()
    assert [row["state"] for row in rows] == states
    last = list(rows[0])[-1]
    assert [row[last] for row in rows] == [actions[a] for a in policy[-1]]
    for wrong in (["one"], 3):
        with pytest.raises(orl.InvalidInput, match="states"):
            played.policy_table(states=wrong)  # type: ignore[arg-type]  # refused
    axes = played.plot_policy(Figure().subplots(), actions=actions)
    legend = axes.get_legend()
    assert legend is not None
    formula = [r"$\frac{$"] * max(ICE.mdp.states, ICE.mdp.actions)
    figure = Figure()
    played.plot_policy(figure.subplots(), states=formula[: ICE.mdp.states], actions=formula[: ICE.mdp.actions])
    figure.savefig(io.BytesIO())  # a name is no formula
    assert {text.get_text() for text in legend.get_texts()} == {actions[a] for a in np.unique(policy)}


def test_returns_are_drawn_where_regret_is_not_known(played: orl.Result) -> None:
    hidden = EnvironmentInfo(
        name="hidden",
        rewards=RewardMap(),
        observation=Integers((), (ICE.mdp.states,), (0,)),
        action=Integers((), (ICE.mdp.actions,), (0,)),
        exact=False,
        why_not="no table",
    )
    result = replace(played, environment=hidden)
    figure = Figure()
    axes = result.plot(figure.subplots())
    assert axes.get_ylabel() == "return of an episode"
    below: Any = figure.axes[1]
    assert [text.get_text() for text in below.get_yticklabels()] == list(ICE.rung_names)
    assert "is not known here" in str(result.verdict)


def test_smoothing_is_the_mean_of_a_window() -> None:
    values = np.random.default_rng(0).random(400)
    ends, mean, error = smoothed(values)
    for end, found, spread in zip(ends, mean, error, strict=True):
        window = values[end - 20 : end]
        assert found == pytest.approx(window.mean())
        assert spread == pytest.approx(window.std(ddof=1) / np.sqrt(20))


def test_names_are_kept_in_files_and_checked(tmp_path: Any, played: orl.Result) -> None:
    played.save(tmp_path / "run.npz")
    again = orl.Result.load(tmp_path / "run.npz")
    assert again.verdict.sentences == played.verdict.sentences
    with pytest.raises(orl.InvalidInput, match="names"):
        orl.Ladder(orl.Ladder.of_problem(ICE).rungs, names=["one"])


def test_the_page_has_the_answer_and_no_script(tmp_path: Any, played: orl.Result) -> None:
    from occamrl.report.answer import write_answer

    actions = [f"<go {a}>" for a in range(ICE.mdp.actions)]
    text = write_answer(played, tmp_path / "sub" / "page.html", actions=actions).read_text("utf-8")
    assert "<script" not in text
    assert "&lt;go 0&gt;" in text
    assert "<go 0>" not in text
    assert all(title in text for title in ("Question", "Answer", "Evidence", "Policy", "What was assumed"))
    assert text.count("data:image/png;base64,") == 2
    assert all(name in text for name in ICE.rung_names)
