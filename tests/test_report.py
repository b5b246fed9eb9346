"""Figures, the page of an answer, and the report of an experiment: what they show is what was measured."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import occamrl as orl
from occamrl.experiments.records import Records
from occamrl.learners.fixed_policies import Optimal, UniformRandom
from occamrl.report import data
from occamrl.report.figures import class_rows, curve_of, draw_classes, draw_curves, write_figures
from occamrl.report.page import render, write_page, write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

mpl.use("Agg")
MARKUP = "<img src=x onerror='window.owned=1'> & $co$"
FORMULA = "=1+1"


def axes() -> Axes:
    return Figure(figsize=(5, 3)).subplots()


def record(
    problem: str, agent: str, seed: int, curve: Any, phases: Any = (), **about: Any
) -> dict[str, Any]:
    """Return the record of a cell as experiments write it: a curve with this cumulative regret."""
    episodes = np.arange(1, len(curve) + 1)
    facts = {
        "cell": f"{agent}-{seed}",
        "status": "done",
        "reason": None,
        "seed": seed,
        "episodes": len(curve),
    }
    named = {
        kind: {"name": label, "label": label, "parameters": {}}
        for kind, label in (("problem", problem), ("agent", agent))
    }
    totals = {"total_regret": float(curve[-1]), "total_return": 0.0, "plans": 3, "wall_time": 0.1}
    totals["pessimistic_episodes"] = 0
    kept = {
        "curve": {"episode": episodes.tolist(), "cumulative_regret": list(map(float, curve))},
        "pieces": {"episodes": [1] * len(curve), "regret": np.diff(curve, prepend=0.0).tolist()},
        "phases": list(phases),
    }
    return {
        **facts,
        **named,
        **totals,
        **kept,
        "resolved": {},
        "versions": {"numpy": "2"},
        "platform": "here",
        **about,
    }


def records(cells: list[Any], **about: Any) -> Records:
    return Records(folder=Path(), name="made up", spec={"name": "made up"}, cells=cells, **about)


@pytest.fixture(scope="module")
def ladder() -> tuple[orl.FiniteMDP, orl.Ladder]:
    """A problem whose kernel is in the second of three classes, the smaller of which is wrong at once."""
    draw = np.random.default_rng(0)
    kernels = draw.dirichlet(np.full(3, 0.3), size=(6, 3, 2))
    mdp = orl.FiniteMDP(transition=kernels[2], reward=draw.random((3, 2)), horizon=5)
    families = [orl.FiniteFamily(kernels[:n]) for n in (2, 4, 6)]
    return mdp, orl.Ladder(
        families,
        names=["plain", "two $ signs $", "a class with a name that is much too long to show"],
    )


@pytest.fixture(scope="module")
def result(ladder: tuple[orl.FiniteMDP, orl.Ladder]) -> orl.Result:
    return orl.run(orl.ARLGen(ladder=ladder[1]), ladder[0], episodes=400, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real experiment with selection of classes, selection of features, norm bounds, a rule, and no regret."""
    place = tmp_path_factory.mktemp("experiment") / "out"
    sweep = {"rule": [{"name": "UCB1", "parameters": {"scale": scale}} for scale in (1.0, 0.1)]}
    mixture = {"states": 6, "actions": 2, "horizon": 4, "dimension": 6, "nonzero": 2, "gamma": 0.5}
    lin = {"norm_bound": "true"}
    blocks = [{"partition": partition, "actions": 2} for partition in ([0, 0, 0], [0, 1, 2])]
    classes = [{"name": "AggregationFamily", "parameters": each} for each in blocks]
    agents: list[Any] = [
        {
            "name": "ARLGen",
            "parameters": {"ladder": {"classes": classes}},
            "label": MARKUP,
            "only": ["RiverSwim"],
        },
        {"name": "ARLLinDim", "label": FORMULA, "parameters": lin, "only": ["SparseMixture"]},
        {"name": "ARLLinNorm", "parameters": {"norm_bound": "9 * true"}, "only": ["SparseMixture"]},
        {
            "name": "Arena",
            "label": "{rule}",
            "bases": ["UniformRandom", "Optimal"],
            "sweep": sweep,
            "only": ["RiverSwim"],
        },
        "Optimal",
    ]
    problems: list[Any] = [{"name": "RiverSwim", "parameters": {"states": 3}}]
    problems += [{"name": "SparseMixture", "parameters": mixture}]
    about: dict[str, Any] = {
        "name": MARKUP,
        "description": "made up",
        "baseline": "Optimal",
        "thinning": 60,
    }
    experiment = orl.Experiment(episodes=100, seeds=3, problem=problems, agent=agents, **about)
    experiment.run(place, workers=1, progress=False)
    return place


