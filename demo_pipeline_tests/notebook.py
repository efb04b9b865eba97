"""Executing the example notebook: for its test, and to write its outputs anew (`make notebook`).

Belongs here: the store of the samples, and the notebook's run on a store.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

_ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = _ROOT / "examples" / "explore.ipynb"
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
    return re.sub(r";base64,[\w+/=]*", "", "\n".join(found))


def main() -> None:
    """Write the outputs anew, of a store of the samples alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DAGSTER_HOME": folder,
            "DEMO_PIPELINE_UPLOADS": str(_ROOT / "data" / "samples"),
            "DEMO_PIPELINE_STORE": f"{folder}/store",
        }
        subprocess.run([sys.executable, "-m", "demo_pipeline.cli.app", "run"], check=True)
        nbformat.write(executed(), NOTEBOOK)


if __name__ == "__main__":
    main()
