"""The site is built without its notebooks, which ``make docs`` executes, and opened in a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

import occamrl

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).parent.parent / "docs"


class Links(HTMLParser):
    """Collects where a page leads to, and the places that one can lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.places |= {str(about[name]) for name in ("id", "name") if about.get(name)}
        self.found += [str(about[name]) for name in ("href", "src") if about.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    order = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(place / "trees")]
    environment = {**os.environ, "OCCAMRL_WITHOUT_NOTEBOOKS": "1"}
    subprocess.run([*order, str(DOCS), str(place / "html")], check=True, env=environment)
    return place / "html"


def test_no_link_is_broken(site: Path) -> None:
    pages = {path: Links() for path in site.rglob("*.html")}
    for path, links in pages.items():
        links.feed(path.read_text("utf-8"))
    broken = []
    for path, links in pages.items():
        for link in links.found:
            if re.match(r"[a-z]+:|//|#?$", link):
                continue
            file, _, place = unquote(link.split("?")[0]).partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                broken.append((str(path.relative_to(site)), link))
    assert len(pages) > 40
    assert not broken


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    links = Links()
    links.feed((site / "site" / "reference.html").read_text("utf-8"))
    missing = [name for name in occamrl.__all__ if f"occamrl.{name}" not in links.places]
    assert not missing


def test_a_browser_opens_the_site(site: Path, chromium: Browser) -> None:
    page = chromium.new_page()
    page.goto((site / "index.html").as_uri())
    page.click("text=From your environment to a verdict")
    assert "From your environment to a verdict" in page.inner_text("h1")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.close()
