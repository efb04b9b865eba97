"""The browser that tests of pages need; without one exactly those are left out, and told."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NEEDED = "browser"  # the mark of tests that need one
HOW = "apt-get install chromium (Debian, Ubuntu), or name one: CHROMIUM=/path/to/chromium"


def find_chromium() -> str | None:
    """The installed browser; `CHROMIUM` names one that has another name."""
    names = [os.environ.get("CHROMIUM", "chromium"), "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def opened_browser() -> "Iterator[Browser]":
    """The same, opened; without one no test that asks for it runs."""
    from playwright.sync_api import sync_playwright

    if (found := find_chromium()) is None:
        raise FileNotFoundError(f"No Chromium to look at pages with: {HOW}")
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, as whom containers run.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
