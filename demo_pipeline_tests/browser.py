"""The browser that tests of pages need; without one exactly those are left out, and told."""

import os
import shutil

NEEDED = "browser"  # the mark of tests that need one
HOW = "apt-get install chromium (Debian, Ubuntu), or name one: CHROMIUM=/path/to/chromium"


def find_chromium() -> str | None:
    """The installed browser; `CHROMIUM` names one that has another name."""
    names = [os.environ.get("CHROMIUM", "chromium"), "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


def chromium() -> str:
    """The same, which is there: without one no test that asks for it runs."""
    found = find_chromium()
    if found is None:
        raise FileNotFoundError(f"No Chromium to look at pages with: {HOW}")
    return found
