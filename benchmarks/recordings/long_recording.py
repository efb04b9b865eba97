"""A long recording for benchmarks, written with constant memory."""

from dataclasses import replace
from pathlib import Path
from random import Random

from demo_pipeline_tests.simulator.desktop import Box, Desktop, Effect, Widget
from demo_pipeline_tests.simulator.recording import (
    GroundTruth,
    RecordingOptions,
    log_lines,
    log_text,
    perform,
    write_recording,
)
from demo_pipeline_tests.simulator.script import (
    Act,
    Performance,
    Script,
    click,
    move_to,
    scroll,
    type_text,
)
from demo_pipeline_tests.simulator.trees import node
from demo_pipeline_tests.simulator.video import VideoOptions

SCANS = 200
_WORDS = ("paper", "delivery", "the blue one", "twelve", "Tuesday", "see below", "as agreed")
_ROWS = tuple(f"Line {number:03d}, ledger" for number in range(120))
_BUTTONS = tuple(f"Step {number}" for number in range(1, 9))


def _desktop() -> Desktop:
    window = "Ledger"
    buttons = tuple(
        Widget(
            name,
            "button",
            Box(1260, 240 + 70 * index, 200, 50),
            window,
            on_click=(Effect("set_text", "State", text=f"{name} done"),),
        )
        for index, name in enumerate(_BUTTONS)
    )
    return Desktop(
        (
            Widget("Taskbar", "pane", Box(0, 1040, 1920, 40), text="09:00"),
            Widget(window, "window", Box(240, 70, 1300, 900)),
            Widget("Search", "text_field", Box(280, 130, 900, 44), window),
            Widget("State", "label", Box(280, 185, 900, 36), window, text="Ready"),
            Widget("Lines", "list", Box(280, 240, 900, 680), window, rows=_ROWS),
            Widget("Checked", "check_box", Box(1260, 830, 200, 40), window),
            *buttons,
        )
    )


def _acts(random: Random, steps: int) -> list[Act]:
    """`steps` acts: clicks, typing and scrolling in turn."""
    acts: list[Act] = []
    while len(acts) < steps:
        acts += [
            click("Search"),
            type_text(random.choice(_WORDS)),
            click(random.choice(_BUTTONS)),
            scroll("Lines", random.choice((-3, 2, 4, 5))),
            click("Checked"),
        ]
    return acts[:steps]


def _paced(acts: list[Act], target_ms: int, options: RecordingOptions) -> tuple[Act, ...]:
    """The acts with pointer moves between them, so that they last about `target_ms`."""
    wander = ("Lines", "Ledger/title bar", "Search", "Taskbar")
    bare = perform(Script(_desktop(), tuple(acts), seed=5), options)
    sample = Script(_desktop(), tuple(move_to(wander[n % 4]) for n in range(40)), seed=5)
    moved = perform(sample, options)
    each = (moved.end_ms - moved.start_ms - 2400) / 40
    missing = max(0, target_ms - (bare.end_ms - bare.start_ms)) / each
    paced: list[Act] = []
    for index, act in enumerate(acts):
        first = round(index * missing / len(acts))
        last = round((index + 1) * missing / len(acts))
        # Moves do not change the focus that the next typing needs.
        paced += [move_to(wander[n % 4]) for n in range(first, last)]
        paced.append(act)
    return tuple(paced)


def light_video(fps: int = 30) -> VideoOptions:
    """The cheapest video to decode that x264 writes: 30 fps, no B-frames, no deblocking."""
    return VideoOptions(fps=fps, gop=250, preset="ultrafast", tune="zerolatency", crf=23)


def usual_video() -> VideoOptions:
    """Encoded like the sample recordings of a real desktop: 15 fps, B-frames."""
    return VideoOptions(fps=15, gop=150, b_frames=3, preset="veryfast", crf=20)


def long_recording(
    dest: Path,
    minutes: float = 10,
    steps: int = 200,
    video: VideoOptions | None = None,
    log_mb: float = 100,
) -> GroundTruth:
    """Write a 1920x1080 recording of about `minutes` with `steps` actions and `log_mb` MB of log.

    `video` is `light_video()` by default; two hundred scans make up most of the log.
    """
    video = video or light_video()
    options = RecordingOptions(video=video, scan_every_s=None)
    acts = _paced(_acts(Random("long"), steps), round(minutes * 60_000), options)
    script = Script(
        _desktop(),
        acts,
        title="Go through the ledger",
        app="Ledger",
        content="Please go through the ledger and mark every line.",
        seed=5,
    )
    plain = perform(script, options)
    seconds = (plain.end_ms - plain.start_ms) / 1000
    scanned = replace(options, scan_every_s=max(1.0, seconds / SCANS))
    padding = _padding(plain, scanned, round(log_mb * 1e6))
    return write_recording(dest, script, replace(scanned, scan_padding=padding))


def _padding(performance: Performance, options: RecordingOptions, target_bytes: int) -> int:
    """Extra nodes per scan for a log of about `target_bytes`."""
    sizes = [
        (line["event"], len(log_text(line).encode())) for line in log_lines(performance, options)
    ]
    scan_count = len([event for event, _ in sizes if event == "axtree"])
    missing = target_bytes - sum(size for _, size in sizes)
    node_bytes = len(log_text(node("Text", "Ledger entry 00000", Box(0, 100_000, 400, 20)))) + 1
    return max(0, round(missing / scan_count / node_bytes))
