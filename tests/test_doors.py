"""What comes in is taken as it is, mended and told, or refused with its row; nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import occamrl as orl

Row = dict[str, Any]
HORIZON = 10


def shop(
    stock: int, order: int, *, rate: float, rush: float = 0.0
) -> Iterator[tuple[float, int, float, bool]]:
    filled = min(stock + order, 4)
    chance = rate + rush * (filled == 4)
    cost = 2.0 * (filled - stock) + 0.1 * filled
    yield 1 - chance, filled, -cost, False
    yield chance, max(filled - 1, 0), 5.0 * (filled > 0) - cost, False


MODEL = orl.Model(
    shop,
    start=2,
    actions=[0, 1, 2],
    horizon=HORIZON,
    parameters={"rate": (0.1, 0.6), "rush": (0.0, 0.4)},
)
LADDER = MODEL.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})


def shop_rows(months: int, days: int = HORIZON, seed: int = 0, **truth: float) -> list[Row]:
    """A log of the shop, with the next state in each row."""
    draw = np.random.default_rng(seed)
    rows = []
    for month in range(months):
        stock = 2
        for day in range(days):
            order = int(draw.integers(3))
            law = list(shop(stock, order, **(truth or {"rate": 0.3})))
            _, after, euro, _ = law[draw.choice(2, p=[entry[0] for entry in law])]
            row = {"month": month, "day": day, "state": stock, "action": order}
            rows.append(row | {"reward": euro, "next_state": after})
            stock = after
    return rows


COLUMNS = {"episode": "month"}


def kinds(notes: Any) -> dict[str, int]:
    return {note.kind: note.affected for note in notes}


def test_what_was_done_to_a_log_is_noted_and_said_by_select_and_by_agents(tmp_path: Path) -> None:
    rows = shop_rows(30)
    for row in rows:
        del row["next_state"]
    del rows[-3:]
    log = orl.read_log(rows, COLUMNS)
    answer = orl.select(log, LADDER)
    assert kinds(answer.notes) == {
        "no_next_state": 30,
        "next_state_filled": 30 * (HORIZON - 1) - 3,
        "truncated": 30,
    }
    agent = orl.Agent(orl.Occam(ladder=LADDER)).learn_from(log)
    assert agent.answer.notes == answer.notes
    agent.save(tmp_path / "shop.npz")
    again = orl.Agent.load(tmp_path / "shop.npz", orl.Occam(ladder=LADDER))
    assert again.answer.notes == answer.notes
    for said in (answer.sentences, again.answer.sentences):
        text = "\n".join(said)
        assert f"30 of {len(rows)} rows without a next state" in text
        assert "no row is missing in between" in text


def test_nothing_is_noted_of_a_log_to_which_nothing_was_done() -> None:
    answer = orl.select(orl.read_log(shop_rows(5), COLUMNS), LADDER)
    assert answer.notes == ()
    assert all(sentence.kind != "assumed" for sentence in answer.said)


def machine(wins: float, pays: tuple[float, ...]) -> orl.FiniteMDP:
    """Two arms: action 1 pays one of some amounts with a chance, action 0 a tenth."""

    def play(state: int, arm: int) -> Iterator[tuple[float, int, float, bool]]:
        if arm == 0:
            yield 1.0, 0, 0.1, False
            return
        yield 1.0 - wins, 0, 0.0, False
        for amount in pays:
            yield wins / len(pays), 1, amount, False

    return orl.Model(play, start=0, actions=[0, 1], horizon=4, reward_range=(0.0, 1.0)).mdp()


def test_a_reward_that_no_member_pays_is_a_new_outcome() -> None:
    """Members pay 0 or 1; a truth that pays .55 is none of them, however near the nearest is."""
    ladder = orl.Ladder([orl.FiniteFamily([machine(0.5, (0.0, 1.0))])])
    for amount, fits in ((0.55, False), (1.0, True), (1.0 - 5e-4, True), (1.0 - 2e-3, False)):
        truth = machine(0.5, (0.0, amount))
        answer = orl.run(orl.Occam(ladder=ladder), truth, episodes=60).answer
        assert (answer.model is not None) is fits, amount
        assert (answer.judgement.novel == 0) is fits
        assert answer.misspecified is not fits


def test_random_rewards_are_held_against_no_list() -> None:
    """Coins with the known means are near none of them, and no outcome is new for that."""
    problem = orl.make_problem("river-swim", states=3, reward_noise="bernoulli")
    ladder = orl.Ladder([orl.FiniteFamily([orl.make_problem("river-swim", states=3).mdp])])
    answer = orl.run(orl.Occam(ladder=ladder), problem, episodes=60).answer
    assert answer.judgement.novel == 0
