"""Figures, the page of an answer, and the report of an experiment: they show what was measured."""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

import occamrl as orl
from occamrl.answers.figures import Curve, class_rows, curve_of, draw_classes, draw_curves
from occamrl.answers.html import table
from occamrl.answers.maps import cells_of, draw_policy_map
from occamrl.answers.page import write_page
from occamrl.experiments.records import Records
from occamrl.learners.fixed_policies import Optimal, UniformRandom
from occamrl.logs.log import simulate_log
from occamrl.naming import csv_cell
from occamrl.report import data
from occamrl.report.page import render_report, write_report
from occamrl.report.plates import write_figures

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from studies.browser import Watched

mpl.use("Agg")
MARKUP = "<img src=x onerror='window.owned=1'> & $co$"
FORMULA = "=1+1"


def axes() -> Axes:
    return Figure(figsize=(5, 3)).subplots()


def record(
    problem: str,
    agent: str,
    seed: int,
    curve: Sequence[float] | np.ndarray[Any, Any],
    phases: Sequence[dict[str, Any]] = (),
    **changes: Any,
) -> Any:
    """Return the record of a cell as experiments write it: a curve with this cumulative regret."""
    length = len(curve)
    cumulative = [float(value) for value in curve]
    return {
        "cell": f"{agent}-{seed}",
        "status": "done",
        "reason": None,
        "seed": seed,
        "episodes": length,
        "problem": {"name": problem, "label": problem, "parameters": {}},
        "agent": {"name": agent, "label": agent, "parameters": {}},
        "total_regret": cumulative[-1],
        "total_return": 0.0,
        "plans": 3,
        "wall_time": 0.1,
        "pessimistic_episodes": 0,
        "curve": {"episode": list(range(1, length + 1)), "cumulative_regret": cumulative},
        "pieces": {"episodes": [1] * length, "regret": np.diff(curve, prepend=0.0).tolist()},
        "phases": list(phases),
        "resolved": {},
        "versions": {"numpy": "2"},
        "platform": "here",
        **changes,
    }


def records(cells: list[Any], **fields: Any) -> Records:
    return Records(folder=Path(), name="made up", spec={"name": "made up"}, cells=cells, **fields)


@pytest.fixture(scope="module")
def ladder() -> tuple[orl.FiniteMDP, orl.Ladder]:
    """A problem whose kernel is in the second of three classes; the first is wrong at once."""
    draw = np.random.default_rng(0)
    kernels = draw.dirichlet(np.full(3, 0.3), size=(6, 3, 2))
    mdp = orl.FiniteMDP(transition=kernels[2], reward=draw.random((3, 2)), horizon=5)
    families = [orl.FiniteFamily(kernels[:n]) for n in (2, 4, 6)]
    names = ["plain", "two $ signs $", "a class with a name that is much too long to show"]
    return mdp, orl.Ladder(families, names=names)


