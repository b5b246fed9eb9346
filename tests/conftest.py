"""What every test shares: no window, reproducible Hypothesis, and seeds that a variable can widen.

``OCCAMRL_TEST_SEEDS=20 make test`` runs each test that uses ``test_seed`` with 20 seeds instead of one. Every one of
them must pass: a statistical test states its own error rate, small enough for that.
"""

from __future__ import annotations

import os

os.environ.setdefault("MPLBACKEND", "Agg")  # before anything imports matplotlib

import shutil
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# No deadline and no complaint about slow examples: the first call of a kernel compiles it, and tests do not time.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell, and in what is started there
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _seeds() -> range:
    text = os.environ.get("OCCAMRL_TEST_SEEDS", "1")
    if not text.isdecimal() or int(text) == 0:
        raise pytest.UsageError(f"OCCAMRL_TEST_SEEDS: got {text!r}, expected a positive whole number")
    return range(int(text))


@pytest.fixture(scope="session", params=_seeds(), ids="seed{}".format)
def test_seed(request: pytest.FixtureRequest) -> int:
    """Return the root seed of a statistical test: 0, or each of 0 ... OCCAMRL_TEST_SEEDS - 1."""
    seed: int = request.param
    return seed


_BROWSER_FLAGS = (
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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Give a browser, or skip the test."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed (pip install playwright)")
    program = os.environ.get("OCCAMRL_BROWSER") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        _missing("no chromium on the path (Debian: apt-get install chromium; or name one in OCCAMRL_BROWSER)")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=list(_BROWSER_FLAGS))
        yield found
        found.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest: what is begun last decides when the last process ends."""
    longest = ("test_bounds.py", "test_documentation.py", "test_checks.py", "test_arl_gen_regression.py")
    items.sort(key=lambda item: next((i for i, name in enumerate(longest) if name in item.nodeid), len(longest)))
