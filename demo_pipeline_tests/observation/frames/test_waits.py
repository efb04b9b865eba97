"""Tests how new content and the place of the next action distinguish waiting from thinking."""

from dataclasses import replace

import numpy as np
import pytest

from demo_pipeline.observation.frames.changes import Cells
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.waits import (
    Interval,
    IntervalChanges,
    RestlessCells,
    rest_after_answer,
)

SHAPE = (90, 160)


def cells(top: int = 0, left: int = 0, bottom: int = 0, right: int = 0) -> Cells:
    map_of_cells = np.zeros(SHAPE, bool)
    map_of_cells[top:bottom, left:right] = True
    return map_of_cells


NONE = cells()
ELSEWHERE = cells(80, 140, 84, 144)
PAGE = cells(20, 20, 60, 100)
PLACE = cells(40, 50, 44, 54)
# Two clicks. Content appears three seconds after the first, and is clicked 0.9 s later.
CLICKED = Interval(0.0, 9.9, 10.0, 13.5, 13.8, 13.9, PixelBox(400, 320, 31, 31), 4, 3.5)
TYPED = replace(CLICKED, place=None)
APPEARED = IntervalChanges(
    interval=CLICKED,
    place=PLACE,
    early=NONE,
    late=[(13.0, PAGE)],
    hovered=NONE,
    moving_before=NONE,
    new=PAGE,
    returned=NONE,
)
READ = replace(CLICKED, looked=15.5, limit=15.9, until=16.0)  # with a long time for reading
STILL = replace(APPEARED, late=[], new=NONE)


def test_content_that_appeared_and_was_clicked_was_awaited() -> None:
    assert rest_after_answer(APPEARED, NONE) == 13.0


def test_a_click_elsewhere_is_no_evidence() -> None:
    assert rest_after_answer(replace(APPEARED, place=cells(80, 140, 84, 144)), NONE) is None


def test_content_that_moves_by_itself_is_no_evidence() -> None:
    assert rest_after_answer(APPEARED, PAGE) is None
    rims = cells(21, 21, 59, 99)  # with a margin of one cell, they are the cells of the page
    assert rest_after_answer(APPEARED, rims) is None


def test_content_that_moved_before_the_action_is_no_evidence() -> None:
    assert rest_after_answer(replace(APPEARED, moving_before=PAGE), NONE) is None


def test_a_fading_toast_gives_back_what_was_there() -> None:
    assert rest_after_answer(replace(APPEARED, new=NONE), NONE) is None


def test_a_cover_that_appeared_at_once_and_went_away_was_waited_for() -> None:
    refreshed = replace(APPEARED, early=PAGE, new=NONE)
    assert rest_after_answer(refreshed, NONE) == 13.0


def test_the_actions_own_effect_is_no_wait() -> None:
    assert rest_after_answer(replace(APPEARED, late=[(10.9, PAGE)]), NONE) is None


def test_a_long_pause_after_content_appeared_is_thinking() -> None:
    late = replace(APPEARED, interval=READ)
    assert rest_after_answer(late, NONE) is None
    replaced = replace(late, early=PAGE)  # a placeholder for the content proves a wait
    assert rest_after_answer(replaced, NONE) == 13.0


def test_content_that_appeared_a_moment_before_the_action_was_not_awaited() -> None:
    at_once = replace(CLICKED, until=13.2, looked=13.1)
    assert rest_after_answer(replace(APPEARED, interval=at_once), NONE) is None


def test_content_that_the_pointer_opened_was_not_awaited() -> None:
    menu = cells(30, 40, 60, 70)
    opened = replace(APPEARED, late=[(13.0, menu)], hovered=menu, new=menu)
    assert rest_after_answer(opened, NONE) is None
    assert rest_after_answer(replace(opened, hovered=NONE), NONE) == 13.0
    page = cells(0, 0, 90, 160)  # no pointer opens a whole page
    assert rest_after_answer(replace(opened, late=[(13.0, page)], hovered=page, new=page), NONE)


def test_a_blinking_text_cursor_is_no_content() -> None:
    caret = cells(40, 50, 43, 51)
    blinking = [(11.2 + 0.25 * blink, caret) for blink in range(8)]
    assert rest_after_answer(replace(APPEARED, late=blinking, new=caret), NONE) is None


