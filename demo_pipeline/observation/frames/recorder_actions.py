"""Leaves out the actions that started or stopped the recorder: no screenshot, no wait beside them.

Belongs here: what the decode pass observed, without those actions. How they are recognised is in
stop_effect.py and trees/recorder_windows.py.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.recorder_control import last_action
from demo_pipeline.observation.frames.decode_pass import DecodeResult
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.screenshot_writer import Screenshot

RECORDER_REASON = "recorder_control"  # `reason_code` of an action that was for the recorder


def without_recorder(
    observed: DecodeResult, actions: Sequence[Action], on_windows: Collection[int], folder: Path
) -> DecodeResult:
    """`observed` without the recorder's own actions, whose files in `folder` are removed.

    The screenshot of the last one, which lies before it, becomes final.png.

    Args:
        observed: by the decode pass, over all `actions`.
        actions: of the recording, in time order.
        on_windows: indexes of the actions on the recorder's own window.
        folder: of the screenshots.
    """
    control = set(on_windows)
    last = last_action(actions)
    if last is not None and observed.stopped:
        control.add(last.action_index)
    acting = {action.action_index for action in actions if action.action_type != "pause"}
    kept = acting - control
    if not control or not kept:  # a recording of nothing else: leave it to the person to judge
        return observed
    screenshots = []
    for screenshot in observed.screenshots:
        trimmed = screenshot.action_index in control
        if trimmed and screenshot.file is not None:
            name = screenshot.file
            is_last = last is not None and screenshot.action_index == last.action_index
            (folder / name).replace(folder / (FINAL_FILE if is_last else name))
            (folder / name).unlink(missing_ok=True)
        index = screenshot.action_index
        screenshots.append(Screenshot(index, RECORDER_REASON) if trimmed else screenshot)
    waits = [wait for wait in observed.waits if min(kept) < wait.action_index < max(kept)]
    return replace(observed, screenshots=screenshots, waits=waits, recorder_control=sorted(control))
