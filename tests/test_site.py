"""The site is built without its notebooks, which ``make docs`` executes, and opened in a browser."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

import occamrl

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).parent.parent / "docs"


def links(page: Path) -> tuple[set[str], set[str]]:
    """Return where a page leads to, and the places in it that one can lead to."""
    tags = " ".join(re.findall(r"<[a-z][^>]*>", page.read_text("utf-8")))
    leads, places = (re.findall(rf' (?:{names})="([^"]*)"', tags) for names in ("href|src", "id|name"))
    return set(map(html.unescape, leads)), set(map(html.unescape, places))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    order = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(place / "trees")]
    environment = {**os.environ, "OCCAMRL_WITHOUT_NOTEBOOKS": "1"}
    subprocess.run([*order, str(DOCS), str(place / "html")], check=True, env=environment)
    return place / "html"


def test_no_link_is_broken(site: Path) -> None:
    pages = {path: links(path) for path in site.rglob("*.html")}
    broken = []
    for path, (found, _) in pages.items():
        for link in found:
            file, _, place = unquote(link.split("?")[0]).partition("#")
            target = (path.parent / file).resolve() if file else path
            there = target.exists() and (not place or target not in pages or place in pages[target][1])
            if not there and not re.match(r"[a-z]+:|//", link):
                broken.append((str(path.relative_to(site)), link))
    assert len(pages) > 40
    assert not broken


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    _, places = links(site / "site" / "reference.html")
    assert not {f"occamrl.{name}" for name in occamrl.__all__} - places


def test_a_browser_opens_the_site(site: Path, chromium: Browser) -> None:
    page = chromium.new_page()
    page.goto((site / "index.html").as_uri())
    page.click("text=From your environment to a verdict")
    assert "From your environment to a verdict" in page.inner_text("h1")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.close()
