"""Estimates the tokens of a record for Qwen-VL models, and the size at which they see an image.

Images follow the rule of Qwen2-VL and Qwen2.5-VL: sides become multiples of 28 pixels, and a square
of 28 by 28 pixels is a token. Texts are estimated without a tokenizer.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from demo_pipeline.desktopd.models import Pixel

PATCH = 28  # pixels
LEAST_PIXELS = 56 * 56  # the default of the image processor in transformers
_TURN = 5  # tokens that a chat template puts around a turn
_PIECE = re.compile(r"[A-Za-z]+|[^\w\s]+|\s+|[^\x00-\x7f]|\w")
# Characters per token in words and in punctuation, measured with Qwen's vocabulary on the prompts
# and answers of the samples. The estimate is rarely too low.
_LETTERS = 6
_SIGNS = 2


def resized(size: Pixel, most: int) -> Pixel:
    """Returns width and height of an image as the model sees it.

    Args:
        size: width and height, pixels.
        most: `max_pixels` of the image processor.
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
    """Returns the tokens of an image, with the two tokens around it; see `resized`."""
    width, height = resized(size, most)
    return width // PATCH * (height // PATCH) + 2


@lru_cache(maxsize=256)  # every record begins with the same long prompt
def text_tokens(text: str) -> int:
    """Estimates the tokens of a text; a digit and a character outside ASCII count as one each."""
    return sum(map(_tokens, _PIECE.findall(text)))


@lru_cache(maxsize=8192)  # the words of one screen repeat
def _tokens(piece: str) -> int:
    if piece.isspace():
        return int(piece != " ")  # a space belongs to the word after it
    characters_per_token = _LETTERS if piece[0].isalpha() else _SIGNS
    return math.ceil(len(piece) / characters_per_token)


def chat_tokens(turns: Iterable[str], pictures: Iterable[Pixel], most: int) -> int:
    """Estimates the tokens of a chat from its turns and the sizes of its images."""
    of_turns = sum(text_tokens(turn) + _TURN for turn in turns)
    of_images = sum(picture_tokens(size, most) for size in pictures)
    return of_turns + of_images
