"""Rules for the extra files of a CUDAG dataset that this pipeline made.

These are `system_prompt.txt`, `tools.json` and LLaMA-Factory's `dataset_info.json`; datasets of
other generators need not have them.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, decode_text, load_json, read_bytes
from demo_pipeline.formats.cudag.fault import CudagFault, LocatedFault, Scope, json_fault
from demo_pipeline.formats.cudag.tool_calls import ARGUMENTS, TOOL_NAME

TEST_RECORDS = "test/records.jsonl"
"""The records of test.json as conversations, which trainers' loaders read."""
RECORD_FILES = {
    "train": "train.jsonl",
    "val": "val.jsonl",
    "test": TEST_RECORDS,
    "held_out": "held_out.jsonl",
}
_REMEDY = "build the dataset again"


def sidecar_faults(root: Path, config: Mapping[str, Any]) -> Iterator[LocatedFault]:
    """Yield the faults of these files.

    Args:
        root: the dataset's directory.
        config: its parsed `config.json`.
    """
    checks: Mapping[str, Callable[[Path, str], Iterator[str]]] = {
        "system_prompt.txt": lambda path, name: _prompt_faults(path, name, config),
        "tools.json": _tool_faults,
        "dataset_info.json": _info_faults,
    }
    for name, check in checks.items():
        if not (root / name).is_file():
            message = f"Missing required file: {name}"
            yield "./", None, CudagFault("missing_file", message, _REMEDY, Scope.OURS)
            continue
        try:
            for message in check(root / name, name):
                yield name, None, CudagFault("companion", message, _REMEDY, Scope.OURS)
        except JsonFileError as error:
            yield name, error.line, json_fault(error, Scope.OURS)


def _prompt_faults(path: Path, name: str, config: Mapping[str, Any]) -> Iterator[str]:
    text, wanted = decode_text(read_bytes(path, name), name), config.get("system_prompt")
    if isinstance(wanted, str) and text.removesuffix("\n") != wanted:
        yield "differs from system_prompt in config.json"


def _tool_faults(path: Path, name: str) -> Iterator[str]:
    """The file is a list of one function schema, with exactly the actions of `ARGUMENTS`."""
    tools = load_json(path, name)
    tool = tools[0] if isinstance(tools, list) and len(tools) == 1 else None
    function = _member(tool, "function")
    if _member(function, "name") != TOOL_NAME:
        yield f"must be a list of one function, {TOOL_NAME}"
        return
    action = _member(_member(_member(function, "parameters"), "properties"), "action")
    names = _member(action, "enum")
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(ARGUMENTS):
        yield f"the action must be one of {', '.join(ARGUMENTS)}"


def _member(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _info_faults(path: Path, name: str) -> Iterator[str]:
    """There is exactly one entry per file of records."""
    entries = load_json(path, name)
    if not isinstance(entries, dict):
        yield "must be a JSON object"
        return
    named = [_member(entry, "file_name") for entry in entries.values()]
    files = [file for file in RECORD_FILES.values() if _is_file(path, file)]
    if sorted(map(str, named)) != sorted(files):
        yield f"must have one entry for each of {', '.join(files)}"


def _is_file(path: Path, name: str) -> bool:
    return (path.parent / name).is_file()