def test_a_place_between_the_columns_of_a_table_that_appeared_is_inside_it() -> None:
    columns = cells(20, 20, 60, 24) | cells(20, 52, 60, 56)
    table = replace(APPEARED, late=[(13.0, columns)], new=columns, place=cells(40, 36, 44, 40))
    assert rest_after_answer(table, NONE) == 13.0
    assert rest_after_answer(replace(table, place=cells(40, 80, 44, 84)), NONE) is None


def test_a_window_that_was_busy_and_came_to_rest_was_waited_for() -> None:
    bar = cells(24, 24, 28, 96)
    busy = [(11.2 + 0.2 * step, bar) for step in range(10)]
    window = replace(APPEARED, early=PAGE, late=busy)
    assert rest_after_answer(window, NONE) == busy[-1][0]
    twice = replace(window, late=[busy[0], busy[-1]], interval=READ)
    assert rest_after_answer(twice, NONE) is None


def test_keys_have_to_write_into_what_appeared() -> None:
    typed = replace(APPEARED, interval=TYPED, place=cells(40, 50, 41, 53))
    assert rest_after_answer(typed, NONE) == 13.0
    elsewhere = replace(typed, place=cells(80, 140, 81, 143))
    assert rest_after_answer(elsewhere, NONE) is None
    assert rest_after_answer(replace(typed, place=NONE), NONE) is None


def test_a_place_that_changed_twice_unasked_moves_by_itself() -> None:
    restless = RestlessCells()
    elsewhere = replace(APPEARED, place=cells(80, 140, 84, 144))
    restless.add(elsewhere.late, elsewhere)
    assert not restless.cells(STILL).any()
    restless.add([(23.0, PAGE)], None)
    restless_cells = restless.cells(STILL)
    assert restless_cells[19, 19]
    assert not restless_cells[17, 17]
    # A single change in the pause itself may be the answer.
    assert not restless.cells(elsewhere).any()


def test_awaited_content_is_not_restless() -> None:
    restless = RestlessCells()
    for _ in range(4):
        restless.add(APPEARED.late, APPEARED)
    assert not restless.cells(STILL).any()


def test_a_skeleton_that_content_replaces_was_waited_at_wherever_the_person_acts() -> None:
    elsewhere = replace(APPEARED, place=cells(80, 140, 84, 144), early=PAGE)
    assert rest_after_answer(elsewhere, NONE) == 13.0
    assert rest_after_answer(replace(elsewhere, new=NONE), NONE) is None  # a toast that fades
    small = cells(20, 20, 30, 40)  # an image that loads later, in a page that is already there
    image = replace(elsewhere, late=[(13.0, small)], interval=READ)
    assert rest_after_answer(image, NONE) is None
    assert rest_after_answer(replace(elsewhere, late=[(11.2, small)]), NONE) is None


def test_a_line_that_stood_for_the_answer_tells_of_a_wait_if_the_person_acts_soon() -> None:
    """The text "Loading" appears, then another text elsewhere. The click is on neither."""
    line = cells(2, 120, 5, 140)
    text = cells(20, 20, 30, 60)
    turned = [(13.0, line | text)]
    loaded = replace(APPEARED, place=ELSEWHERE, early=line, late=turned, new=text)
    assert rest_after_answer(loaded, NONE) == 13.0
    assert rest_after_answer(loaded, line) == 13.0  # even if the line often changes by itself
    assert rest_after_answer(loaded, text) is None
    for other in (
        replace(loaded, interval=READ),
        replace(loaded, new=NONE),
        replace(loaded, late=[(13.0, text)]),
        replace(loaded, late=[*turned, (13.7, text)]),  # the text keeps changing, like a video
    ):
        assert rest_after_answer(other, NONE) is None


def test_dots_in_a_line_below_a_command_are_its_answer() -> None:
    dots = [(11.2 + 0.4 * dot, cells(4, 20 + dot, 7, 23 + dot)) for dot in range(4)]
    number = cells(4, 2, 11, 40)
    done = replace(
        APPEARED, place=ELSEWHERE, early=cells(1, 2, 4, 20), late=[*dots, (13.0, number)]
    )
    assert rest_after_answer(replace(done, new=number), NONE) == 13.0


