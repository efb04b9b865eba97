"""A training export in a package of its own: a screenshot, and a sentence about the next action.

`FORM` is all that demo_pipeline needs. The asset with its check, the setting, the card, `validate`,
`export` and the index follow from it.
"""

from collections.abc import Iterator

from pydantic import Field

from demo_pipeline.exports.form import Excluded, File, Form, Row, Source
from demo_pipeline.exports.record_checks import Fault, NamedFiles, RecordFormat, schema_file
from demo_pipeline.exports.step_facts import (
    CANVAS,
    STEP_EXCLUSIONS,
    STEP_SETTINGS,
    step_exclusion,
)
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.shown_text import replace_surrogates

SCHEMA_FILE = "captions.schema.json"


class Caption(Document):
    """A line of `<split>.jsonl`."""

    id: str
    image: str = Field(description="the screenshot before the action: a path below the folder")
    task: str = Field(description="the instruction of the whole demonstration")
    caption: str = Field(min_length=1, description="a sentence about the next action")


def rows(source: Source) -> Iterator[Row | Excluded]:
    """Yield a row for each step, or why the step gives none."""
    for step in source.trajectory.steps:
        size = CANVAS if step.screenshot.is_file() else None
        reason = step_exclusion(step, source.rows[step.index], source.settings, size)
        caption = replace_surrogates(step.action.reasoning)
        if reason or not caption:
            yield Excluded(reason or "no_caption")
            continue
        image = source.name(step.screenshot)
        line = {
            "id": f"{source.id}/{step.index}",
            "image": image,
            "task": source.instruction,
            "caption": caption,
        }
        yield Row(
            id=line["id"],
            prompt=source.instruction,  # the same prompt and screenshot are never in two splits
            screenshot=step.screenshot,
            parts={"line": line},
            files={image: step.screenshot},
        )


def images(caption: Caption) -> list[tuple[str, str]]:
    """The images of a line, each with the field that names it: they must exist and open."""
    return [("image", caption.image)]


def faults(caption: Caption, _files: NamedFiles) -> Iterator[Fault]:
    """Yield the faults of a line that `Caption` cannot describe."""
    trajectory = caption.id.rpartition("/")[0]
    if not caption.image.startswith(f"trajectories/{trajectory}/"):
        yield Fault("wrong_step", "image: belongs to another trajectory")


FORM = Form(
    name="captions",
    asset="captions_dataset",
    folder="captions",
    description="A screenshot, and a sentence about the action that follows it.",
    code_version="1",  # raise it whenever the code writes other bytes
    settings=STEP_SETTINGS,  # the `datasets` settings that `rows` and its callees read
    exclusions=(*STEP_EXCLUSIONS, "no_caption"),
    rows=rows,
    files=(
        File(
            part="line",
            path="{split}.jsonl",
            checked=RecordFormat(Caption, images, faults),
            config="default",
        ),
    ),
    check="captions_lines",
    marks=(SCHEMA_FILE,),  # `validate` recognises a folder by it
    line_key="caption",  # and a file by this key of its first line
    side_files=schema_file(SCHEMA_FILE, Caption),
)
