"""Executing the example notebook: for its test, and to write its outputs anew (`make notebook`).

Run with a store in the environment; without one it is the checkout's `data/store`.
"""

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "explore.ipynb"
_SECONDS = 120


def executed(path: Path = NOTEBOOK) -> Any:
    """The notebook with fresh outputs; an error in a cell is raised.

    The kernel inherits this environment and starts in the notebook's folder.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_SECONDS,
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
    )
    client.execute()
    notebook.metadata.language_info = {"name": "python"}  # the versions of no machine
    return notebook


def outputs(notebook: Any) -> list[Any]:
    """Every output of every cell."""
    return [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]


def texts(notebook: Any) -> str:
    """Everything that the outputs say in words: all but pictures."""
    found = []
    for output in outputs(notebook):
        found.append(output.get("text", ""))
        data = output.get("data", {})
        found += [str(value) for kind, value in data.items() if not kind.startswith("image/")]
    return "\n".join(found)


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)
