"""Writes the rows of a grounding export in CUA-Lite's form: as points, and as boxes.

Belongs here: the two turns of a row. The form is described in `formats.cua_lite`.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo_pipeline.datasets.cua_lite import LITE_SYSTEMS
from demo_pipeline.datasets.cua_lite_files import CuaLiteFiles
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cua_lite.models import BBOX, POINT
from demo_pipeline.formats.cudag.models import GENERATOR
from demo_pipeline.formats.grounding.decoder import lite_box, lite_point
from demo_pipeline.formats.grounding.models import LITE_FOLDER

# Tool → column of a row, and what makes its coordinate.
_TOOLS: Mapping[str, tuple[str, Callable[[Any, Any], list[int]]]] = {
    POINT: ("point", lite_point),
    BBOX: ("box", lite_box),
}


class LiteGroundingFiles:
    """Writes `cua_lite/cua-lite/<name>/desktop/grounding.point/…` and `grounding.bbox/…`.

    Args:
        out: folder of the export.
        name: of the dataset.
    """

    def __init__(self, out: Path, name: str) -> None:
        root = out / LITE_FOLDER
        self._stack = ExitStack()
        self._files = {
            tool: CuaLiteFiles(root, name, ("desktop", f"grounding.{tool}")) for tool in _TOOLS
        }

    def __enter__(self) -> Self:
        for files in self._files.values():
            self._stack.enter_context(files)
        return self

    def write(self, split: Split, row: Mapping[str, Any], screenshot: Path) -> None:
        """Add a row of the grounding export."""
        others = {
            "id": row["id"],
            "resolution": row["image_size"],
            "os": LITE_SYSTEMS.get(row["platform"]),
            "source": GENERATOR,
            "source_id": row["trajectory_id"],
            "domain": row["application"],
        }
        known = {name: value for name, value in others.items() if value is not None}
        for tool, files in self._files.items():
            turns = lite_turns(row, tool)
            files.write(split, [screenshot], turns, known | {"id": f"{row['id']}_{tool}"})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def lite_turns(row: Mapping[str, Any], tool: str) -> list[dict[str, Any]]:
    """The question about a row, and the call that answers it; `tool`: `point` or `bbox`."""
    column, coordinate = _TOOLS[tool]
    arguments = {"coordinate": coordinate(tuple(row[column]), tuple(row["image_size"]))}
    call = {
        "id": "call_0000",
        "type": "function",
        "function": {"name": tool, "arguments": arguments},
    }
    asked = [{"type": "image", "index": 0}, {"type": "text", "text": row["text"]}]
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": [], "tool_calls": [call]},
    ]
