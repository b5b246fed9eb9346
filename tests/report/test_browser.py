"""The page in a real browser: chromium, driven by Playwright.

Without it these tests are skipped and say what is missing; with ``OCCAMRL_REQUIRE_BROWSER`` set they fail.
``OCCAMRL_BROWSER`` names the program if it is not on the path; ``OCCAMRL_SCREENSHOTS=folder`` keeps pictures.
"""

from __future__ import annotations

import csv
import io
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from occamrl.experiments.records import Records
from occamrl.report.page import write_report
from occamrl.report.watch import Server, Source
from tests.report.synthetic import FORMULA, KINDS, MARKUP, NAMES, Kind, hostile, records

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class Watched:
    """A page of which every request, console message and error is kept."""

    def __init__(self, browser: Browser, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, address: str) -> Page:
        """Go there and wait until the page has drawn itself."""
        self.page.goto(address)
        self.page.wait_for_selector("#reproduce")
        return self.page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    who = {"problem": {"label": "RiverSwim"}, "agent": {"label": "Optimal"}, "seed": 3}
    failed = [{"cell": "00ff", "reason": "killed three times", **who}]
    out = tmp_path_factory.mktemp("page") / "report.html"
    return write_report(records(failed=failed), out).as_uri()


def paths(page: Page, figure: int = 0) -> list[str]:
    """Return what is drawn in a regret figure."""
    found: list[str] = page.eval_on_selector_all(
        f"#regret-{figure} path.line", "all => all.map(a => a.getAttribute('d'))"
    )
    return found


def downloaded(page: Page, selector: str) -> tuple[str, str]:
    with page.expect_download() as download:
        page.click(selector)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes().decode()


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("OCCAMRL_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("desktop", {}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 375, "height": 740}, "is_mobile": True, "has_touch": True}),
        ("wide", {"viewport": {"width": 1920, "height": 1080}}),
        ("phone-dark", {"viewport": {"width": 320, "height": 600}, "is_mobile": True, "color_scheme": "dark"}),
        ("print", {"viewport": {"width": 718, "height": 1046}}),
    ],
)
def test_nothing_is_asked_of_a_network_nothing_complains_and_nothing_sticks_out(
    chromium: Browser, report: str, name: str, context: dict[str, Any]
) -> None:
    watched = Watched(chromium, **context)
    page = watched.open(report)
    if name == "print":
        page.emulate_media(media="print")
        assert page.locator("button >> visible=true").count() == page.locator(".keys button").count()
        assert page.locator("#axes").is_hidden()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("figure").count() == 2 + 2 * 3
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    tables = "[...document.querySelectorAll('section .scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert page.evaluate(tables) == 0 or name == "phone-dark"  # of 320 pixels
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == name.endswith("dark")
    picture(page, name)
    assert watched.requests == [report]
    assert watched.complaints == []


def test_every_control_works_from_the_keyboard(chromium: Browser, report: str) -> None:
    watched = Watched(chromium)
    page = watched.open(report)
    assert page.is_checked("#axes-log")  # the best agent would lie on the zero line
    page.focus("#axes-log")
    page.keyboard.press("ArrowLeft")
    linear = paths(page)
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "axes-log"  # the focus outlives the drawing
    logarithmic = paths(page)
    assert len(logarithmic) == len(linear) - 1  # Optimal has no regret, hence no logarithm
    assert not set(logarithmic) & set(linear)
    page.keyboard.press("ArrowLeft")
    assert paths(page) == linear

    page.focus("#key-0-4")
    page.keyboard.press("Enter")
    assert page.get_attribute("#key-0-4", "aria-pressed") == "false"
    assert len(paths(page)) == len(linear) - 1
    page.keyboard.press("Enter")
    assert paths(page) == linear

    bands = "() => [...document.querySelectorAll('#regret-0 path.band')].map(a => a.getAttribute('d')).join()"
    before = page.evaluate(bands)
    page.focus("#band-interval")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(bands) != before

    page.focus("#regret-0")
    page.keyboard.press("End")
    assert page.inner_text("#regret-0 + .reading") == "Episode 20,000"
    assert page.inner_text("#key-0-0 output").replace(",", "").isdecimal()
    assert watched.complaints == []


def test_baselines_views_and_statistics_can_be_chosen(chromium: Browser, report: str) -> None:
    page = Watched(chromium).open(report)
    assert page.locator("#differences-0 tbody tr").count() == len(KINDS) - 1
    first = page.inner_text("#differences-0")
    page.select_option("#baseline", label="Optimal")
    assert page.inner_text("#differences-0") != first
    assert page.input_value("#baseline") == "5"
    squares = "#view-0-1 >> xpath=ancestor::figure >> css=rect.class"
    assert page.locator(squares).count() == 0
    page.select_option("#view-0-1", "each")
    assert page.locator(squares).count() == 8 * 11  # seeds and epochs
    page.select_option("#view-0-2", "seed-0")
    page.click("label:has(#evidence-minus)")
    assert page.locator("text=minus threshold").count() > 0


