"""The two sample recordings: `python -m demo_pipeline_tests.simulator.samples DEST`."""

import sys
from pathlib import Path

from demo_pipeline_tests.simulator.desktop import Box, Desktop, Effect, Widget
from demo_pipeline_tests.simulator.recording import RecordingOptions, write_recording
from demo_pipeline_tests.simulator.script import (
    Script,
    click,
    double_click,
    drag,
    hotkey,
    move_to,
    right_click,
    scroll,
    think,
    type_text,
    wait_for_screen,
)
from demo_pipeline_tests.simulator.video import VideoOptions

PRODUCTS = tuple(
    f"{thing}, {kind}"
    for thing in ("Pencil", "Fountain pen", "Envelope", "Notebook A5", "Folder", "Ink")
    for kind in ("black", "blue", "green", "dotted", "lined")
)
FILES = (
    "agenda_march.txt",
    "budget.csv",
    "holiday_plan.txt",
    "invoice_114.pdf",
    "report_draft.txt",
    "seating.png",
    "travel_list.txt",
    "welcome.txt",
)
ICONS = (
    Widget("Mail", "icon", Box(40, 40, 110, 90)),
    Widget("Bin", "icon", Box(40, 160, 110, 90)),
)
NOTE = "Please wrap it, Anna!"


def _taskbar(clock: str) -> Widget:
    return Widget("Taskbar", "pane", Box(0, 1040, 1920, 40), text=clock)


def _shop() -> Desktop:
    shop, basket, thanks = "Stationery Shop", "Your basket", "Order placed"
    placed = (Effect("close", basket), Effect("open", thanks))
    ordering = Effect("progress", "Sending the order", seconds=2.6, then=placed)
    counted = Effect("set_text", "Result", text="30 products, 5 of them notebooks")
    return Desktop(
        (
            _taskbar("09:00   Monday"),
            *ICONS,
            Widget(shop, "window", Box(260, 70, 1300, 900)),
            Widget("Search", "text_field", Box(300, 130, 620, 44), shop, on_enter=(counted,)),
            Widget("Find", "button", Box(940, 130, 130, 44), shop, on_click=(counted,)),
            Widget("Result", "label", Box(290, 190, 620, 36), shop, text="Everything for a desk"),
            Widget("Products", "list", Box(300, 240, 820, 544), shop, rows=PRODUCTS),
            Widget("Gift wrap", "check_box", Box(1160, 250, 240, 40), shop),
            Widget(
                "Add to basket",
                "button",
                Box(1160, 320, 240, 52),
                shop,
                on_click=(Effect("open", basket),),
            ),
            Widget(basket, "window", Box(620, 380, 640, 380), shown=False),
            Widget("Content", "label", Box(640, 430, 560, 36), basket, text="1 x Notebook, 4.20"),
            Widget("Note for the shop", "text_field", Box(650, 490, 580, 44), basket),
            Widget("Sending the order", "progress_bar", Box(650, 570, 580, 34), basket),
            Widget("Place order", "button", Box(1040, 660, 190, 52), basket, on_click=(ordering,)),
            Widget("Cancel", "button", Box(830, 660, 190, 52), basket),
            Widget(thanks, "window", Box(700, 420, 520, 240), shown=False),
            Widget("Thanks", "label", Box(720, 480, 480, 40), thanks, text="Thank you, order 1207"),
            Widget(
                "OK",
                "button",
                Box(1040, 580, 150, 50),
                thanks,
                on_click=(Effect("close", thanks),),
            ),
        )
    )


def _files() -> Desktop:
    renamed = (
        Effect("rename_row", "Files/report_draft.txt", text="New name"),
        Effect("close", "Rename file"),
    )
    return Desktop(
        (
            _taskbar("14:00   Tuesday"),
            *ICONS,
            *_folder("Documents"),
            *_file_menu("File menu"),
            Widget("Rename file", "window", Box(760, 360, 560, 220), shown=False),
            Widget(
                "New name",
                "text_field",
                Box(790, 430, 500, 44),
                "Rename file",
                text="report_draft.txt",
                on_enter=renamed,
            ),
            *_details("File details"),
        )
    )


