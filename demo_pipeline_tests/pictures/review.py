"""Draws the review page with a step of a desktop recording."""

from pathlib import Path

from playwright.sync_api import expect

from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.review.serving import served
from demo_pipeline_tests.sample_workspace import open_workspace

STEP = "20261121_212358/3"  # a click on a combo box, after typing with a pause
WIDTH = 1120  # CSS pixels; the documentation scales the picture to 800
_SCALE = 1.5  # image pixels per CSS pixel


def draw(root: Path, images: Path) -> list[Path]:
    """Writes `review.jpg`."""
    picture = images / "review.jpg"
    with served(open_workspace(root), author="you") as server, opened_browser() as browser:
        page = browser.new_page(
            viewport={"width": WIDTH, "height": 690}, device_scale_factor=_SCALE
        )
        page.goto(f"{server.url}#{STEP}")
        expect(page.locator(f'#canvas[data-shown="{STEP}"]')).to_be_attached()
        expect(page.locator("#tree li.chosen")).to_be_attached()
        page.screenshot(path=picture, type="jpeg", quality=50)
    return [picture]
