"""Finds and opens the browser for tests of web pages.

Without a browser, only these tests are skipped, with a message.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NEEDED = "browser"  # pytest mark of tests that need a browser
HOW = "apt-get install chromium (Debian, Ubuntu), or name one: CHROMIUM=/path/to/chromium"


def find_chromium() -> str | None:
    """Returns the path of the installed Chromium, or None if it is not installed.

    The environment variable `CHROMIUM` can contain another name or path of the browser.
    """
    names = [os.environ.get("CHROMIUM", "chromium"), "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def opened_browser() -> "Iterator[Browser]":
    """Opens the browser that `find_chromium` finds.

    Raises:
        FileNotFoundError: no browser is installed. Tests that need a browser are then skipped.
    """
    from playwright.sync_api import sync_playwright

    if (chromium := find_chromium()) is None:
        raise FileNotFoundError(f"No Chromium to look at pages with: {HOW}")
    with sync_playwright() as playwright:
        # Containers run as root, and Chromium's sandbox does not work for root.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
