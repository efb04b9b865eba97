"""The step labels export: TRL's stepwise supervision, with the screenshots beside it.

Belongs here: the model of a row, from which its JSON Schema is made, and what a label means.
`<split>.parquet` has labels of steps, `outcome/<split>.parquet` one label per demonstration.
"""

from typing import Literal

from pydantic import Field

from demo_pipeline.formats.base_model import Document

STEP_LABELS_SCHEMA_FILE = "step_labels.schema.json"
OUTCOME_FOLDER = "outcome"


class StepLabelsRow(Document):
    """A demonstration with labels.

    In `<split>.parquet` a completion is a step, and its label says that the task could still be
    done after it, because the person went on to do it. In `outcome/` the one completion is the
    whole demonstration, and its label says whether the task was done.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    application: str
    outcome: Literal["success", "failed", "aborted"] = Field(description="as recorded")
    steps: int = Field(ge=1, description="number of steps")
    prompt: str = Field(min_length=1, description="the instruction")
    completions: list[str] = Field(min_length=1)
    labels: list[bool] = Field(min_length=1)
    images: list[str] = Field(
        description="the screenshot before every step, and in `outcome/` the last one: paths below"
        " the folder"
    )
