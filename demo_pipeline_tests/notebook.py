"""Executes the example notebook on a store, for its test and for `make notebook`.

`make notebook` builds a store of the sample recordings, and updates the outputs in the notebook.
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
    """Executes the notebook, and returns it with its new outputs.

    An error in a cell is raised. The kernel inherits the environment of this process and starts in
    the notebook's folder.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_SECONDS,
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
    )
    client.execute()
    # Leave out the version of Python, which depends on the machine.
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def outputs(notebook: Any) -> list[Any]:
    """Returns all outputs of all cells."""
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output for cell in code_cells for output in cell.outputs]


def texts(notebook: Any) -> str:
    """Returns the text of all outputs, without images."""
    parts = []
    for output in outputs(notebook):
        parts.append(output.get("text", ""))
        data = output.get("data", {})
        parts += [str(value) for kind, value in data.items() if not kind.startswith("image/")]
    return re.sub(r";base64,[\w+/=]*", "", "\n".join(parts))


def main() -> None:
    """Updates the outputs in the notebook, with a store of only the sample recordings."""
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
