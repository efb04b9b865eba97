"""A busy screen for benchmarks: windows with long pages, a side list that lights up, a clip.

Belongs here: what is drawn where. What the person does with it is in busy_recording.py.
"""

from dataclasses import dataclass, field
from random import Random

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
TITLE, SIDE, ROW, FIELD = 36, 230, 34, 40  # pixels: title bar, width of the list, its rows, field
LONG_PAGE = 5000
CLIP = (320, 480)
_WORDS = (
    *("invoice", "order", "stock", "ship", "paid", "open", "late", "total", "draft", "note"),
    *("team", "week", "plan", "cost", "rate", "list", "harbour", "copper", "walnut", "garden"),
)


@dataclass
class BusyWindow:
    """A window: its place, its long page, and what of it is shown."""

    x: int
    y: int
    width: int
    height: int
    page: Picture
    side: Picture
    scroll: int = 0
    lit: int = -1
    text: str = ""
    pressed: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        """Number of rows of the side list that are shown."""
        return (self.height - TITLE) // ROW

    def contains(self, x: int, y: int) -> bool:
        """Whether a point of the screen is in it."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


@dataclass
class BusyScreen:
    """The screen, drawn anew where something changed.

    Attributes:
        width, height: pixels, even.
        random: decides what is on the pages.
        windows: from back to front.
        playing: number of frames that the clip still plays.
    """

    width: int
    height: int
    random: Random
    windows: list[BusyWindow] = field(default_factory=list)
    playing: int = 0

    def __post_init__(self) -> None:
        self._noise = np.random.default_rng(self.random.randrange(2**32))
        self._wallpaper = _smooth(self._noise, (self.height, self.width), 8, 30.0)
        self._wallpaper[self.height - 48 :] = (52, 40, 34)
        for icon in range(12):
            left = 12 + icon * 56
            self._wallpaper[self.height - 42 : self.height - 6, left : left + 40] = (
                self._noise.integers(60, 250, 3)
            )
        self._clip = [_smooth(self._noise, CLIP, 6, 60.0, grain=4.0) for _ in range(40)]
        self._pages = [self._new_page(900) for _ in range(4)]
        self._sides = [self._new_page(SIDE) for _ in range(2)]
        self._canvas = self._wallpaper.copy()
        self.changed = True

    def _new_page(self, width: int) -> Picture:
        page = np.full((LONG_PAGE, width, 3), 250, np.uint8)
        for top in range(8, LONG_PAGE - 40, ROW):
            text = " ".join(self.random.choices(_WORDS, k=max(2, width // 75)))
            place = (12, top + 22)
            cv2.putText(page, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, (40, 40, 40), 1, 16)
            if width > SIDE and top % 7 == 0:
                photo = _smooth(self._noise, (2 * ROW, 160), 5, 50.0, grain=3.0)
                page[top : top + 2 * ROW, width - 180 : width - 20] = photo
        return page

    def open_window(self) -> BusyWindow:
        """A new window in front; the rearmost of more than four is closed."""
        width = self.random.randint(self.width // 3, self.width * 2 // 3)
        height = self.random.randint(self.height // 2, self.height * 3 // 4)
        x = self.random.randint(0, self.width - width)
        y = self.random.randint(0, self.height - 60 - height)
        sides = self.random.choice(self._sides), self.random.choice(self._pages)
        window = BusyWindow(x, y, width, height, page=sides[1], side=sides[0])
        self.windows = [*self.windows[-3:], window]
        self.draw()
        return window

    def turn_page(self, window: BusyWindow) -> None:
        """Another page in a window, as after a click on a link."""
        window.page = self.random.choice(self._pages)
        window.scroll = 0
        self.draw_window(window)

    def draw(self) -> None:
        """Draw everything."""
        self._canvas[:] = self._wallpaper
        for window in self.windows:
            self.draw_window(window)
        self.changed = True

    def draw_window(self, window: BusyWindow) -> None:
        """Draw one window, which nothing covers."""
        x = window.x
        y = window.y
        right = window.x + window.width
        bottom = window.y + window.height
        canvas = self._canvas
        canvas[y : y + TITLE, x:right] = (205, 190, 180)
        body = bottom - y - TITLE
        canvas[y + TITLE : bottom, x : x + SIDE] = window.side[:body]
        if window.lit >= 0:
            top = y + TITLE + window.lit * ROW
            canvas[top : top + ROW, x : x + SIDE] //= 8
            canvas[top : top + ROW, x : x + SIDE] *= 7
        left = x + SIDE
        canvas[y + TITLE : bottom, left:right] = 235
        width = min(window.page.shape[1], right - left)
        shown = window.page[window.scroll : window.scroll + body - FIELD, :width]
        canvas[y + TITLE + FIELD : bottom, left : left + width] = shown
        place = (left + 12, y + TITLE + 26)
        cv2.putText(canvas, window.text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.6, (20, 20, 20), 1, 16)
        if window.pressed is not None:
            column, row = window.pressed
            canvas[row : row + 24, column : column + 90] = (200, 120, 30)
        self.changed = True

    def play(self, number: int) -> None:
        """Show the next frame of the clip in the front window while it plays."""
        if self.playing <= 0 or not self.windows:
            return
        self.playing -= 1
        window = self.windows[-1]
        bottom = window.y + window.height - 10
        right = window.x + window.width - 10
        height = min(CLIP[0], window.height - TITLE - FIELD - 20)
        width = min(CLIP[1], window.width - SIDE - 20)
        picture = self._clip[number % len(self._clip)]
        self._canvas[bottom - height : bottom, right - width : right] = picture[:height, :width]
        self.changed = True

    def planes(self, pointer: tuple[int, int]) -> Picture:
        """The screen with the pointer, as planar YUV 4:2:0 of shape (H * 3 / 2, W)."""
        x, y = pointer
        under = self._canvas[y : y + 20, x : x + 14]
        kept = under.copy()
        arrow = np.tri(20, 14, dtype=bool)[: under.shape[0], : under.shape[1]]
        under[arrow] = 10
        picture = cv2.cvtColor(self._canvas, cv2.COLOR_BGR2YUV_I420)
        under[:] = kept
        return picture


def _smooth(
    noise: np.random.Generator,
    size: tuple[int, int],
    cells: int,
    contrast: float,
    grain: float = 0.0,
) -> Picture:
    """A picture like a photograph: large soft shapes, with grain."""
    coarse = noise.normal(128, contrast, (cells, cells, 3)).astype(np.float32)
    height, width = size
    large = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    if grain:
        large += noise.normal(0, grain, (height, width, 1)).astype(np.float32)
    return large.clip(0, 255).astype(np.uint8)
