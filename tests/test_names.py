"""Names from strangers, in everything that is printed, drawn and written."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import occamrl as orl
from occamrl.answers.figures import quiet_glyphs
from occamrl.experiments.tables import latex_text
from occamrl.logs.table import label_of, open_table, read_labels
from occamrl.naming import FORMULA_MARK, csv_cell, printable
from occamrl.report.page import write_report

FORMULA = re.compile(r"[=+\-@\t\r\n]")

HOSTILE = {
    "dollar": "$",
    "formula": "$x$ and $y$",
    "open formula": r"$\frac{",
    "backslash": "\\",
    "escaped dollar": r"a\$b",
    "escape code": "\x1b[2J\x1b]0;title\x07",
    "bell and null": "\x07\x00",
    "line ends": "one\r\ntwo\n",
    "tab": "\ttab",
    "C1 control": "\x9b31m",
    "line separator": "one\u2028two",
    "right to left": "\u202egnp.exe",
    "invisible": "a\u200bb\u00adc",
    "surrogate": "half\ud800",
    "no character": "\uffff",
    "emoji": "\U0001f600",
    "long": "n" * 5_000,
    "markup": "<script>alert(1)</script>&amp;",
    "spreadsheet": "=1+1",
    "at": "@SUM(A1)",
    "LaTeX": r"\input{x} 50 % & #1 _a^b~",
    "underscore": "_hidden",
}


def outcomes(state: Any, action: Any, *, chance: float = 0.5, other: float = 0.0) -> Iterator[Any]:
    """Yield that a walker goes on, or stays; the last state pays."""
    name, i = state
    go = chance + other * (i == 1)
    go = go if action[-1] == "1" else 0.1
    yield go, (name, min(i + 1, 2)), 1.0 * (i == 2), False
    yield 1.0 - go, (name, i), 1.0 * (i == 2), False


def answer_with(name: str) -> orl.Result:
    """Return a run in which states, actions, classes and the unit bear a name."""
    model = orl.Model(
        outcomes,
        start=(name, 0),
        actions=[f"{name}0", f"{name}1"],
        horizon=4,
        parameters={"chance": (0.2, 0.8), "other": (0.0, 0.2)},
        unit=name,
    )
    ladder = model.ladder({name: ["chance"], f"{name} and more": ["chance", "other"]})
    return orl.run(orl.Occam(ladder=ladder), model.mdp(chance=0.6), episodes=30)


def require_harmless(text: str, longest: int | None = None) -> None:
    """Nothing steers a terminal, everything can be written, and no line is without end."""
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    text.encode()
    if longest is not None:
        assert max(map(len, text.splitlines()), default=0) <= longest


@pytest.fixture(scope="module", params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> tuple[str, orl.Result]:
    name = HOSTILE[request.param]
    return name, answer_with(name)


def test_what_is_printed_steers_no_terminal(hostile: tuple[str, orl.Result]) -> None:
    _, result = hostile
    answer = result.answer
    for printed in (answer, answer.headline, answer.policy, result.verdict, result):
        require_harmless(str(printed), 1_500)
    for lines in answer.questions.values():
        require_harmless("".join(lines), 3_000)


def test_policies_as_csv_run_nothing_and_are_read_back(
    hostile: tuple[str, orl.Result], tmp_path: Path
) -> None:
    name, result = hostile
    path = tmp_path / "policy.csv"
    result.answer.policy.to_csv(path)
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"), newline="")))
    assert rows
    for row in rows:
        assert not any(FORMULA.match(cell) for cell in row.values())
    # what UTF-8 does not have comes back as its escape, and labels have no spaces at their ends
    expected = name.encode("utf-8", "backslashreplace").decode()
    (batch,) = open_table(path).batches(["state_0", "state_1", "action"])
    assert set(read_labels("state", batch["state_0"], 0).labels) == {label_of(expected)}
    assert {*read_labels("state", batch["state_1"], 0).labels} == {0, 1, 2}
    actions = set(read_labels("action", batch["action"], 0).labels)
    assert actions <= {label_of(f"{expected}{a}") for a in range(2)}


def test_pages_and_figures_show_names_as_text(tmp_path: Path) -> None:
    for key in ("open formula", "escape code", "surrogate", "markup"):
        result = answer_with(HOSTILE[key])
        with quiet_glyphs():
            result.answer.plot(axes()).figure.canvas.draw()
            result.plot_policy(axes()).figure.canvas.draw()
        page = result.answer.page(tmp_path / "answer.html").read_text("utf-8")
        require_harmless(page)
        assert "<script" not in page


def axes() -> Axes:
    return Figure(figsize=(5, 3)).subplots()


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_cells_and_latex_are_texts(name: str) -> None:
    cell = csv_cell(name)
    assert isinstance(cell, str)
    assert not FORMULA.match(cell)
    latex = latex_text(name)
    require_harmless(latex, 1_500)
    bare = re.sub(r"\\(text[a-z]+\{\}|[&%$#_{}])", "", latex)
    assert not set(bare) & set("\\&%$#_{}~^<>|")
    assert printable(printable(name)) == printable(name)


def test_marked_cells_are_different_texts() -> None:
    names = ["=1", "'=1", "''=1", "1", "'1", "-x", "'-x"]
    cells = [csv_cell(name) for name in names]
    assert len({*cells}) == len(names)
    assert [re.sub(FORMULA_MARK, r"\1", str(cell)) for cell in cells] == names


def test_an_experiment_with_hostile_labels_is_reported(tmp_path: Path) -> None:
    labels = [HOSTILE[key] for key in ("escape code", "surrogate", "long", "LaTeX", "spreadsheet")]
    experiment = orl.Experiment(
        name=HOSTILE["escape code"],
        description=HOSTILE["surrogate"],
        thinning=10,
        episodes=20,
        seeds=1,
        problem=[
            {"name": "RiverSwim", "parameters": {"states": 3}, "label": HOSTILE["open formula"]}
        ],
        agent=[{"name": "UniformRandom", "label": label} for label in labels],
    )
    experiment.run(tmp_path, workers=1, progress=False)
    require_harmless(write_report(tmp_path).read_text("utf-8"))
    records = orl.load(tmp_path)
    for printed in (records, records.differences(), records.to_latex()):
        require_harmless(str(printed), 1_500)
    require_harmless(records.differences().to_latex(), 1_500)
    with quiet_glyphs():
        records.plot(axes()).figure.canvas.draw()
