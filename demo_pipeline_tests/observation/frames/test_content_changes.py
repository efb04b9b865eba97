"""Tests which changes between two drawn screens count as replaced content."""

from typing import Any

import cv2
import numpy as np
import pytest

from demo_pipeline.observation.frames.changes import (
    DETAIL_STEP,
    ContentChanges,
    content_changes,
    shaded_areas,
)
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point

BUTTON = PixelBox(200, 200, 160, 40)


class Screen:
    """A page of 800x600 pixels with two buttons, drawn with OpenCV."""

    def __init__(self, paper: int = 255, ink: int = 20) -> None:
        self.image = np.full((600, 800), paper, np.uint8)
        self.paper = paper
        self.ink = ink
        self.button("Save", BUTTON)
        self.button("Cancel", PixelBox(400, 200, 160, 40))

    def button(self, text: str, box: PixelBox, fill: int | None = None) -> "Screen":
        self.fill(box, (240 if self.paper > 128 else 40) if fill is None else fill)
        return self.write(text, box.x + 20, box.y + 28)

    def fill(self, box: PixelBox, level: int) -> "Screen":
        left = int(box.x)
        top = int(box.y)
        self.image[top : top + int(box.height), left : left + int(box.width)] = level
        return self

    def write(self, text: str, x: float, y: float, ink: int | None = None) -> "Screen":
        place = (int(x), int(y))
        level = self.ink if ink is None else ink
        font = cv2.FONT_HERSHEY_SIMPLEX
        cv2.putText(self.image, text, place, font, 0.6, level, 1, cv2.LINE_AA)
        return self

    def highlight(self, box: PixelBox, paper: int, ink: int) -> "Screen":
        """Changes the colours but not the letters, as when a row is selected."""
        left = int(box.x)
        top = int(box.y)
        part = self.image[top : top + int(box.height), left : left + int(box.width)]
        share = (part.astype(float) - self.ink) / (240 - self.ink)
        part[:] = np.clip(ink + share * (paper - ink), 0, 255).astype(np.uint8)
        return self

    def rounded(self, box: PixelBox, radius: int, edge: int) -> "Screen":
        """Draws a box with round corners and a thin edge, at eight times the resolution."""
        finer = 8
        height = int(box.height) * finer
        width = int(box.width) * finer
        shape = np.full((height, width), self.paper, np.uint8)
        for inset, level in ((0, edge), (2 * finer, self.paper)):
            rim = radius * finer - inset
            for x, y in ((inset + rim, inset), (inset, inset + rim)):
                cv2.rectangle(shape, (x, y), (width - 1 - x, height - 1 - y), level, -1)
            for x in (inset + rim, width - 1 - inset - rim):
                for y in (inset + rim, height - 1 - inset - rim):
                    cv2.circle(shape, (x, y), rim, level, -1)
        left = int(box.x)
        top = int(box.y)
        size = (int(box.width), int(box.height))
        part = cv2.resize(shape, size, interpolation=cv2.INTER_AREA)
        self.image[top : top + size[1], left : left + size[0]] = part
        return self

    def menu(self, x: int, y: int, *, edge: bool = True) -> "Screen":
        self.fill(PixelBox(x, y, 180, 130), self.paper)
        if edge:
            cv2.rectangle(self.image, (x, y), (x + 179, y + 129), 90, 2)
        for line, text in enumerate(("Open", "Copy", "Rename", "Delete")):
            self.write(text, x + 16, y + 26 + 30 * line)
        return self

    @property
    def detail(self) -> Any:
        height, width = self.image.shape
        size = (width // DETAIL_STEP, height // DETAIL_STEP)
        return cv2.resize(self.image, size, interpolation=cv2.INTER_AREA)


def between(after: Screen, *pointers: Point, before: Screen | None = None) -> ContentChanges:
    return content_changes((before or Screen()).detail, after.detail, pointers)


def test_replaced_text_is_more_than_a_highlight() -> None:
    changes = between(Screen().button("Open", BUTTON))
    assert changes.touch(BUTTON)
    assert not changes.touch(PixelBox(400, 200, 160, 40))


@pytest.mark.parametrize(
    "colours",
    [
        pytest.param((180, 20), id="hover"),
        pytest.param((120, 250), id="selected, light letters on dark"),
        pytest.param((250, 120), id="disabled"),
    ],
)
def test_other_colours_for_the_same_letters_replace_nothing(colours: tuple[int, int]) -> None:
    assert between(Screen().highlight(BUTTON, *colours)) == ContentChanges()


def test_a_focus_ring_and_a_text_cursor_replace_nothing() -> None:
    ringed = Screen()
    cv2.rectangle(ringed.image, (200, 200), (359, 239), 60, 3)
    assert not between(ringed).touch(BUTTON)
    caret = Screen().fill(PixelBox(300, 208, 2, 24), 0)
    assert not between(caret).touch(BUTTON)


def test_a_round_edge_that_lights_up_on_a_dense_screen_replaces_nothing() -> None:
    """The edge is two pixels wide and has round corners, like a button's at a scale of 2."""
    box = PixelBox(100, 400, 272, 70)
    calm, lit = (Screen().rounded(box, 12, edge).write("Open", 130, 440) for edge in (212, 90))
    assert between(lit, before=calm) == ContentChanges()
    renamed = Screen().rounded(box, 12, 90).write("Shut", 130, 440)
    assert between(renamed, before=calm).touch(box)


def test_a_text_cursor_beside_a_highlight_makes_it_no_content() -> None:
    """A text cursor blinks beside a menu while one of its items is highlighted."""
    item = PixelBox(201, 200, 160, 36)
    calm, lit = (
        Screen().fill(PixelBox(196, 190, 170, 60), 255).write("Numbers", 215, 226) for _ in range(2)
    )
    lit.highlight(item, 120, 200).fill(PixelBox(176, 140, 2, 50), 0)
    assert between(lit, before=calm).regions == ()


def test_the_pointer_itself_replaces_nothing() -> None:
    arrow = Screen().write("A", 300, 236)
    assert between(arrow).touch(BUTTON)
    assert between(arrow, (300.0, 222.0)) == ContentChanges()


def test_a_menu_covers_what_is_between_its_lines_and_is_a_panel() -> None:
    opened = between(Screen().menu(240, 180))
    assert opened.cover(250.0, 228.0)
    assert opened.panels
    far = PixelBox(600, 500, 80, 40)
    assert not opened.touch(far)
    assert not opened.cover(640.0, 520.0)


def test_beside_the_lit_title_of_a_menu_nothing_is_covered() -> None:
    """The title is highlighted when its menu opens below it; the titles next to it stay."""
    title = PixelBox(240, 154, 60, 26)
    calm, opened = (Screen().fill(title, 240).write("View", 246, 172) for _ in range(2))
    changes = between(opened.highlight(title, 120, 250).menu(240, 180), before=calm)
    assert changes.cover(330.0, 250.0)
    assert not changes.cover(380.0, 162.0)


def test_the_edges_of_typed_text_are_too_low_for_a_panel() -> None:
    typed = Screen()
    for line in range(8):
        typed.write("Some lines of text in a page", 100, 320 + 22 * line)
    changes = between(typed)
    assert changes.regions
    assert not changes.panels


def test_lines_of_text_are_regions_of_their_own() -> None:
    changes = between(Screen().write("first", 100, 400).write("second line", 100, 440))
    assert [round(top / 40) for _, top, _, _ in changes.regions] == [10, 11]


def test_a_dark_menu_without_an_edge_is_seen_by_its_shade() -> None:
    """The contrast of the menu with the page is less than that of letters."""
    before = Screen(paper=26, ink=220)
    after = Screen(paper=26, ink=220)
    after.fill(PixelBox(300, 300, 200, 120), 38)
    assert between(after, before=before) == ContentChanges()
    (area,) = shaded_areas(before.detail, after.detail, [])
    assert max(abs(area.x - 300), abs(area.y - 300), abs(area.width - 200)) <= DETAIL_STEP
    assert shaded_areas(before.detail, before.detail + 4, []) == []
