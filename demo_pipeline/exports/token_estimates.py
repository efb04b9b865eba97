"""Estimates the number of tokens of a record for Qwen-VL models.

Images follow the rule of Qwen2-VL and Qwen2.5-VL: they are resized to multiples of 28 pixels, and a
square of 28 by 28 pixels is a token. Texts are estimated without a tokenizer.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from demo_pipeline.desktopd.models import Pixel

PATCH = 28  # side of the square of pixels that becomes one token
# Smaller images are enlarged to this number of pixels, the default of `transformers`.
LEAST_PIXELS = 56 * 56
_TURN = 5  # number of tokens that a chat template adds to a turn
_PIECE = re.compile(r"[A-Za-z]+|[^\w\s]+|\s+|[^\x00-\x7f]|\w")
# Characters per token, measured with Qwen's vocabulary on the prompts and answers of the samples.
# With these values the estimate is rarely too low.
_LETTERS = 6  # letters per token
_SIGNS = 2  # other characters per token


def resized(size: Pixel, most: int) -> Pixel:
    """Returns width and height, in pixels, to which the model resizes an image.

    Args:
        size: width and height of the image, pixels.
        most: largest number of pixels of the result (`max_pixels` of the image processor).
    """
    width, height = (max(PATCH, round(side / PATCH) * PATCH) for side in size)
    if width * height > most:
        shrink = math.sqrt(size[0] * size[1] / most)
        width, height = (max(PATCH, int(side / shrink / PATCH) * PATCH) for side in size)
    elif width * height < LEAST_PIXELS:
        grow = math.sqrt(LEAST_PIXELS / (size[0] * size[1]))
        width, height = (math.ceil(side * grow / PATCH) * PATCH for side in size)
    return width, height


def picture_tokens(size: Pixel, most: int) -> int:
    """Returns the number of tokens of an image, including the marker tokens before and after it."""
    width, height = resized(size, most)
    return width // PATCH * (height // PATCH) + 2


@lru_cache(maxsize=256)  # all records begin with the same long system prompt
def text_tokens(text: str) -> int:
    """Estimates the number of tokens of a text; each digit or non-ASCII letter counts as one."""
    return sum(map(_tokens, _PIECE.findall(text)))


@lru_cache(maxsize=8192)  # texts of the same dataset share most of their words
def _tokens(piece: str) -> int:
    if piece.isspace():
        return int(piece != " ")  # a single space is part of the token of the next word
    characters_per_token = _LETTERS if piece[0].isalpha() else _SIGNS
    return math.ceil(len(piece) / characters_per_token)


def chat_tokens(turns: Iterable[str], pictures: Iterable[Pixel], most: int) -> int:
    """Estimates the number of tokens of a chat.

    Args:
        turns: the texts of the chat's turns.
        pictures: width and height of each image, pixels.
        most: see `resized`.
    """
    of_turns = sum(text_tokens(turn) + _TURN for turn in turns)
    of_images = sum(picture_tokens(size, most) for size in pictures)
    return of_turns + of_images
