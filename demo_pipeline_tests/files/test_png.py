"""PNG files that any reader opens, with the same bytes for the same image, and reading them."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from demo_pipeline.files.png import PngRows, PngWriter

WRITER = PngWriter()
PICTURES = 16_000


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 70), height=st.integers(1, 70), seed=st.integers(0, 9), flat=st.booleans()
)
def test_pixels_come_back_identical(
    tmp_path_factory: pytest.TempPathFactory, width: int, height: int, seed: int, flat: bool
) -> None:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    if flat:
        rgb[:] = rgb[0, 0]
    data = WRITER.encode(rgb)
    read = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert read is not None
    assert (read[:, :, ::-1] == rgb).all()
    assert WRITER.encode(rgb.copy()) == PngWriter().encode(rgb) == data
    path = tmp_path_factory.getbasetemp() / "picture.png"
    path.write_bytes(data)
    again = PngRows.read(path)
    assert again is not None
    assert again.size == (width, height)
    assert (again.rows(0, height) == rgb).all()


@given(
    width=st.integers(1, 40),
    height=st.integers(1, 150),
    ends=st.tuples(st.integers(0, 150), st.integers(0, 150)),
)
def test_changed_rows_give_the_file_of_the_changed_image(
    tmp_path_factory: pytest.TempPathFactory, width: int, height: int, ends: tuple[int, int]
) -> None:
    random = np.random.default_rng(width)
    rgb = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
    path = tmp_path_factory.getbasetemp() / "changed.png"
    WRITER.write(path, rgb)
    top, bottom = sorted(ends)
    top, bottom = min(top, height - 1), min(max(bottom, top + 1), height)
    again = PngRows.read(path)
    assert again is not None
    assert (again.rows(top, bottom) == rgb[top:bottom]).all()
    rgb[top:bottom] = random.integers(0, 256, rgb[top:bottom].shape)
    again.put(top, rgb[top:bottom])
    again.write(path)
    assert path.read_bytes() == WRITER.encode(rgb)


def test_the_bytes_do_not_depend_on_where_the_encoder_lies_in_memory() -> None:
    """ISA-L takes its address for pixels: one picture in some thousands differed between runs.

    Repeat it for a longer search; without the remedy 12 of 12 runs found such pictures.
    """
    begins = np.random.default_rng(1).integers(0, 256, (PICTURES, 4))
    pictures = np.zeros((PICTURES, 6, 24, 3), np.uint8)
    pictures.reshape(PICTURES, -1)[:, 1:5] = begins
    pictures[:, 2:4, 4:8] = pictures[:, :1, :4]
    here = [WRITER.encode(picture) for picture in pictures]
    taken = [isal_zlib.compressobj(1) for _ in range(99)]  # so the next encoders lie elsewhere
    there = [WRITER.encode(picture) for picture in pictures]
    assert len(taken) == 99
    assert [number for number in range(PICTURES) if here[number] != there[number]] == []


def test_a_view_with_another_memory_layout_gives_the_same_file() -> None:
    rgb = np.arange(60 * 40 * 3, dtype=np.uint32).astype(np.uint8).reshape(60, 40, 3)
    turned = np.rot90(rgb)
    assert WRITER.encode(turned) == WRITER.encode(turned.copy())


def test_only_colour_pictures_are_encoded() -> None:
    with pytest.raises(ValueError, match="3 channels"):
        WRITER.encode(np.zeros((4, 4, 4), np.uint8))


def some_picture() -> np.ndarray:
    """A picture of 30x20 random pixels."""
    return np.random.default_rng(3).integers(0, 256, (20, 30, 3)).astype(np.uint8)


@pytest.mark.parametrize("kind", [".png", ".jpg", ".bmp"])
def test_files_of_another_encoder_are_left_to_another_decoder(tmp_path: Path, kind: str) -> None:
    for name, picture in (("colour", some_picture()), ("grey", some_picture()[:, :, 0])):
        path = tmp_path / f"{name}{kind}"
        assert cv2.imwrite(str(path), picture)
        assert PngRows.read(path) is None


@pytest.mark.no_cover  # other tests run the same lines
def test_no_damage_gives_other_pixels(tmp_path: Path) -> None:
    picture = some_picture()
    data, path = WRITER.encode(picture), tmp_path / "picture.png"
    pixels = range(data.index(b"IHDR"), data.index(b"IEND") - 8)  # to the checksum of IDAT
    for place in pixels:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        read = PngRows.read(path)
        assert read is None or (read.rows(0, len(picture)) == picture).all()
        path.write_bytes(data[:place])
        assert PngRows.read(path) is None