def _folder(window: str) -> tuple[Widget, ...]:
    preview = Effect("set_text", "Preview", text="Sales rose by a tenth in March.")
    loading = Effect("progress", "Reading the file", seconds=2.4, then=(preview,))
    return (
        Widget(window, "window", Box(200, 90, 900, 700)),
        Widget("Path", "label", Box(215, 140, 600, 36), window, text="Home > Documents"),
        Widget(
            "Files",
            "list",
            Box(220, 190, 860, 408),
            window,
            rows=FILES,
            on_right_click=(Effect("open", "File menu"),),
            on_double_click=(Effect("open", "File details"), loading),
        ),
    )


def _file_menu(menu: str) -> tuple[Widget, ...]:
    close = Effect("close", menu)
    entries = {
        "Open": (close,),
        "Copy": (close,),
        "Rename": (close, Effect("open", "Rename file")),
        "Delete": (close,),
    }
    items = (
        Widget(name, "menu_item", Box(2, 2 + 35 * index, 216, 34), menu, on_click=effects)
        for index, (name, effects) in enumerate(entries.items())
    )
    return (Widget(menu, "menu", Box(0, 0, 220, 144), shown=False), *items)


def _details(window: str) -> tuple[Widget, ...]:
    lines = tuple(f"Section {number}: figures of week {number}" for number in range(1, 25))
    saved = (Effect("close", window),)
    return (
        Widget(window, "window", Box(700, 200, 800, 620), shown=False),
        Widget("Preview", "label", Box(720, 250, 740, 36), window, text="..."),
        Widget("Reading the file", "progress_bar", Box(730, 300, 740, 34), window),
        Widget("Sections", "list", Box(730, 350, 740, 306), window, rows=lines),
        Widget("Reviewed", "check_box", Box(730, 690, 220, 40), window),
        Widget("Save", "button", Box(1290, 740, 180, 52), window, on_click=saved),
    )


def stationery() -> tuple[Script, RecordingOptions]:
    """A 1920x1080 screen at a constant frame rate; the video starts with the demonstration."""
    script = Script(
        desktop=_shop(),
        acts=(
            click("Search"),
            type_text("Notebok\bok"),
            hotkey("enter"),
            scroll("Products", 4),
            scroll("Products", -1),
            click("Products/Notebook A5, dotted"),
            click("Gift wrap"),
            click("Add to basket"),
            drag("Your basket/title bar", 150, 90),
            click("Note for the shop"),
            think(2.8),
            type_text(NOTE),
            click("Place order"),
            wait_for_screen(),
            click("OK"),
        ),
        timestamp="2026-01-05T09:00:00.250000000+00:00",
        title="Order a notebook in the Stationery shop",
        app="Stationery Shop",
        content="Could you order one dotted A5 notebook in the Stationery shop, gift wrapped, "
        "with a note for Anna?",
        objectives=(
            "Search in the <app>Stationery Shop</app> window",
            "Choose the dotted A5 notebook and the gift wrap",
            "Write the note",
            "Place the order",
        ),
        seed=11,
        lead_in_ms=1800,
    )
    return script, RecordingOptions(video=VideoOptions(fps=15))


def report() -> tuple[Script, RecordingOptions]:
    """A 2560x1440 screen at a variable frame rate; the video starts 1.3 s late."""
    script = Script(
        desktop=_files(),
        acts=(
            move_to("Documents/title bar"),
            right_click("Files/report_draft.txt"),
            click("Rename"),
            click("New name"),
            hotkey("ctrl", "a"),
            type_text("Reort\b\b\bport_March, final.txt"),
            hotkey("enter"),
            double_click("Files/Report_March, final.txt"),
            wait_for_screen(),
            scroll("Sections", 3),
            think(2.6),
            scroll("Sections", -2),
            click("Reviewed"),
            click("Save"),
        ),
        timestamp="2026-01-06T14:00:00.125000000+01:00",
        title="Rename the report and tick the reviewed box",
        app="Files",
        content="Please rename report_draft.txt to Report_March, final.txt, look through it and "
        "mark it as reviewed.",
        objectives=(
            "Rename the report in <app>Files</app>",
            "Open it and look through its sections",
            "Tick the reviewed box and save",
        ),
        seed=23,
        lead_in_ms=2600,
    )
    video = VideoOptions(fps=18, variable=True, video_start_s=1.3)
    return script, RecordingOptions(width=2560, height=1440, video=video)


SAMPLES = {"20260105_090000": stationery, "20260106_140000": report}


def main(dest: Path) -> None:
    """Write every sample into its own folder under `dest`."""
    for identifier, sample in SAMPLES.items():
        write_recording(dest / identifier, *sample())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
