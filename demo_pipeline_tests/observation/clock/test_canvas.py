"""Tests the conversion from event space to the canvas and back, for points and for screenshots."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.observation.clock.canvas import Canvas, RecordedScreen, fit_canvas

CANVAS = (1920, 1080)
# Pairs of the size of a video, and the number of its pixels per unit of event space.
SCREENS = [
    ((1920, 1080), 1.0),
    ((2560, 1440), 1.0),
    ((3440, 1440), 1.0),
    ((2880, 1800), 2.0),
    ((1366, 768), 1.0),
    ((1081, 1919), 1.5),
    ((801, 333), 1.25),
]


def from_canvas(canvas: Canvas, x: float, y: float) -> tuple[float, float]:
    """Converts canvas pixels back to event space, the inverse of `to_canvas`."""
    factor = canvas.event_to_canvas
    return (x - canvas.pad_x) / factor, (y - canvas.pad_y) / factor


@settings(deadline=None)
@given(
    screen=st.sampled_from(SCREENS),
    across=st.floats(0, 0.9999),
    down=st.floats(0, 0.9999),
)
def test_a_point_comes_back_within_a_pixel(
    screen: tuple[tuple[int, int], float], across: float, down: float
) -> None:
    (width, height), event_scale = screen
    canvas = fit_canvas((width, height), event_scale)
    x = across * width / event_scale
    y = down * height / event_scale
    assert canvas.on_screen(x, y)
    left, top = canvas.to_canvas(x, y)
    assert 0 <= left <= CANVAS[0]
    assert 0 <= top <= CANVAS[1]
    back = from_canvas(canvas, left, top)
    assert np.hypot(back[0] - x, back[1] - y) < 1e-6
    pixel = from_canvas(canvas, int(left) + 0.5, int(top) + 0.5)  # middle of the canvas pixel
    assert abs(pixel[0] - x) * canvas.event_to_canvas <= 1
    assert abs(pixel[1] - y) * canvas.event_to_canvas <= 1


@settings(deadline=None)
@given(
    width=st.integers(320, 7680),
    height=st.integers(200, 4320),
    event_scale=st.sampled_from([1.0, 1.25, 1.5, 1.75, 2.0]),
    data=st.data(),
)
def test_a_written_point_comes_back_to_its_pixel(
    width: int, height: int, event_scale: float, data: st.DataObject
) -> None:
    """Written points are whole canvas pixels, so they are off by at most a pixel.

    This is a pixel of the screen or of the canvas, whichever is larger. A point on the screen never
    becomes a pixel of the bars.
    """
    canvas = fit_canvas((width, height), event_scale)
    x = data.draw(st.integers(0, int((width - 1) / event_scale)), label="x")
    y = data.draw(st.integers(0, int((height - 1) / event_scale)), label="y")
    written = canvas.pixel_of(x, y)
    back = from_canvas(canvas, *written)
    pixel = max(1.0, 1 / canvas.event_to_canvas)
    assert abs(back[0] - x) <= pixel
    assert abs(back[1] - y) <= pixel
    inner_w, inner_h = canvas.inner_size
    assert canvas.pad_x <= written[0] < canvas.pad_x + inner_w
    assert canvas.pad_y <= written[1] < canvas.pad_y + inner_h


@pytest.mark.parametrize(
    "size",
    [
        (1280, 800),
        (1366, 768),
        (1440, 900),
        (1680, 1050),
        (1920, 1080),
        (1920, 1200),
        (2560, 1440),
        (3840, 2160),
    ],
)
def test_a_consumer_finds_the_pressed_pixel_again(size: tuple[int, int]) -> None:
    """If the canvas enlarges the screen, every pixel of the screen is found again.

    If the canvas reduces the screen, only as many pixels are found as the canvas has.
    """
    canvas = fit_canvas(size, 1.0)
    pads = (canvas.pad_x, canvas.pad_y)
    for axis in (0, 1):
        exact = 0
        for pixel in range(size[axis]):
            written = canvas.pixel_of(*((pixel, 0) if axis == 0 else (0, pixel)))[axis]
            back = round((written - pads[axis]) / canvas.scale)
            assert abs(back - pixel) <= 1
            exact += back == pixel
        assert exact == min(size[axis], canvas.inner_size[axis])


@pytest.mark.parametrize(("size", "event_scale"), SCREENS)
def test_a_mark_lies_where_its_point_goes_and_the_bars_are_black(
    size: tuple[int, int], event_scale: float
) -> None:
    width, height = size
    canvas = fit_canvas(size, event_scale)
    image = np.full((height, width, 3), 40, np.uint8)
    x = width * 0.7
    y = height * 0.3
    cv2.rectangle(image, (int(x) - 4, int(y) - 4), (int(x) + 4, int(y) + 4), (255, 255, 255), -1)
    fitted = canvas.fit(image)
    assert fitted.shape == (1080, 1920, 3)
    left, top = canvas.to_canvas(x / event_scale, y / event_scale)
    rows, columns = np.nonzero(fitted[:, :, 0] > 150)
    assert rows.mean() == pytest.approx(top, abs=1.5)
    assert columns.mean() == pytest.approx(left, abs=1.5)
    covered = np.zeros((1080, 1920), bool)
    bottom = canvas.pad_y + round(height * canvas.scale)
    right = canvas.pad_x + round(width * canvas.scale)
    covered[canvas.pad_y : bottom, canvas.pad_x : right] = True
    assert (fitted[covered][[0, -1]] == 40).all()
    assert not fitted[~covered].any()
    assert abs((1080 - bottom) - canvas.pad_y) <= 1
    assert abs((1920 - right) - canvas.pad_x) <= 1


def test_a_screenshot_of_the_canvas_is_not_touched() -> None:
    image = np.random.default_rng(0).integers(0, 255, (1080, 1920, 3)).astype(np.uint8)
    assert fit_canvas((1920, 1080), 1.0).fit(image) is image


@pytest.mark.parametrize("size", [(4000, 2), (2, 4000), (1, 1)])
def test_absurd_shapes_are_fitted_too(size: tuple[int, int]) -> None:
    canvas = fit_canvas(size, 1.0)
    fitted = canvas.fit(np.full((size[1], size[0], 3), 200, np.uint8))
    assert fitted.shape == (1080, 1920, 3)
    assert fitted.max() == 200


def test_other_displays_are_off_screen() -> None:
    canvas = Canvas(1920, 1080, 2880, 1800, 2.0, 0.6, 96, 0)
    assert canvas.on_screen(0, 0)
    assert canvas.on_screen(1439.9, 899.9)
    for point in [(-1, 5), (1440, 5), (5, 900), (5, -0.1)]:
        assert not canvas.on_screen(*point)


def test_the_monitors_size_suggests_the_scale() -> None:
    assert RecordedScreen((2880, 1800), (1440, 900)).candidates[0] == 2.0
    assert RecordedScreen((1920, 1080), None).candidates[0] == 1.0
    assert (
        RecordedScreen((1920, 1080), (3840, 1080)).candidates[0] == 1.0
    )  # two screens: no scale fits
    scales = RecordedScreen((1920, 1080), (1920, 1080)).candidates
    assert len(scales) == len(set(scales))