def test_keys_act_in_the_window_in_which_content_appeared() -> None:
    below = replace(APPEARED, interval=TYPED, place=cells(80, 50, 82, 53))
    assert rest_after_answer(below, NONE) == 13.0
    assert rest_after_answer(replace(below, place=cells(0, 0, 90, 160)), NONE) is None  # Alt+Tab


def test_the_blank_part_of_another_screen_is_part_of_it() -> None:
    """Text fills the left half of the page, and the pointer rests on the right half."""
    page = cells(5, 10, 80, 60)
    blank = replace(APPEARED, late=[(13.0, page)], new=page, place=cells(40, 120, 44, 124))
    assert rest_after_answer(blank, NONE) is None
    wide = page | cells(78, 60, 80, 150)
    assert rest_after_answer(replace(blank, late=[(13.0, wide)], new=wide), NONE) == 13.0


SPINNER = cells(30, 20, 34, 24)
LIST = cells(30, 20, 50, 60)


def test_a_spinner_that_gave_way_to_content_was_waited_at_wherever_the_person_acts() -> None:
    turns = [(11.2 + 0.25 * turn, SPINNER) for turn in range(7)]
    spun = replace(APPEARED, place=ELSEWHERE, early=SPINNER, late=[*turns, (13.0, LIST)], new=LIST)
    assert rest_after_answer(spun, NONE) == 13.0
    # The spinner turned before the action, too.
    assert rest_after_answer(replace(spun, early=NONE), NONE) is None
    assert rest_after_answer(replace(spun, late=turns, new=NONE), NONE) is None  # no content came


def test_a_pressed_label_that_changed_at_once_and_again_with_the_answer_tells_of_a_wait() -> None:
    pressed = replace(CLICKED, origin=PixelBox(160, 560, 31, 31))
    label = cells(70, 20, 73, 30)
    rows = cells(74, 20, 88, 80)
    loaded = replace(
        APPEARED,
        interval=pressed,
        place=cells(20, 100, 24, 104),
        early=label,
        late=[(13.0, label | rows)],
        new=label | rows,
    )
    assert rest_after_answer(loaded, NONE) == 13.0
    assert rest_after_answer(replace(loaded, late=[(13.0, rows)], new=rows), NONE) is None
    read = replace(pressed, looked=15.5, limit=15.9, until=16.0)
    assert rest_after_answer(replace(loaded, interval=read), NONE) == 13.0
    assert rest_after_answer(replace(loaded, interval=READ), NONE) is None


def test_a_pressed_label_that_says_what_it_does_and_then_that_it_did_was_waited_for() -> None:
    label = cells(42, 50, 45, 53)
    status = cells(80, 20, 84, 40)
    pressed = replace(CLICKED, origin=CLICKED.place)
    saved = replace(APPEARED, interval=pressed, place=ELSEWHERE, early=label, new=label)
    ended = replace(saved, late=[(13.0, label | status)])
    assert rest_after_answer(ended, NONE) == 13.0
    # A toast appears with the answer, and fades.
    toast = [*ended.late, (13.3, status), (13.4, status)]
    assert rest_after_answer(replace(ended, late=toast), NONE) == 13.4
    caret = cells(42, 50, 45, 51)
    blinking = replace(ended, early=caret, new=caret, late=[(13.0, caret | status)])
    assert rest_after_answer(blinking, NONE) is None
    # "Copied!" appears, and then the old label again.
    assert rest_after_answer(replace(ended, new=NONE), NONE) is None


def test_output_in_place_of_the_typed_command_may_be_read_for_long() -> None:
    written = replace(
        APPEARED,
        interval=replace(TYPED, looked=17.0, limit=17.0, until=17.1),
        place=cells(40, 50, 41, 53),
        early=PAGE,
    )
    assert rest_after_answer(written, NONE) == 13.0
    assert rest_after_answer(replace(written, early=NONE), NONE) is None