class WellFormed(HTMLParser):
    """Checks that elements are closed in order, and keeps what would be asked of a network."""

    VOID = ("meta", "link", "img", "br", "hr", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
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
    one, other = draw.normal(5.0, 1.0, 12), draw.normal(7.0, 1.0, 12)
    found = data.summarise(one)
    low, high = found["interval"]
    assert low < found["mean"] < high
    assert abs(found["mean"] - one.mean()) < 1e-4
    assert np.sort(one)[3:9].mean() == pytest.approx(found["iqm"], rel=1e-5)
    assert data.summarise(one[:2])["interval"] is None
    both = data.paired(dict(enumerate(one)), dict(enumerate(other[:10])) | {99: 0.0})
    assert both is not None
    assert both["pairs"] == 10
    assert both["unpaired"] == [10, 11, 99]
    assert both["mean"] == pytest.approx((one[:10] - other[:10]).mean(), rel=1e-5)
    assert both["less"] + both["more"] == 10
    assert data.paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_slope_of_a_power_is_its_exponent_however_the_curve_is_thinned(power: float) -> None:
    every, few = np.arange(1, 10_001), np.unique(np.geomspace(1, 10_000, 60).astype(int))
    for episodes in (every, few):
        assert data.slope(episodes, 3.0 * episodes.astype(np.float64) ** power) == pytest.approx(
            power, abs=1e-6
        )
    assert np.isnan(data.slope(every, np.zeros(every.size)))


def test_mean_curves_are_means_within_their_bands_and_cut_at_the_shortest() -> None:
    lengths = (100, 100, 80)
    cells = [
        record("p", "a", seed, (seed + 1.0) * np.sqrt(np.arange(1, n + 1)))
        for seed, n in enumerate(lengths)
    ]
    curve = data.mean_curve(data.groups_of(cells)[0])
    at = np.array(curve["episode"])
    assert at[-1] == 80
    np.testing.assert_allclose(curve["mean"], 2.0 * np.sqrt(at), rtol=1e-4)
    for low, high in (("low", "high"), ("smallest", "largest")):
        assert (np.array(curve[low]) <= np.array(curve["mean"]) + 1e-9).all()
        assert (np.array(curve["mean"]) <= np.array(curve[high]) + 1e-9).all()
    assert data.mean_curve(data.groups_of(cells[:2])[0])["low"] is None


def test_decisions_are_shares_of_seeds_at_episodes_and_settle_where_they_stop_changing() -> None:
    def phases(*parts: tuple[int, int]) -> list[dict[str, Any]]:
        rows, first = [], 1
        for chosen, episodes in parts:
            rows.append({"first": first, "episodes": episodes, "chosen": chosen})
            first += episodes
        return rows

    about = {"resolved": {"classes": ["x", "y", "z"], "true_class": 2}}
    runs = [((1, 10), (2, 90)), ((1, 20), (2, 80)), ((1, 60), (3, 40))]
    cells = [
        record("p", "a", seed, np.ones(100), phases(*parts), **about)
        for seed, parts in enumerate(runs)
    ]
    found = data.decisions(data.groups_of(cells)[0])
    assert found is not None
    assert found["labels"] == ["1 x", "2 y *", "3 z"]
    at, share = np.array(found["episode"]), np.array(found["share"], float)
    np.testing.assert_allclose(share.sum(axis=0), 1.0, atol=1e-5)
    np.testing.assert_allclose(share[1], ((at > 10).astype(int) + (at > 20)) / 3, atol=1e-5)
    assert found["settled"] == {"episode": 21, "final": 2, "agree": 2, "seeds": 3}
    (sentence,) = data.build(records(cells))["problems"][0]["headline"]
    assert "class 2 y" in sentence
    assert "2 of 3 seeds" in sentence


def test_swept_parameters_become_curves_and_tuning_seeds_are_not_shown() -> None:
    cells = []
    for scale in (0.1, 1.0):
        for seed in (0, 1, 2, 50):
            each = record("p", f"a{scale}", seed, np.full(10, scale * (seed + 1)))
            each["agent"] = {"name": "a", "label": f"a{scale}", "parameters": {"scale": scale}}
            cells.append(each)
    now = records(cells)
    now.spec.update(
        tuning_seeds=[50],
        agent=[{"name": "a", "label": "a{scale}", "sweep": {"scale": [0.1, 1.0]}}],
    )
    model = data.build(now)
    (sweep,) = model["sweeps"]
    assert sweep["parameter"] == "scale"
    assert sweep["lines"][0]["x"] == [0.1, 1.0]
    np.testing.assert_allclose(sweep["lines"][0]["mean"], [0.2, 2.0])
    assert model["problems"][0]["agents"][0]["seeds"] == [0, 1, 2]
    assert len(model["league"]) == 1


def test_what_is_printed_of_records_fits_a_screen() -> None:
    cells = [
        record(f"problem {p}", f"agent {a}", 0, np.ones(10), total_return=1.0)
        for p in range(9)
        for a in range(9)
    ]
    lines = str(records(cells)).splitlines()
    assert len(lines) <= 25
    assert "61 more" in lines[-1]
    assert max(map(len, lines)) < 160


# ------------------------------------------------------------------------------------------ figures


@pytest.mark.parametrize("scale", ["linear", "semilogx", "semilogy", "loglog"])
@pytest.mark.parametrize("episodes", [1, 50, 10**15])
def test_regret_is_drawn_at_any_length_also_where_there_is_none(episodes: int, scale: Any) -> None:
    problem, drawn = orl.make_problem("river-swim", states=3), axes()
    for agent in (Optimal(mdp=problem.mdp), UniformRandom()):
        run = orl.run(agent, problem, episodes=episodes, progress=False)
        run.plot(drawn, scale=scale)
    zero, some = drawn.get_lines()
    assert str(zero.get_label()) == "Optimal" + " (0)" * (scale in ("semilogy", "loglog"))
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
    assert all(
        one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1 for one, other in itertools.pairwise(boxes)
    )
    ends = [
        np.asarray(path.vertices)[:, 0].max()
        for bar in below.collections
        for path in bar.get_paths()
    ]
    assert max(ends) == pytest.approx(result.total_episodes + 0.5)


def test_the_policy_is_drawn_state_by_step(result: orl.Result) -> None:
    drawn = result.plot_policy(axes(), states=["left", "$a$", "right"], actions=["stay", "go"])
    (image,) = drawn.get_images()
    np.testing.assert_array_equal(np.asarray(image.get_array()), result.policy().T)
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["left", r"\$a\$", "right"]
    with pytest.raises(orl.InvalidInput, match="states"):
        result.plot_policy(axes(), states=["one"])


def test_curves_have_bands_and_every_plot_of_a_report_is_written(
    folder: Path, tmp_path: Path
) -> None:
    drawn = axes()
    x = [1, 2, 3]
    draw_curves(
        drawn,
        [{"name": "a $", "episode": x, "mean": x, "low": [0, 1, 2], "high": [2, 3, 4]}],
        scale="loglog",
    )
    assert len(drawn.collections) == 1
    problem = orl.make_problem("river-swim", states=3)
    agents = {"uniform": UniformRandom(), "optimal": Optimal(mdp=problem.mdp)}
    found = orl.compare(agents, problem, episodes=30, seeds=3, workers=1, progress=False)
    lines = found.plot(axes(), scale="loglog").get_lines()
    np.testing.assert_allclose(
        [np.asarray(line.get_ydata())[-1] for line in lines], [row["regret"] for row in found.rows]
    )
    model = data.build(orl.load(folder))
    written = write_figures(model, tmp_path, formats=["svg"])
    assert len(written) == len(set(written)) == 2 * 3 + 5  # curves twice, differences, decisions
    one = {**model, "problems": model["problems"][:1]}
    again = write_figures(one, tmp_path / "again", formats=["svg"])
    assert all(path.read_bytes() == (tmp_path / path.name).read_bytes() for path in again)


def test_bands_hold_the_mean_and_do_not_fall() -> None:
    draw = np.random.default_rng(0)
    values = np.cumsum(
        draw.exponential(size=(10, 300)) * draw.integers(0, 30, size=(10, 300)) ** 3, axis=1
    )
    for band in ("bootstrap", "quantiles"):
        curve = curve_of(np.arange(1, 301), values, band)
        for side in ("low", "high"):
            assert (np.diff(curve[side]) >= 0.0).all()
        assert (curve["low"] <= curve["high"]).all()
    assert (curve_of(np.arange(1, 301), values)["low"] <= values.mean(axis=0)).all()
    assert curve_of(np.arange(1, 301), values, None)["low"] is None


def test_figures_for_papers(folder: Path, tmp_path: Path) -> None:
    records = orl.load(folder)
    with pytest.raises(orl.InvalidInput, match=r"problem.*RiverSwim.*SparseMixture"):
        records.plot()
    for band, lines in (("seeds", 4), ("quantiles", 1), (None, 1)):
        drawn = records.plot(scale="semilogy", band=band, problem="SparseMixture")  # type: ignore[arg-type]  # a name
        labels = drawn.get_legend_handles_labels()[1]
        assert len(labels) == 3
        assert "Optimal (0)" in labels
        assert len(drawn.get_lines()) == 3 * lines
        assert len(drawn.collections) == 3 * (band == "quantiles")
    figure: Any = drawn.figure
    assert figure.get_figwidth() == 3.3
    figure.savefig(tmp_path / "regret.pdf")
    assert b"/FontFile2" in (tmp_path / "regret.pdf").read_bytes()  # TrueType, embedded
    assert b"/Type3" not in (tmp_path / "regret.pdf").read_bytes()
    assert b"/CreationDate" not in (tmp_path / "regret.pdf").read_bytes()
    wide: Any = records.plot(problem="RiverSwim", width="page").figure
    assert wide.get_figwidth() == 6.9
    for wrong in (
        {"scale": "log"},
        {"band": "sd"},
        {"width": "wide"},
        {"width": 0.0},
        {"problem": "RiverSwam"},
    ):
        with pytest.raises(orl.InvalidInput, match=next(iter(wrong))):
            records.plot(**{"problem": "RiverSwim", **wrong})  # type: ignore[arg-type]  # wrong on purpose
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
    from occamrl.logs.log import simulate_log

    mdp, models = ladder
    played = orl.run(UniformRandom(), mdp, episodes=5, progress=False)
    assert played.verdict.sentences[0] in require_self_contained(
        played.page(tmp_path / "plain.html")
    )
    answer = orl.select(simulate_log(mdp, episodes=40), models, mdp.known)
    text = require_self_contained(write_page(answer, tmp_path / "log.html"))
    assert answer.sentences[0].split("'")[1] in text
    assert f"{answer.steps:,} steps" in text


def test_the_report_is_one_file_with_the_numbers_of_the_records(folder: Path) -> None:
    text = require_self_contained(write_report(folder))
    assert MARKUP not in text  # as markup
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert block is not None
    model = json.loads(block.group(1))
    assert model["name"] == MARKUP
    now = orl.load(folder)
    for problem in model["problems"]:
        for one in problem["agents"]:
            label = model["agents"][one["agent"]]
            own = [
                c
                for c in now.cells
                if c["problem"]["label"] == problem["name"] and c["agent"]["label"] == label
            ]
            np.testing.assert_allclose(
                one["totals"], [cell["total_regret"] for cell in own], rtol=1e-5
            )
            assert one["curve"]["mean"][-1] == pytest.approx(one["regret"]["mean"], rel=1e-5)
    kinds = {
        one["decisions"]["kind"]
        for p in model["problems"]
        for one in p["agents"]
        if one["decisions"]
    }
    assert kinds == {"class", "features", "norm", "base"}
    assert model["league"]
    assert model["status"] == {
        "done": 21,
        "begun": 0,
        "missing": 0,
        "failed": 0,
        "total": 21,
        "failures": [],
    }
    assert write_report(folder).read_text("utf-8") == text  # and the same again


def test_an_experiment_without_finished_cells_has_a_page_that_says_why() -> None:
    failed = record("p", "a", 0, np.ones(1)) | {
        "status": "failed",
        "reason": "Traceback\nValueError: no",
    }
    model = data.build(records([], failed=[failed], missing=["x"]))
    assert model["status"]["failures"][0]["reason"] == "ValueError: no"
    WellFormed(render(model))


# ------------------------------------------------------------------------------------------ browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real browser; without one the tests are skipped, with OCCAMRL_REQUIRE_BROWSER=1 they fail."""
    program = (
        os.environ.get("OCCAMRL_BROWSER")
        or shutil.which("chromium")
        or shutil.which("chromium-browser")
    )
    try:
        from playwright.sync_api import sync_playwright

        if program is None:
            raise FileNotFoundError("chromium")
        driver = sync_playwright().start()
    except (ImportError, OSError) as missing:
        if os.environ.get("OCCAMRL_REQUIRE_BROWSER"):
            raise
        pytest.skip(f"no browser: {missing}")
    browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
    yield browser
    browser.close()
    driver.stop()


class Watched:
    """A page of which every request, console message and error is kept."""

    def __init__(self, browser: Browser, path: Path, **context: Any) -> None:
        self.page: Page = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **context}
        ).new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("footer")

    def require_quiet(self) -> None:
        """Nothing is asked of a network, nothing complains, and nothing sticks out."""
        assert len(self.requests) == 1
        assert self.complaints == []
        assert self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