@pytest.fixture(scope="module")
def result(ladder: tuple[orl.FiniteMDP, orl.Ladder]) -> orl.Result:
    return orl.run(orl.ARLGen(ladder=ladder[1]), ladder[0], episodes=400, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real experiment, with selection of classes and features, norm bounds, rules, no regret."""
    path = tmp_path_factory.mktemp("experiment") / "out"
    classes = [
        {"name": "AggregationFamily", "parameters": {"partition": [0, 0, 0], "actions": 2}},
        {"name": "AggregationFamily", "parameters": {"partition": [0, 1, 2], "actions": 2}},
    ]
    rules = [
        {"name": "UCB1", "parameters": {"scale": 1.0}},
        {"name": "UCB1", "parameters": {"scale": 0.1}},
    ]
    agents: list[Any] = [
        {
            "name": "ARLGen",
            "parameters": {"ladder": {"classes": classes}},
            "label": MARKUP,
            "only": ["RiverSwim"],
        },
        {
            "name": "ARLLinDim",
            "parameters": {"norm_bound": "true"},
            "label": FORMULA,
            "only": ["SparseMixture"],
        },
        {"name": "ARLLinNorm", "parameters": {"norm_bound": "9 * true"}, "only": ["SparseMixture"]},
        {
            "name": "Arena",
            "label": "{rule}",
            "bases": ["UniformRandom", "Optimal"],
            "sweep": {"rule": rules},
            "only": ["RiverSwim"],
        },
        "Optimal",
    ]
    mixture = {"states": 6, "actions": 2, "horizon": 4, "dimension": 6, "nonzero": 2, "gamma": 0.5}
    problems: list[Any] = [
        {"name": "RiverSwim", "parameters": {"states": 3}},
        {"name": "SparseMixture", "parameters": mixture},
    ]
    experiment = orl.Experiment(
        name=MARKUP,
        description="made up",
        baseline="Optimal",
        thinning=60,
        episodes=100,
        seeds=3,
        problem=problems,
        agent=agents,
    )
    experiment.run(path, workers=1, progress=False)
    return path


class WellFormed(HTMLParser):
    """Checks that elements are closed in order, and keeps what would be asked of a network."""

    VOID = ("meta", "link", "img", "br", "hr", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href") and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def require_self_contained(path: Path) -> str:
    text = path.read_text("utf-8")
    assert all(link.startswith(("data:", "#")) for link in WellFormed(text).links)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    return text


# --------------------------------------------------------------------------------------- statistics


def test_means_intervals_and_differences_are_over_seeds() -> None:
    draw = np.random.default_rng(1)
    ours = draw.normal(5.0, 1.0, 12)
    theirs = draw.normal(7.0, 1.0, 12)
    summary = data.summarise(ours)
    assert summary.interval is not None
    low, high = summary.interval
    assert low < summary.mean < high
    assert summary.mean == pytest.approx(ours.mean())
    assert summary.middle_half == pytest.approx(np.sort(ours)[3:9].mean())
    assert data.summarise(ours[:2]).interval is None

    difference = data.paired(dict(enumerate(ours)), dict(enumerate(theirs[:10])) | {99: 0.0})
    assert difference is not None
    assert difference.pairs == 10
    assert difference.unpaired == [10, 11, 99]
    assert difference.size.mean == pytest.approx((ours[:10] - theirs[:10]).mean())
    assert difference.less + difference.more == 10
    assert data.paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_slope_of_a_power_is_its_exponent_however_the_curve_is_thinned(power: float) -> None:
    every = np.arange(1, 10_001)
    some = np.unique(np.geomspace(1, 10_000, 60).astype(int))
    for episodes in (every, some):
        regret = 3.0 * episodes.astype(np.float64) ** power
        assert data.slope(episodes, regret) == pytest.approx(power, abs=1e-6)
    assert np.isnan(data.slope(every, np.zeros(every.size)))


def test_mean_curves_are_means_within_their_bands_and_cut_at_the_shortest() -> None:
    cells = []
    for seed, length in enumerate((100, 100, 80)):
        cells.append(record("p", "a", seed, (seed + 1.0) * np.sqrt(np.arange(1, length + 1))))
    (problem,) = data.build(records(cells)).problems
    curve = problem.agents[0].curve
    assert curve.episode[-1] == 80
    np.testing.assert_allclose(curve.mean, 2.0 * np.sqrt(curve.episode))
    assert curve.low is not None
    assert curve.high is not None
    assert (curve.low <= curve.mean + 1e-9).all()
    assert (curve.mean <= curve.high + 1e-9).all()
    (problem,) = data.build(records(cells[:2])).problems
    assert problem.agents[0].curve.low is None


def test_decisions_are_shares_of_seeds_at_episodes_and_settle_where_they_stop_changing() -> None:
    resolved = {"classes": ["x", "y", "z"], "true_class": 2}
    cells = []
    for seed, (change, final) in enumerate(((10, 2), (20, 2), (60, 3))):
        phases = [
            {"first": 1, "episodes": change, "chosen": 1},
            {"first": change + 1, "episodes": 100 - change, "chosen": final},
        ]
        cells.append(record("p", "a", seed, np.ones(100), phases, resolved=resolved))
    found = data.decisions(data.groups_of(cells)[0])
    assert found is not None
    assert found.labels == ["1 x", "2 y *", "3 z"]
    np.testing.assert_allclose(found.share.sum(axis=0), 1.0)
    in_second = (found.episode > 10).astype(int) + (found.episode > 20)
    np.testing.assert_allclose(found.share[1], in_second / 3)
    assert found.settled == data.Settled(21.0, "settles on class 2 y in 2 of 3 seeds")
    (sentence,) = data.build(records(cells)).problems[0].headline
    assert found.settled.words in sentence
    assert "episode 21 " in sentence


def test_swept_parameters_become_curves_and_tuning_seeds_are_not_shown() -> None:
    cells = []
    for scale in (0.1, 1.0):
        for seed in (0, 1, 2, 50):
            cell = record("p", f"a{scale}", seed, np.full(10, scale * (seed + 1)))
            cell["agent"] = {"name": "a", "label": f"a{scale}", "parameters": {"scale": scale}}
            cells.append(cell)
    experiment = records(cells)
    experiment.spec.update(
        tuning_seeds=[50],
        agent=[{"name": "a", "label": "a{scale}", "sweep": {"scale": [0.1, 1.0]}}],
    )
    report = data.build(experiment)
    (sweep,) = report.sweeps
    assert sweep.parameter == "scale"
    ((name, regret),) = sweep.lines
    assert name == "a"
    assert list(regret) == [0.1, 1.0]
    np.testing.assert_allclose([summary.mean for summary in regret.values()], [0.2, 2.0])
    assert report.problems[0].agents[0].group.seeds == [0, 1, 2]
    assert len(report.league) == 1


def test_what_is_printed_of_records_fits_a_screen() -> None:
    cells = []
    for problem, agent in itertools.product(range(9), repeat=2):
        cells.append(record(f"problem {problem}", f"agent {agent}", 0, np.ones(10)))
    lines = str(records(cells)).splitlines()
    assert len(lines) <= 25
    assert "61 more" in lines[-1]
    assert max(map(len, lines)) < 160


# ------------------------------------------------------------------------------------------ figures


@pytest.mark.parametrize("scale", ["linear", "semilogx", "semilogy", "loglog"])
@pytest.mark.parametrize("episodes", [1, 50, 10**15])
def test_regret_is_drawn_at_any_length_also_where_there_is_none(episodes: int, scale: Any) -> None:
    problem = orl.make_problem("river-swim", states=3)
    drawn = axes()
    for agent in (Optimal(mdp=problem.mdp), UniformRandom()):
        run = orl.run(agent, problem, episodes=episodes, progress=False)
        run.plot(drawn, scale=scale)
    zero, some = drawn.get_lines()
    logarithmic = scale in ("semilogy", "loglog")
    assert str(zero.get_label()) == ("Optimal (0)" if logarithmic else "Optimal")
    assert str(some.get_label()) == "UniformRandom"
    assert zero.get_color() != some.get_color()
    assert np.asarray(zero.get_xdata())[-1] == episodes
    assert (np.asarray(zero.get_ydata()) == 0.0).all()
    assert np.asarray(some.get_ydata())[-1] == pytest.approx(run.total_regret)
    low, high = drawn.get_ylim()
    assert low <= 0.0 < high  # the curve without regret is inside
    assert drawn.get_xlabel() == "episode"
    assert drawn.get_ylabel() == "cumulative regret"
    drawn.get_figure().savefig(io.BytesIO(), format="png")  # type: ignore[union-attr]  # it has one


def test_the_class_in_play_is_drawn_beneath_returns_with_names_that_do_not_overlap(
    result: orl.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(result), "exact", False)
    figure = Figure(figsize=(5, 3))
    top = result.plot(figure.subplots())
    assert top.get_ylabel() == "return of an episode"
    below = figure.axes[1]
    figure.savefig(io.BytesIO(), format="png")
    boxes = [label.get_window_extent() for label in below.get_yticklabels()]
    assert len(boxes) == len(class_rows(result)) == 3
    for one, other in itertools.pairwise(boxes):
        assert one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1
    ends = []
    for bar in below.collections:
        ends += [np.asarray(path.vertices)[:, 0].max() for path in bar.get_paths()]
    assert max(ends) == pytest.approx(result.total_episodes + 0.5)


def test_the_policy_is_drawn_state_by_step(result: orl.Result) -> None:
    drawn = result.plot_policy(axes(), states=["left", "$a$", "right"], actions=["stay", "go"])
    (image,) = drawn.get_images()
    np.testing.assert_array_equal(np.asarray(image.get_array()), result.policy().T)
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["left", r"\$a\$", "right"]
    with pytest.raises(orl.InvalidInput, match="states"):
        result.plot_policy(axes(), states=["one"])


def test_arrows_on_a_map_are_the_actions_of_a_step() -> None:
    lake = orl.make_problem("frozen-lake", horizon=12)
    result = orl.run(Optimal(mdp=lake.mdp), lake, episodes=1)
    lines = ["SFFF", "FHFH", "FFFH", "HFFG"]
    names = ["left", "down", "right", "up"]
    moves = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
    drawn = result.plot_map(lines, axes(), actions=names, step=3)
    shown = {}
    for text in drawn.texts:
        if isinstance(text, Annotation):
            begin = np.array(text.get_position())
            middle = (begin + np.array(text.xy)) / 2.0
            shown[tuple(middle.round(6))] = np.sign((text.xy - begin).round(6))
    policy = result.policy()[2]
    cells = [divmod(s, 4) for s in range(16) if "".join(lines)[s] not in "HG"]
    assert len(shown) == len(cells) == 11
    for row, column in cells:
        move = moves[policy[4 * row + column]]
        np.testing.assert_array_equal(shown[column, row], move)
    for wrong, field in ((["SF", "F"], "map"), (["F" * 9] * 9, "map")):
        with pytest.raises(orl.InvalidInput, match=field):
            result.plot_map(wrong, axes(), actions=names)
    with pytest.raises(orl.InvalidInput, match="actions"):
        result.plot_map(lines, axes())


def test_the_page_of_a_grid_draws_the_way_through_it(tmp_path: Path) -> None:
    moves = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
    walls = {(1, 1), (1, 2)}

    def room(
        cell: tuple[int, int], move: str, *, slip: float
    ) -> Iterator[tuple[float, tuple[int, int], float, bool]]:
        down, right = moves[move]
        row, column = cell
        target = (row + down, column + right)
        if target in walls or not (0 <= target[0] < 3 and 0 <= target[1] < 4):
            target = cell
        yield 1.0 - slip, target, float(target == (2, 3)), target == (2, 3)
        yield slip, cell, 0.0, False

    model = orl.Model(
        room, start=(0, 0), actions=list(moves), horizon=9, parameters={"slip": (0.0, 0.5)}
    )
    agent = orl.Occam(ladder=model.ladder({"room": ["slip"]}))
    mdp = model.mdp(slip=0.2)
    answer = orl.run(agent, mdp, episodes=30).answer
    cells = cells_of(answer.policy)
    assert cells is not None
    assert set(cells.values()) == {(r, c) for r in range(3) for c in range(4)} - walls
    drawn = axes()
    draw_policy_map(answer.policy, cells, drawn)
    arrows = [text for text in drawn.texts if isinstance(text, Annotation)]
    stretch = answer.policy.longest
    done = [s for s in cells if stretch.action[s] >= 0 and not mdp.known.absorbing[s]]
    assert len(arrows) == len(done)
    cell = (0, 0)  # where the arrows lead to, from the start
    for _ in range(9):
        if cell == (2, 3):
            break
        down, right = moves[answer.policy(cell)]
        cell = (cell[0] + down, cell[1] + right)
    assert cell == (2, 3)
    page = answer.page(tmp_path / "room.html").read_text()
    assert "where the policy goes from each cell" in page
    turning = orl.Model(
        lambda cell, move, *, slip: room(cell, "north" if move == "turn" else move, slip=slip),
        start=(0, 0),
        actions=[*moves, "turn"],
        horizon=9,
        parameters={"slip": (0.0, 0.5)},
    )
    agent = orl.Occam(ladder=turning.ladder({"room": ["slip"]}))
    assert cells_of(orl.run(agent, turning.mdp(slip=0.2), episodes=3).answer.policy) is None


def test_curves_have_bands_and_every_plot_of_a_report_is_written(
    folder: Path, tmp_path: Path
) -> None:
    drawn = axes()
    mean = np.array([1.0, 2.0, 3.0])
    curve = Curve(np.arange(1, 4), mean, low=mean - 1.0, high=mean + 1.0)
    draw_curves(drawn, {"a $": curve}, scale="loglog")
    assert len(drawn.collections) == 1
    problem = orl.make_problem("river-swim", states=3)
    agents = {"uniform": UniformRandom(), "optimal": Optimal(mdp=problem.mdp)}
    comparison = orl.compare(agents, problem, episodes=30, seeds=3, workers=1, progress=False)
    lines = comparison.plot(axes(), scale="loglog").get_lines()
    ends = [np.asarray(line.get_ydata())[-1] for line in lines]
    np.testing.assert_allclose(ends, [row["regret"] for row in comparison.rows])
    report = data.build(orl.load(folder))
    written = write_figures(report, tmp_path, formats=["svg"])
    # curves twice and differences of two problems, five that decide, a sweep
    assert len(written) == len(set(written)) == 2 * 3 + 5 + 1
    first = report._replace(problems=report.problems[:1])
    for path in write_figures(first, tmp_path / "again", formats=["svg"]):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_bands_hold_the_mean_and_do_not_fall() -> None:
    draw = np.random.default_rng(0)
    jumps = draw.exponential(size=(10, 300)) * draw.integers(0, 30, size=(10, 300)) ** 3
    values = np.cumsum(jumps, axis=1)
    episode = np.arange(1, 301)
    for band in ("quantiles", "bootstrap"):
        curve = curve_of(episode, values, band)
        assert curve.low is not None
        assert curve.high is not None
        assert (np.diff(curve.low) >= 0.0).all()
        assert (np.diff(curve.high) >= 0.0).all()
        assert (curve.low <= curve.high).all()
    assert curve.low is not None
    assert (curve.low <= values.mean(axis=0)).all()
    assert curve_of(episode, values, None).low is None


def test_figures_for_papers(folder: Path, tmp_path: Path) -> None:
    records = orl.load(folder)
    with pytest.raises(orl.InvalidInput, match=r"problem.*RiverSwim.*SparseMixture"):
        records.plot()
    drawn_bands: list[tuple[Any, int]] = [("seeds", 4), ("quantiles", 1), (None, 1)]
    for band, lines in drawn_bands:
        drawn = records.plot(scale="semilogy", band=band, problem="SparseMixture")
        labels = drawn.get_legend_handles_labels()[1]
        assert len(labels) == 3
        assert "Optimal (0)" in labels
        assert len(drawn.get_lines()) == 3 * lines
        assert len(drawn.collections) == (3 if band == "quantiles" else 0)
    figure: Any = drawn.figure
    assert figure.get_figwidth() == 3.3
    figure.savefig(tmp_path / "regret.pdf")
    assert b"/FontFile2" in (tmp_path / "regret.pdf").read_bytes()  # TrueType, embedded
    assert b"/Type3" not in (tmp_path / "regret.pdf").read_bytes()
    assert b"/CreationDate" not in (tmp_path / "regret.pdf").read_bytes()
    wide: Any = records.plot(problem="RiverSwim", width="page").figure
    assert wide.get_figwidth() == 6.9
    mistakes: list[tuple[str, Any]] = [
        ("scale", "log"),
        ("band", "sd"),
        ("width", "wide"),
        ("width", 0.0),
        ("problem", "RiverSwam"),
    ]
    for option, wrong in mistakes:
        with pytest.raises(orl.InvalidInput, match=option):
            records.plot(**{"problem": "RiverSwim", option: wrong})
    plt.close("all")


# -------------------------------------------------------------------------------------------- pages


def test_the_page_of_an_answer_has_the_verdict_the_evidence_and_the_policy(
    result: orl.Result, tmp_path: Path
) -> None:
    text = require_self_contained(result.page(tmp_path / "deep" / "answer.html"))
    (title,) = re.findall("<h1>(.*?)</h1>", text)
    assert "two $ signs $" in title
    assert text.count("data:image/png;base64,") == 4  # worth, evidence, regret, the class in play
    assert "<script" not in text
    for name in ("plain", "two $ signs $", f"{result.total_regret:,.4g}", "3 states, 2 actions"):
        assert name in text
    draw_classes(result, axes())


def test_pages_of_plain_learners_of_nothing_played_and_of_logs(
    ladder: tuple[orl.FiniteMDP, orl.Ladder], tmp_path: Path
) -> None:
    mdp, models = ladder
    played = orl.run(UniformRandom(), mdp, episodes=5, progress=False)
    text = require_self_contained(played.page(tmp_path / "plain.html"))
    assert played.verdict.sentences[0] in text
    answer = orl.select(simulate_log(mdp, episodes=40), models, mdp.known)
    text = require_self_contained(write_page(answer, tmp_path / "log.html"))
    assert answer.sentences[0].split("'")[1] in text
    assert f"{answer.steps:,} steps" in text


def tables_of(text: str) -> dict[str, list[list[str]]]:
    """Return the cells of every table of a page, by the caption."""
    tables = {}
    for caption, body in re.findall(r"<caption>(.*?)</caption>.*?<tbody>(.*?)</tbody>", text):
        rows = []
        for row in re.findall("<tr>(.*?)</tr>", body):
            cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
            rows.append([re.sub("<[^>]*>", " ", cell).strip() for cell in cells])
        tables[re.sub("<[^>]*>", "", caption)] = rows
    return tables


def test_the_report_is_one_file_with_the_numbers_of_the_records(folder: Path) -> None:
    text = require_self_contained(write_report(folder))
    assert MARKUP not in text  # as markup
    assert "<script" not in text
    assert "21 of 21 cells done." in text
    experiment = orl.load(folder)
    report = data.build(experiment)
    kinds = set()
    for problem in report.problems:
        for one in problem.agents:
            labels = (problem.name, one.group.agent)
            totals = []
            for cell in experiment.cells:
                if (cell["problem"]["label"], cell["agent"]["label"]) == labels:
                    totals.append(cell["total_regret"])
            assert one.group.values("total_regret").tolist() == totals
            assert one.regret.mean == pytest.approx(np.mean(totals))
            assert one.curve.mean[-1] == pytest.approx(one.regret.mean)
            if one.decisions is not None:
                kinds.add(one.decisions.kind)
    assert kinds == {"class", "features", "norm", "base"}
    assert report.league
    for row, one in zip(tables_of(text)["Total regret"], report.problems[-1].agents, strict=True):
        assert float(row[2].split()[0].replace(",", "")) == pytest.approx(one.regret.mean, rel=0.01)
    assert write_report(folder).read_text("utf-8") == text  # and the same again


def test_an_experiment_without_finished_cells_has_a_page_that_says_why() -> None:
    failed = record("p", "a", 0, np.ones(1), reason="Traceback\nValueError: no", status="failed")
    text = render_report(data.build(records([], failed=[failed], missing=["x"])))
    WellFormed(text)
    assert "0 of 2 cells done, 1 waiting." in text
    assert "ValueError: no" in text
    assert "Traceback" not in text


def test_names_are_text_in_tables_and_no_formulas_in_files() -> None:
    text = table([{"name": MARKUP, "number": 1.5, "nothing": None}], caption=MARKUP)
    assert "img" not in WellFormed(text).tags
    cells = [csv_cell(cell) for cell in (FORMULA, "-x", "plain", -1.5)]
    assert cells == ["'=1+1", "'-x", "plain", -1.5]


# ------------------------------------------------------------------------------------------ browser


@pytest.fixture(scope="module")
def written(folder: Path) -> Path:
    """The report of the experiment."""
    return write_report(folder)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real browser; without one tests are skipped, or fail: OCCAMRL_REQUIRE_BROWSER=1."""
    try:
        from studies.browser import browser

        with browser() as started:
            yield started
    except (ImportError, FileNotFoundError) as missing:
        if os.environ.get("OCCAMRL_REQUIRE_BROWSER"):
            raise
        pytest.skip(f"no browser: {missing}")


def watch(browser: Browser, path: Path, **context: Any) -> Watched:
    """Open a page in the browser, where there is one."""
    from studies.browser import Watched

    return Watched(browser, path, **context)


@pytest.mark.parametrize(
    "context",
    [{}, {"color_scheme": "dark"}, {"viewport": {"width": 375, "height": 740}, "is_mobile": True}],
    ids=["desktop", "dark", "phone"],
)
def test_the_report_in_a_browser_asks_nothing_and_shows_names_as_text(
    chromium: Browser, written: Path, context: dict[str, Any]
) -> None:
    watched = watch(chromium, written, **context)
    page = watched.page
    assert page.inner_text("h1") == MARKUP
    assert page.evaluate("window.owned") is None
    assert page.locator("img:not([alt])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("figure").count() == 2 * 3 + 5 + 1
    widths = page.locator("img").evaluate_all("all => all.map(e => e.naturalWidth)")
    assert min(widths) > 200  # the browser could read them all
    watched.require_quiet()


def test_the_regret_of_every_seed_can_be_downloaded(
    chromium: Browser, folder: Path, written: Path
) -> None:
    watched = watch(chromium, written)
    with watched.page.expect_download() as download:
        watched.page.click("a[download]")
    text = Path(download.value.path()).read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert f"'{FORMULA}" in {row["agent"] for row in rows}  # shown by a spreadsheet, not run
    total = sum(cell["total_regret"] for cell in orl.load(folder).cells)
    assert sum(float(row["total_regret"]) for row in rows) == pytest.approx(total)
    assert watched.complaints == []


def test_the_page_of_an_answer_in_a_browser(
    chromium: Browser, result: orl.Result, tmp_path: Path
) -> None:
    watched = watch(chromium, result.page(tmp_path / "answer.html"))
    widths = watched.page.locator("img").evaluate_all("all => all.map(e => e.naturalWidth)")
    assert min(widths) > 200
    assert "two $ signs $" in watched.page.inner_text("h1")
    watched.require_quiet()


def test_figures_have_axes_of_their_own() -> None:
    import matplotlib.pyplot as plt

    problem = orl.make_problem("patchy-ice")
    result = orl.run(orl.Occam(ladder=orl.Ladder.of_problem(problem)), problem, episodes=20)
    plt.figure()
    plt.loglog([1, 10], [1, 10])
    others = plt.gca()
    assert result.plot_policy() is not others
    assert result.answer.plot() is not others
    assert result.plot() is not others
    assert len(others.lines) == 1
    plt.close("all")
