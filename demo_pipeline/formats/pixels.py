"""Places on a screenshot as shares of its sides, and back.

Belongs here: the arithmetic that forms with relative coordinates share.
"""

Pixel = tuple[int, int]


def pixel_at(x: float, y: float, size: Pixel) -> Pixel:
    """The pixel at two shares of the sides, 0 to 1; 1 is the last pixel.

    Args:
        x: share of the width from the left.
        y: share of the height from the top.
        size: width and height of the screenshot, pixels.
    """
    return min(round(x * size[0]), size[0] - 1), min(round(y * size[1]), size[1] - 1)


def shares_of(x: float, y: float, size: Pixel) -> tuple[float, float]:
    """The shares of the sides at a pixel, which is moved into the screenshot first."""
    return _share(x, size[0]), _share(y, size[1])


def _share(pixel: float, side: int) -> float:
    return min(max(pixel, 0), side - 1) / side
