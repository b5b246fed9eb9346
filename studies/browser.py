"""Pages in a real browser: names from strangers, and what pages look like.

    python -m studies.browser names              hostile names in pages of answers and of reports
    python -m studies.browser shots FOLDER       pictures of pages: three widths, dark, and print

Needs Chromium, or a browser of its kind named in OCCAMRL_BROWSER. Every page is opened at the width
of a phone and of a desk; a page may ask nothing of a network, complain of nothing, run nothing that
a name says, and stick out nowhere.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import occamrl as orl
from occamrl.demo import answer_of_the_shop, shop_log
from occamrl.progress import Progress
from occamrl.report.page import write_report
from tests.test_names import HOSTILE, answer_with

PHONE = {"width": 390, "height": 840}
TABLET = {"width": 800, "height": 1100}
DESK = {"width": 1300, "height": 900}


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium; FileNotFoundError without one."""
    names = ("chromium", "chromium-browser")
    installed = [program for program in map(shutil.which, names) if program is not None]
    program = os.environ.get("OCCAMRL_BROWSER") or next(iter(installed), None)
    if program is None:
        raise FileNotFoundError("chromium")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


class Watched:
    """A page of which every request, console message, dialog and error is kept."""

    def __init__(self, browser: Browser, path: Path, **context: Any) -> None:
        options = {"viewport": DESK, **context}
        self.page: Page = browser.new_context(**options).new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("footer")

    def require_quiet(self) -> None:
        """Nothing is asked of a network, nothing complains, and nothing sticks out."""
        if len(self.requests) != 1 or self.complaints:
            raise AssertionError(f"{self.requests} {self.complaints}")
        inside = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        if not self.page.evaluate(inside):
            raise AssertionError("something sticks out")

    def close(self) -> None:
        """Forget the page."""
        self.page.context.close()


def report_with(name: str, folder: Path) -> Path:
    """Write the report of an experiment whose agents, problem and texts bear a name."""
    experiment = orl.Experiment(
        name="names",
        description=name,
        thinning=10,
        episodes=20,
        seeds=2,
        problem=[{"name": "RiverSwim", "parameters": {"states": 3}, "label": name}],
        agent=[
            {"name": "UniformRandom", "label": name},
            {"name": "PSRL", "label": f"{name} and more"},
        ],
    )
    experiment.run(folder, workers=1, progress=False)
    return write_report(folder)


def names(work: Path) -> None:
    """Open pages with hostile names; raise at the first that does more than show them."""
    opened = 0
    bar = Progress("names", len(HOSTILE), None, "names")
    with browser() as chromium:
        for number, name in enumerate(HOSTILE.values()):
            page = answer_with(name).answer.page(work / f"{number}.html")
            report = report_with(name, work / f"report-{number}")
            for path in (page, report):
                for viewport in (PHONE, DESK):
                    watched = Watched(chromium, path, viewport=viewport)
                    watched.require_quiet()
                    watched.close()
                    opened += 1
            bar.update(number + 1)
    bar.close()
    print(f"{len(HOSTILE)} names, {opened} pages opened: none asked, complained or stuck out")


def written_pages(work: Path) -> dict[str, Path]:
    """Write the pages that people see: a shop, an odd shop, a grid, a report."""
    plain = work / "flowers.csv"
    plain.write_text(shop_log(), "utf-8")
    odd = work / "flowers-odd.csv"
    odd.write_text(shop_log(0.01), "utf-8")
    lake = orl.make_problem("patchy-ice")
    walk = orl.run(orl.Occam(ladder=orl.Ladder.of_problem(lake)), lake, episodes=200)
    return {
        "shop": answer_of_the_shop(plain).page(work / "shop.html"),
        "odd-shop": answer_of_the_shop(odd).page(work / "odd-shop.html"),
        "grid": walk.page(work / "grid.html"),
        "report": report_with("a report", work / "report"),
    }


def shots(work: Path, folder: Path) -> None:
    """Take pictures of pages."""
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for name, path in written_pages(work).items():
            looks: dict[str, dict[str, Any]] = {
                "phone": {"viewport": PHONE},
                "tablet": {"viewport": TABLET},
                "desk": {"viewport": DESK},
                "dark": {"viewport": DESK, "color_scheme": "dark"},
            }
            for look, context in looks.items():
                watched = Watched(chromium, path, **context)
                watched.page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
                watched.require_quiet()
                watched.close()
            watched = Watched(chromium, path)
            watched.page.pdf(path=folder / f"{name}.pdf")
            watched.close()
            print(folder / f"{name}-*.png", flush=True)


def main() -> None:
    """Open names, or take pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("names", "shots"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("out"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="occamrl-") as work:
        if options.part == "names":
            names(Path(work))
        else:
            shots(Path(work), options.folder)


if __name__ == "__main__":
    main()
