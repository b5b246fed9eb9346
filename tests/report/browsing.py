"""A real browser for the tests: chromium, driven by Playwright.

Without it the tests that need it are skipped and say what is missing; with ``OCCAMRL_REQUIRE_BROWSER`` set they fail.
``OCCAMRL_BROWSER`` names the program if it is not on the path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_FLAGS = (
    "--no-sandbox",  # as root, in a container, there is no other way; the pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _missing(what: str) -> None:
    if os.environ.get("OCCAMRL_REQUIRE_BROWSER"):
        pytest.fail(f"{what}, and OCCAMRL_REQUIRE_BROWSER insists on it")
    pytest.skip(what)


@contextmanager
def browser() -> Iterator[Browser]:
    """Give a browser, or skip the test."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed (pip install playwright)")
    program = os.environ.get("OCCAMRL_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        _missing("no chromium on the path (Debian: apt-get install chromium; or name one in OCCAMRL_BROWSER)")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        yield found
        found.close()


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
