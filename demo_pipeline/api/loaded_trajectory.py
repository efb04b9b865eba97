"""A trajectory in memory: its task, steps and result; pictures and trees are read when asked for.

Belongs here: the objects that people get. What the files mean is in desktopd/.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd

from demo_pipeline.api.data_frames import data_frame
from demo_pipeline.desktopd.models import Result, StepAction, Task
from demo_pipeline.files.json_files import load_json
from demo_pipeline.files.parquet import read_table
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory, load

RgbImage = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class LoadedStep:
    """One step.

    Attributes:
        index: 0-based, in the order of the steps.
        action: the model of action.json: `action_type`, `parameters` in canvas pixels,
            `target_element`, `reasoning`. It holds what was typed.
        provenance: column → value of the step's row of `steps()`.
    """

    index: int
    action: StepAction
    provenance: Mapping[str, Any] = field(repr=False)
    _screenshot: Path = field(repr=False)
    _tree: Path = field(repr=False)

    @property
    def screenshot(self) -> RgbImage:
        """The screen before the action: RGB, shape (1080, 1920, 3). Decoded at every access.

        Raises:
            StorageError: the file is not there any more, or is damaged.
        """
        return _read_picture(self._screenshot)

    @property
    def tree(self) -> dict[str, Any]:
        """ui_tree.json: `timestamp`, `screen` and `root`, whose nodes have canvas coordinates.

        Raises:
            JsonFileError: the file is not there any more, or is damaged.
        """
        tree: dict[str, Any] = load_json(self._tree)
        return tree


@dataclass(frozen=True)
class LoadedTrajectory:
    """One trajectory.

    The files belong to one committed version, which `demo-pipeline prune` keeps for a day after it
    was replaced.

    Attributes:
        id: demonstration id.
        task: the model of task.json: `instruction`, `application`, `difficulty`, …
        steps: in order.
        result: the model of result.json: `success`, `completion_time_ms`, `error_message`, …
        provenance: one row per step; `columns("steps")` describes the columns.
    """

    id: str
    task: Task
    steps: tuple[LoadedStep, ...] = field(repr=False)
    result: Result
    provenance: pd.DataFrame = field(repr=False, compare=False)
    _final_screenshot: Path = field(repr=False)

    @property
    def final_screenshot(self) -> RgbImage:
        """The screen after the last step; as `LoadedStep.screenshot`."""
        return _read_picture(self._final_screenshot)


def load_trajectory(demonstration: str, folder: Path) -> LoadedTrajectory:
    """The trajectory in a folder of the OSWorld-Desktopd layout with provenance.parquet.

    Raises:
        DemonstrationError: a file is missing or damaged; the problems name the files.
    """
    source = DatasetTrajectory(demonstration, str(folder))
    trajectory, rows = load(source)
    steps = tuple(
        LoadedStep(step.index, step.action, rows[step.index], step.screenshot, step.ui_tree)
        for step in trajectory.steps
    )
    return LoadedTrajectory(
        id=demonstration,
        task=trajectory.task,
        steps=steps,
        result=trajectory.result,
        provenance=data_frame(read_table(source.provenance, PROVENANCE_SCHEMA)),
        _final_screenshot=trajectory.final_screenshot,
    )


def _read_picture(path: Path) -> RgbImage:
    data = path.read_bytes() if path.is_file() else b""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) if data else None
    if picture is None:
        raise StorageError(
            f"{path.parent.name}/{path.name} cannot be read; load the trajectory again"
        )
    rgb: RgbImage = np.asarray(picture, np.uint8)
    return rgb