def test_a_spinner_that_content_replaces_is_not_restless() -> None:
    turns = [(11.2 + 0.25 * turn, SPINNER) for turn in range(7)]
    spun = replace(APPEARED, place=ELSEWHERE, early=SPINNER, late=[*turns, (13.0, LIST)], new=LIST)
    restless = RestlessCells()
    for _ in range(3):
        restless.add(spun.late, spun)
    assert not restless.cells(STILL).any()


def test_a_menu_that_the_pointer_opened_over_what_came_at_once_was_not_awaited() -> None:
    """A dialog closes, and a moment later the pointer opens a menu over the page behind it."""
    menu = cells(30, 40, 60, 70)
    opened = replace(APPEARED, early=PAGE, late=[(13.0, menu)], hovered=menu, new=PAGE)
    assert rest_after_answer(opened, NONE) is None
    assert rest_after_answer(replace(opened, hovered=NONE), NONE) == 13.0


def test_a_toast_that_goes_uncovers_what_came_with_it() -> None:
    toast = cells(70, 120, 76, 140)
    page = cells(0, 0, 90, 160)
    gone = replace(APPEARED, place=cells(4, 4, 8, 8), early=page, late=[(13.0, toast)], new=page)
    assert rest_after_answer(gone, NONE) is None
    beside = cells(20, 20, 30, 60)  # "Saving" gives way to a list beside it
    came = replace(gone, early=toast, late=[(13.0, toast | beside)], new=beside)
    assert rest_after_answer(came, NONE) == 13.0


def test_content_that_keeps_moving_did_not_give_way() -> None:
    line = cells(2, 120, 5, 140)
    text = cells(20, 20, 30, 60)
    turned = [(13.0, line | text)]
    loaded = replace(APPEARED, place=ELSEWHERE, early=line, late=turned, new=text)
    assert rest_after_answer(loaded, NONE) == 13.0
    assert rest_after_answer(replace(loaded, late=[*turned, (13.6, line)]), NONE) is None


def test_remains_of_a_carousel_in_an_opened_window_are_not_work() -> None:
    remains = [cells(20 + 8 * n, 22 + 12 * n, 21 + 8 * n, 26 + 12 * n) for n in range(5)]
    times = [11.2, 11.6, 12.0, 12.6, 13.0]
    opened = replace(APPEARED, early=PAGE, late=list(zip(times, remains, strict=True)))
    assert rest_after_answer(opened, NONE) is None
    bar = cells(24, 24, 28, 40)
    assert rest_after_answer(replace(opened, late=[(time, bar) for time in times]), NONE) == 13.0


@pytest.mark.parametrize("period", [0.8, 1.0])
def test_the_output_of_a_loop_is_not_awaited(period: float) -> None:
    """The person stops the loop between two lines, or watches until it ends by itself."""
    lines = [(13.0 - period * n, cells(40 - 2 * n, 20, 42 - 2 * n, 100)) for n in (2, 1, 0)]
    output = cells(36, 20, 42, 100)
    loop = replace(APPEARED, interval=TYPED, early=NONE, late=lines, new=output)
    stopped = replace(loop, place=cells(42, 20, 43, 24))
    assert rest_after_answer(stopped, NONE) is None
    ended = replace(TYPED, looked=14.6, limit=14.7, until=14.8)
    assert rest_after_answer(replace(stopped, interval=ended), NONE) == 13.0


def test_a_pale_stand_in_shows_by_its_shimmer() -> None:
    shimmer = cells(42, 30, 44, 90)
    loaded = replace(APPEARED, interval=READ, late=[(12.0, shimmer), (13.0, PAGE)])
    assert rest_after_answer(loaded, NONE) == 13.0
    assert rest_after_answer(replace(loaded, late=[(13.0, PAGE)]), NONE) is None


def test_content_that_a_spinner_replaced_and_gave_back_was_awaited_wherever_the_person_acts() -> (
    None
):
    reloaded = replace(APPEARED, place=ELSEWHERE, early=LIST, late=[(13.0, LIST)], new=NONE)
    assert rest_after_answer(replace(reloaded, returned=LIST), NONE) == 13.0
    assert rest_after_answer(reloaded, NONE) is None  # a toast that fades
