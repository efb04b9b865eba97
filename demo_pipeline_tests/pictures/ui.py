"""Takes pictures of Dagster's UI after *Lineage → Materialize all* over six uploads, one broken."""

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

WIDTH = 1000  # CSS pixels; the documentation scales the pictures to 800
_SCALE = 1.5  # image pixels per CSS pixel
_COLOURS = 64  # size of the palette, which keeps the files small; the UI has few colours
_LOADED_MS = 6000  # time for the UI to load the states of the assets and to arrange the graph
# The boxes are largest if the graph is drawn from top to bottom.
_PREFERENCES = """
localStorage.setItem("asset-graph-direction", JSON.stringify("vertical"));
localStorage.setItem("dagster-nav-collapsed", "true");
"""


def draw(_root: Path, images: Path) -> list[Path]:
    """Writes `ui_lineage.png` and `ui_partitions.png`, and returns their paths."""
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
    """Writes the pictures from a running server whose uploads have been processed."""
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
