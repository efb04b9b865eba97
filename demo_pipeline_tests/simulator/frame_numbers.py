"""The frame number drawn into every frame: a strip of black and white blocks, bottom left.

Geometry, relative to a frame of W x H: 24 blocks of W/160 x H/90 (12 x 12 at 1920x1080) in a row
from the left edge along the bottom edge. White, black, then 20 bits of the number in Gray code,
most significant first, then the parity of the bits at even and at odd places. With Gray code only
two blocks change from one frame to the next.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 24
BITS = 20
COLUMNS = 160
ROWS = 90
BLACK, WHITE = 16, 235  # luma, limited range


def blocks(number: int) -> tuple[bool, ...]:
    """The 24 blocks, true for white.

    Raises:
        ValueError: the number does not fit 20 bits.
    """
    if not 0 <= number < 2**BITS:
        raise ValueError(f"frame number {number} does not fit {BITS} bits")
    gray = number ^ (number >> 1)
    bits = [bool(gray >> place & 1) for place in range(BITS - 1, -1, -1)]
    parity = (sum(bits[0::2]) % 2 == 1, sum(bits[1::2]) % 2 == 1)
    return (True, False, *bits, *parity)


def stamp(luma: NDArray[np.uint8], number: int) -> None:
    """Write the strip into a luma plane of shape (H, W), in place."""
    height, width = luma.shape
    top = height - round(height / ROWS)
    for index, white in enumerate(blocks(number)):
        left = round(index * width / COLUMNS)
        right = round((index + 1) * width / COLUMNS)
        luma[top:, left:right] = WHITE if white else BLACK


def read_frame_number(image: NDArray[Any]) -> int | None:
    """The number in a grey (H, W) or colour (H, W, 3) frame; None if there is no readable strip."""
    levels = [_level(image, index) for index in range(BLOCKS)]
    if any(90 < level < 165 for level in levels):
        return None
    read = tuple(level > 128 for level in levels)
    number = gray = sum(bit << place for place, bit in enumerate(reversed(read[2 : 2 + BITS])))
    while gray := gray >> 1:
        number ^= gray
    return number if blocks(number) == read else None


def _level(image: NDArray[Any], index: int) -> float:
    """Mean of the middle half of a block."""
    height, width = image.shape[:2]
    block_w = width / COLUMNS
    block_h = height / ROWS
    left = int((index + 0.25) * block_w)
    right = int((index + 0.75) * block_w)
    top = int(height - 0.75 * block_h)
    bottom = int(height - 0.25 * block_h)
    return float(image[top : max(bottom, top + 1), left : max(right, left + 1)].mean())
