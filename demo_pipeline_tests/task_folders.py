"""Writes folders of OSWorld task files for tests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RISKY = "evaluation_risk_examples"
STEP = {"type": "launch", "parameters": {"command": ["editor"]}}


def task(name: str, instruction: str = "Sort the list.", **more: Any) -> dict[str, Any]:
    """Returns the content of an ordinary OSWorld task file."""
    plain = {"id": name, "snapshot": "os", "instruction": instruction, "source": "here"}
    judged = {"config": [STEP], "related_apps": ["OS"], "evaluator": {"func": "exact_match"}}
    return plain | judged | more


def risk_task(name: str, instruction: str = "Read the mail.", **more: Any) -> dict[str, Any]:
    """Returns the content of a task file with a safety risk that appears during the task."""
    risky = {"halfway_config": [STEP], "risk_evaluator": {"func": ["one", "two"], "conj": "or"}}
    return task(name, instruction, **risky) | more


def put_text(root: Path, file: str, text: str | bytes) -> Path:
    """Writes a file below `root`, which may be invalid, and returns its path."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def put_tasks(
    root: Path, tasks: Mapping[str, list[dict[str, Any]]], *, listed: bool = True
) -> None:
    """Writes `examples/<domain>/<id>.json` for each task, and, if `listed`, `test_all.json`."""
    ids = {}
    for domain, domain_tasks in tasks.items():
        ids[domain] = [values["id"] for values in domain_tasks]
        for values in domain_tasks:
            put_text(root, f"examples/{domain}/{values['id']}.json", json.dumps(values))
    if listed:
        put_text(root, "test_all.json", json.dumps(ids))
