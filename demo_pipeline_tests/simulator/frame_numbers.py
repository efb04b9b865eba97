"""Draws the frame number into a frame as a strip of black and white blocks, and reads it again.

The strip has 24 blocks. It starts in the bottom left corner and runs along the bottom edge. In a
frame of W x H pixels, a block has W/160 x H/90 pixels (12 x 12 at 1920 x 1080).

The first block is white and the second is black. The next 20 blocks are the bits of the number in
Gray code, with the most significant bit first. The last two blocks are the parities of the bits at
even and at odd places. Because of the Gray code, only two blocks change from one frame to the next.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 24
BITS = 20
COLUMNS = 160
ROWS = 90
BLACK = 16  # luma in limited range
WHITE = 235


def blocks(number: int) -> tuple[bool, ...]:
    """Returns the 24 blocks of a frame number; True is white.

    Raises:
        ValueError: the number does not fit in 20 bits.
    """
    if not 0 <= number < 2**BITS:
        raise ValueError(f"frame number {number} does not fit {BITS} bits")
    gray = number ^ (number >> 1)
    bits = [bool(gray >> place & 1) for place in range(BITS - 1, -1, -1)]
    parity = (sum(bits[0::2]) % 2 == 1, sum(bits[1::2]) % 2 == 1)
    return (True, False, *bits, *parity)


def stamp(luma: NDArray[np.uint8], number: int) -> None:
    """Draws the strip into a luma plane of shape (H, W), in place."""
    height, width = luma.shape
    top = height - round(height / ROWS)
    for index, white in enumerate(blocks(number)):
        left = round(index * width / COLUMNS)
        right = round((index + 1) * width / COLUMNS)
        luma[top:, left:right] = WHITE if white else BLACK


def read_frame_number(image: NDArray[Any]) -> int | None:
    """Reads the frame number from a grey (H, W) or colour (H, W, 3) image.

    Returns None if the image has no readable strip.
    """
    levels = [_level(image, index) for index in range(BLOCKS)]
    if any(90 < level < 165 for level in levels):
        return None
    read = tuple(level > 128 for level in levels)
    number = gray = sum(bit << place for place, bit in enumerate(reversed(read[2 : 2 + BITS])))
    while gray := gray >> 1:
        number ^= gray
    return number if blocks(number) == read else None


def _level(image: NDArray[Any], index: int) -> float:
    """Returns the mean brightness of the middle of a block."""
    height, width = image.shape[:2]
    block_w = width / COLUMNS
    block_h = height / ROWS
    left = int((index + 0.25) * block_w)
    right = int((index + 0.75) * block_w)
    top = int(height - 0.75 * block_h)
    bottom = int(height - 0.25 * block_h)
    return float(image[top : max(bottom, top + 1), left : max(right, left + 1)].mean())
