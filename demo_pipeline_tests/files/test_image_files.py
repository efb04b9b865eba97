"""Tests that kind and size of an image are read from the file's headers alone."""

import cv2
import numpy as np
import pytest

from demo_pipeline.files.image_files import (
    PNG_SIGNATURE,
    ImageInfo,
    PngWriter,
    png_size,
    probe_image,
)

PICTURE = np.arange(20 * 30 * 3, dtype=np.uint32).astype(np.uint8).reshape(20, 30, 3)
PNG = PngWriter().encode(PICTURE)
JPEG = cv2.imencode(".jpg", PICTURE)[1].tobytes()


def test_the_size_is_read_from_the_header_alone(tmp_path):
    path = tmp_path / "one.png"
    path.write_bytes(PNG)
    assert png_size(path) == (30, 20)
    path.write_bytes(PNG[:29])
    assert png_size(path) == (30, 20)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a PNG file"),
        (JPEG, "not a PNG file"),
        (PNG_SIGNATURE, "PNG without a header"),
        (PNG[:28], "PNG without a header"),
        (PNG.replace(b"IHDR", b"IDAT", 1), "PNG without a header"),
        (PNG[:16] + bytes(4) + PNG[20:], "PNG without width or height"),
    ],
)
def test_a_file_that_is_not_a_png_has_no_size(tmp_path, data, reason):
    path = tmp_path / "one.png"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        png_size(path)
    with pytest.raises(FileNotFoundError):
        png_size(tmp_path / "none.png")


def test_kind_and_size_of_whole_pictures():
    assert probe_image(PNG) == ImageInfo("png", 30, 20)
    assert probe_image(JPEG) == ImageInfo("jpeg", 30, 20)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"GIF89a", "neither PNG nor JPEG"),
        (PNG[:-1], "PNG is cut off"),
        (PNG[:60] + bytes([PNG[60] ^ 1]) + PNG[61:], "damaged PNG"),
        (PNG[:33] + PNG[-12:], "PNG without pixels"),
        (JPEG[:-2], "JPEG is cut off"),
        (b"\xff\xd8\xff\xd9" + bytes(9), "JPEG without a frame header"),
    ],
)
def test_the_reason_says_what_is_wrong(data, reason):
    with pytest.raises(ValueError, match=reason):
        probe_image(data)
