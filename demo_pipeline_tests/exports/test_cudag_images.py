"""Tests of the annotated screenshots of a CUDAG dataset."""

from pathlib import Path

import cv2
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.cudag.dataset import annotate
from demo_pipeline.exports.cudag.models import CudagMetadata
from demo_pipeline.files.image_files import PngWriter

PLACES = st.tuples(st.integers(-20, 140), st.integers(-20, 110))


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(["click", "drag"]),
    start=PLACES,
    end=PLACES,
    tolerance=st.tuples(st.integers(0, 300), st.integers(0, 300)),
)
def test_annotating_a_png_gives_the_pixels_of_drawing_on_the_whole_image(
    tmp_path_factory, kind, start, end, tolerance
):
    """Annotated files do not depend on the encoder that wrote the screenshot."""
    folder: Path = tmp_path_factory.getbasetemp()
    rgb = np.random.default_rng(1).integers(0, 256, (90, 120, 3)).astype(np.uint8)
    PngWriter().write(folder / "ours.png", rgb)
    assert cv2.imwrite(str(folder / "other.png"), rgb[:, :, ::-1])
    metadata = CudagMetadata(
        task_type=kind, real_coords=start, end_coords=end, tolerance=tolerance, image_size=(120, 90)
    )
    for name in ("ours", "other"):
        assert annotate(folder / f"{name}.png", folder / f"{name}_drawn.png", metadata)
    drawn = (folder / "ours_drawn.png").read_bytes()
    assert drawn == (folder / "other_drawn.png").read_bytes()