def test_a_page_keeps_its_navigation_marks_the_best_folds_versions_and_shares_a_scale(
    chromium: Browser, report: str
) -> None:
    page = Watched(chromium, viewport={"width": 1920, "height": 1080}).open(report)
    assert page.locator("#summary-0 tr:has(.best)").all_inner_texts()[0].startswith("Optimal")
    assert page.locator("#versions").is_hidden()
    page.click("label:has(#scale-shared)")
    assert page.is_checked("#scale-shared")
    page.evaluate("window.scrollTo(0, 2000)")
    assert page.locator("nav").evaluate("e => e.getBoundingClientRect().y") == 0
    tops = page.locator(".panels:has(#regret-0) > figure").evaluate_all("all => all.map(e => e.offsetTop)")
    assert len(set(tops)) == 1  # both beside each other


def test_differences_of_very_different_size_have_a_logarithmic_axis(chromium: Browser, tmp_path: Path) -> None:
    kinds = [Kind("a", 0.5), Kind("b", 0.5, 1.5), Kind("c", 1.0)]
    page = Watched(chromium).open(write_report(records(problems=["p"], kinds=kinds), tmp_path / "p.html").as_uri())
    places = page.locator("#differences-0 path.mark").evaluate_all("all => all.map(e => e.getBoundingClientRect().x)")
    zero = page.locator("#differences-0 line.axis").first.evaluate("e => e.getBoundingClientRect().x")
    assert zero + 10 < places[0] < places[1]  # not on the zero line
    assert page.locator("text=logarithmic on both sides").count() == 1


def test_every_figure_and_table_has_a_name_and_every_control_a_label(chromium: Browser, report: str) -> None:
    page = Watched(chromium).open(report)
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0
    assert page.locator("svg:not([role=img]):not([aria-hidden=true])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    for one in page.locator("button, input, select").all():
        name = one.evaluate(
            "e => e.getAttribute('aria-label') || e.textContent || (e.labels[0] || {}).textContent || ''"
        )
        assert name.strip()
    assert page.locator("h1").count() == 1


def test_downloads_hold_the_data_of_the_figures(chromium: Browser, report: str) -> None:
    page = Watched(chromium).open(report)
    name, text = downloaded(page, "#csv-regret-0")
    assert name == "regret-Sparse-mixture.csv"
    rows = list(csv.DictReader(io.StringIO(text)))
    last = {row["agent"]: float(row["mean"]) for row in rows}
    assert float(last["UniformRandom"]) > float(last["ARL-GEN"]) > float(last["Optimal"]) == 0.0
    assert {row["seeds"] for row in rows} == {"8"}
    for button in page.locator("button[id^=csv-]").all():
        page.wait_for_timeout(200)  # chromium takes ten downloads a second, not more
        _, text = downloaded(page, f"#{button.get_attribute('id')}")
        assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1
        assert text.count("\r\n") > 1
    page.click("#spec summary")
    name, text = downloaded(page, "#get-spec")
    assert name == "made-up.toml"
    assert 'name = "made-up"' in text


def test_names_with_markup_are_shown_and_do_nothing(chromium: Browser, tmp_path: Path) -> None:
    watched = Watched(chromium)
    page = watched.open(write_report(hostile(), tmp_path / "report.html").as_uri())
    assert page.inner_text("h1") == MARKUP
    assert page.evaluate("window.owned") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    _, text = downloaded(page, "#csv-totals")
    agents = {row["agent"] for row in csv.DictReader(io.StringIO(text, newline=""))}
    assert f"'{FORMULA}" in agents  # a spreadsheet shows it instead of running it
    assert len(agents) == len(NAMES)
    assert not [name for name in agents if name.startswith(("=", "+", "-", "@"))]
    picture(page, "hostile")
    assert len(watched.requests) == 1
    assert watched.complaints == []


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds_are_shown_without_intervals(chromium: Browser, tmp_path: Path, seeds: int) -> None:
    page = Watched(chromium).open(write_report(records(seeds=seeds), tmp_path / "report.html").as_uri())
    assert page.locator("#regret-0 path.band, #regret-1 path.band").count() == 0
    assert page.locator("#summary-0 .ends:has-text('[')").count() == 0
    assert page.locator("text=there is no interval").count() == 2


def test_a_live_page_follows_the_run_and_keeps_what_was_chosen(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = [2]

    def load(folder: Path) -> Records:
        return records(problems=["p"], kinds=KINDS[:3], seeds=seeds[0], missing=["x"] * (12 - 3 * seeds[0]))

    for name in ("load", "status"):
        monkeypatch.setattr(f"occamrl.report.watch.{name}", load)
    with Server(Source(tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            watched = Watched(chromium)
            page = watched.open(server.address)
            page.click("label:has(#axes-log)")
            page.click("#spec summary")
            page.focus("#key-0-1")
            assert "6 of 12" in page.inner_text("#status")
            seeds[0] = 4
            (tmp_path / "experiment.json").touch()
            page.wait_for_selector("#status:has-text('12 of 12')", timeout=20_000)
            assert page.is_checked("#axes-log")
            assert page.evaluate("document.activeElement.id") == "key-0-1"
            assert page.evaluate("document.getElementById('spec').open") is True
            assert {url.split("?")[0] for url in watched.requests} == {server.address, server.address + "data.json"}
            assert watched.complaints == []
            watched.context.close()
        finally:
            server.shutdown()
            thread.join()
