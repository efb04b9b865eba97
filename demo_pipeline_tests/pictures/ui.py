"""Dagster's UI after *Lineage → Materialize all* over six uploads, of which one is broken."""

import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.doors.ui_walk import (
    BROKEN,
    PATIENCE,
    materialize_the_lineage,
    runs_since,
    ui_with_six_uploads,
)

WIDTH = 1000  # CSS pixels; pages show 800 of them
_SCALE = 1.5  # pixels of the file for a CSS pixel
_COLOURS = 64  # a palette keeps the files small; the UI has few colours
_LOADED_MS = 6000  # states arrive after the names, and the graph moves into its place
# The graph from top to bottom has the largest boxes.
_PREFERENCES = """
localStorage.setItem("asset-graph-direction", JSON.stringify("vertical"));
localStorage.setItem("dagster-nav-collapsed", "true");
"""


def draw(_root: Path, images: Path) -> list[Path]:
    """Write `ui_lineage.png` and `ui_partitions.png`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ui_with_six_uploads(Path(folder)) as address,
        opened_browser() as browser,
    ):
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        materialize_the_lineage(page, address)
        runs_since(address, set())
        return photograph(browser, address, images)


def photograph(browser: Browser, address: str, images: Path) -> list[Path]:
    """Write the pictures of a server whose uploads have been processed."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 950}, device_scale_factor=_SCALE)
    page.set_default_timeout(PATIENCE)
    page.add_init_script(_PREFERENCES)
    page.goto(f"{address}/asset-groups")
    expect(page.get_by_text("trajectory_index").first).to_be_visible(timeout=PATIENCE)
    lineage = _taken(page, images / "ui_lineage.png")
    page.set_viewport_size({"width": WIDTH, "height": 430})
    page.goto(f"{address}/assets/events?view=partitions&partition={BROKEN}")
    expect(page.get_by_text("did not materialize this asset")).to_be_visible(timeout=PATIENCE)
    return [lineage, _taken(page, images / "ui_partitions.png")]


def _taken(page: Page, path: Path) -> Path:
    page.wait_for_timeout(_LOADED_MS)
    pixels = Image.open(BytesIO(page.screenshot())).convert("RGB")
    pixels.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    return path