@pytest.mark.parametrize(
    "context",
    [{}, {"color_scheme": "dark"}, {"viewport": {"width": 375, "height": 740}, "is_mobile": True}],
    ids=["desktop", "dark", "phone"],
)
def test_the_report_in_a_browser_asks_nothing_and_shows_names_as_text(
    chromium: Browser, folder: Path, context: dict[str, Any]
) -> None:
    watched = Watched(chromium, write_report(folder), **context)
    page = watched.page
    assert page.inner_text("h1") == MARKUP
    assert page.evaluate("window.owned") is None
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("figure").count() >= 2 + 1 + 5
    watched.require_quiet()


def test_controls_of_the_report_work_from_the_keyboard_and_downloads_hold_the_data(
    chromium: Browser, folder: Path
) -> None:
    watched = Watched(chromium, write_report(folder))
    page = watched.page

    def lines() -> list[str]:
        found: list[str] = page.eval_on_selector_all(
            "#regret-0 path.line", "all => all.map(a => a.getAttribute('d'))"
        )
        return found

    page.click("label:has(#axes-linear)")
    linear = lines()
    page.focus("#axes-linear")
    page.keyboard.press("ArrowRight")
    assert not set(lines()) & set(linear)
    assert (
        page.evaluate("document.activeElement.id") == "axes-log"
    )  # the focus outlives the drawing
    page.keyboard.press("ArrowLeft")
    page.focus("#key-0-0")
    page.keyboard.press("Enter")
    assert len(lines()) == len(linear) - 1
    page.focus("#regret-0")
    page.keyboard.press("End")
    assert page.inner_text("#regret-0 + .reading") == "Episode 100"
    first = page.inner_text("#differences-0")
    page.select_option("#baseline", index=0)
    assert page.inner_text("#differences-0") != first
    with page.expect_download() as download:
        page.click("#csv-totals")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8"))))
    assert f"'{FORMULA}" in {
        row["agent"] for row in rows
    }  # a spreadsheet shows it instead of running it
    now = orl.load(folder)
    assert sum(float(row["total_regret"]) for row in rows) == pytest.approx(
        sum(cell["total_regret"] for cell in now.cells), rel=1e-4
    )
    watched.require_quiet()


def test_the_page_of_an_answer_in_a_browser(
    chromium: Browser, result: orl.Result, tmp_path: Path
) -> None:
    watched = Watched(chromium, result.page(tmp_path / "answer.html"))
    widths = watched.page.locator("img").evaluate_all("all => all.map(e => e.naturalWidth)")
    assert min(widths) > 200
    assert "two $ signs $" in watched.page.inner_text("h1")
    watched.require_quiet()
