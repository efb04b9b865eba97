"""Validating a CUDAG dataset: the walk over its directories and files, and its extra files.

Belongs here: which directories and files must be there, and the extra files that this pipeline
writes: `system_prompt.txt`, `tools.json`, LLaMA-Factory's `dataset_info.json` and
`test/records.jsonl`, the entries of test.json as training records. Datasets of other generators
need not have them, and their config.json only has to be a JSON object. Rules for one record are in
record_rules.py, between records in cross_checks.py.

Locations are those of the CUDAG document: `train.jsonl:42` is line 42 of the file; `test.json:5` is
the fifth entry of the array in `test/test.json`, counted from 1; `test/` and `./` are directories.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from demo_pipeline.exports.cudag.cross_checks import (
    CudagInventory,
    RecordKeys,
    RecordPosition,
    image_faults,
    is_kind,
    missing_record,
    open_image,
    record_keys,
    record_line_keys,
    report_faults,
    test_keys,
    test_line_keys,
)
from demo_pipeline.exports.cudag.models import DIRECTORY_PATTERN, GENERATOR
from demo_pipeline.exports.cudag.record_rules import (
    HUMAN_START,
    CudagFault,
    LocatedFault,
    Scope,
    eval_faults,
    json_fault,
    printable,
    training_faults,
)
from demo_pipeline.exports.cudag.tool_calls import (
    ARGUMENTS,
    TOOL_NAME,
    ToolCallError,
    is_int,
    is_number,
    parse_tool_calls,
)
from demo_pipeline.files.json_files import (
    JsonFileError,
    LineArray,
    decode_text,
    load_json,
    parse_json,
    read_bytes,
)
from demo_pipeline.files.line_digests import DigestColumn, KnownLines, index_lines
from demo_pipeline.problems import Problem, Severity

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


_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def is_ours(config: object) -> bool:
    """Whether this pipeline made the dataset: config.json names it as the generator."""
    return isinstance(config, dict) and config.get("generator") == GENERATOR


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name_prefix": (_is_text, "a non-empty string"),
    "user": (_is_text, "a non-empty string"),
    "seed": (is_int, "an integer"),
    "task_types": (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        "a list of names",
    ),
    "task_counts": (_is_numbers, "an object of numbers"),
    "train_split": (is_number, "a number"),
    "split_ratios": (_is_numbers, "an object of numbers"),
    "system_prompt": (_is_text, "a non-empty string"),
    "task_distributions": (_is_numbers, "an object of numbers"),
    "generated_at": (
        lambda value: isinstance(value, str) and _TIME.fullmatch(value) is not None,
        "YYYY-MM-DDTHH:MM:SSZ",
    ),
    "scroll": (_is_object, "an object"),
    "tolerance": (_is_object, "an object"),
}


def config_faults(config: Mapping[str, Any]) -> Iterator[CudagFault]:
    """Yield missing keys and wrong types of a configuration made by this pipeline."""
    for key, (accepts, wanted) in _KEYS.items():
        if key not in config:
            yield CudagFault("config_key", f"{key} is missing", scope=Scope.OURS)
        elif not accepts(config[key]):
            yield CudagFault("config_type", f"{key} must be {wanted}", scope=Scope.OURS)


def count_faults(config: Mapping[str, Any], counted: Counter[str]) -> Iterator[CudagFault]:
    """Yield where the configuration differs from the counted records."""
    if config.get("task_counts") != dict(counted):
        message = f"task_counts differs from the records: {dict(sorted(counted.items()))}"
        remedy = "count the records of train, val, held_out and test"
        yield CudagFault("config_counts", message, remedy, Scope.OURS)
    if config.get("task_types") != sorted(counted):
        message = "task_types must be the sorted task types of the records"
        yield CudagFault("config_counts", message, scope=Scope.OURS)


_FILES = (
    ("./", "config.json"),
    ("./", "data.jsonl"),
    ("./", "train.jsonl"),
    ("./", "val.jsonl"),
    ("test/", "test.json"),
)
_FOLDERS = (("./", "images/"), ("./", "test/"), ("test/", "images/"))
_REMEDIES = {
    "test/images/": "save test images to test/images/, not to a directory of another name",
    "test/": "create test/ with test.json and images/",
}


def required_file_faults(root: Path) -> Iterator[LocatedFault]:
    """Yield what is missing, or of another kind, in a dataset's directory."""
    for folder, name in _FOLDERS:
        if not is_kind(root / folder / name, "dir"):
            yield folder, None, _missing(root, folder, name, "directory")
    for folder, name in _FILES:
        if not is_kind(root / folder / name, "file"):
            yield folder, None, _missing(root, folder, name, "file")
    if (optional := root / "held_out.jsonl").exists() and not is_kind(optional, "file"):
        yield "held_out.jsonl", None, CudagFault("not_a_file", "must be a file")
    if (optional := root / "test" / "annotated").exists() and not is_kind(optional, "dir"):
        yield "test/", None, CudagFault("not_a_directory", "annotated/ must be a directory")


def _missing(root: Path, folder: str, name: str, kind: str) -> CudagFault:
    where = f"{folder}{name}".removeprefix("./")
    is_other = (root / where).exists()
    message = f"Missing required {kind}: {name}" + (f" (not a {kind})" if is_other else "")
    return CudagFault(f"missing_{kind}", message, _REMEDIES.get(where, f"add {where}"))


_SAME = ("task_type", "trajectory_id", "step_index")


def conversation_faults(
    root: Path, tests: "list[Any] | LineArray", known: KnownLines
) -> Iterator[LocatedFault]:
    """Yield the faults of the file: lines that are no records, or not those of test.json.

    Args:
        root: the dataset's directory.
        tests: the entries of test.json.
        known: lines that were found valid before, each with the digest of its entry's line.
    """
    path = root / TEST_RECORDS
    if not path.is_file():
        message = f"Missing required file: {TEST_RECORDS}"
        yield "./", None, CudagFault("missing_file", message, _REMEDY, Scope.OURS)
        return
    lines, digests = index_lines(path)
    entries = tests.digests if isinstance(tests, LineArray) else DigestColumn()
    compared = DigestColumn(known.sort_out(digests)[0])
    fresh = compared.differing(entries)
    for (place, line), test in zip(lines.lines_at(fresh), _at(tests, fresh), strict=True):
        faults = list(_line_faults(line, test))
        if not faults and place < len(entries):
            known.add_found(digests[place], entries[place])
        for fault in faults:
            yield TEST_RECORDS, place + 1, fault
    if len(digests) != len(tests):
        message = f"has {len(digests)} lines for {len(tests)} entries of test.json"
        yield TEST_RECORDS, None, CudagFault("test_records", message, _REMEDY, Scope.OURS)


def _at(tests: "list[Any] | LineArray", places: Sequence[int]) -> Iterator[object]:
    """Yield the entries at places in ascending order, from 0; None for one that is not there."""
    texts, passed = iter(tests.lines() if isinstance(tests, LineArray) else tests), 0
    for place in places:
        text = next(islice(texts, place - passed, None), None)
        yield parse_json(text, "test.json") if isinstance(text, bytes) else text
        passed = place + 1


def _line_faults(line: bytes, test: object) -> Iterator[CudagFault]:
    try:
        record = parse_json(line, TEST_RECORDS)
    except JsonFileError as error:
        yield json_fault(error, Scope.OURS)
        return
    image = record.get("image") if isinstance(record, dict) else None
    if isinstance(image, str):
        record = {**record, "image": image.removeprefix("test/")}
    faults = list(training_faults(record))
    yield from faults
    if not faults and isinstance(test, dict):
        for message in _differences(record, str(image), test):
            yield CudagFault("test_records", message, _REMEDY, Scope.OURS)


def _differences(record: Mapping[str, Any], image: str, test: Mapping[str, Any]) -> Iterator[str]:
    if record["id"] != test.get("test_id"):
        yield "id differs from the test_id of this entry of test.json"
    if image != f"test/{test.get('screenshot')}":
        yield "image differs from the screenshot of this entry of test.json"
    human, answer = (turn["value"] for turn in record["conversations"])
    if human != f"{HUMAN_START}{test.get('prompt')}":
        yield "the human turn differs from the prompt of this entry of test.json"
    if _last_call(answer) != test.get("expected_action"):
        yield "the last tool call differs from the expected_action of this entry of test.json"
    known, wanted = record["metadata"], test.get("metadata")
    if isinstance(wanted, dict) and any(known.get(key) != wanted.get(key) for key in _SAME):
        yield f"metadata: one of {', '.join(_SAME)} differs from this entry of test.json"


def _last_call(answer: str) -> dict[str, Any] | None:
    try:
        return parse_tool_calls(answer)[-1].as_dict()
    except ToolCallError:
        return None


SPLITS = ("train", "val", "held_out")


def validate_cudag(path: Path, known: KnownLines | None = None) -> list[Problem]:
    """The problems of a dataset, in the order of its files.

    A dataset that this pipeline made (by `generator` in config.json) must follow all rules. Another
    one must follow the CUDAG document; breaking a rule of this pipeline is a warning or ignored
    (see `Scope`).

    Args:
        path: the dataset's directory, or a link to it.
        known: lines of splits that were found valid before, with their images.
    """
    if not is_kind(path, "dir"):
        return [
            Problem(
                "not_a_directory",
                "./",
                "is not a directory",
                remedy="give the directory of a dataset",
            )
        ]
    validation = _Validation(path, known or KnownLines())
    validation.check_layout()
    validation.check_config()
    for split in SPLITS:
        validation.check_lines(f"{split}.jsonl", split)
    validation.check_tests()
    validation.check_lines("data.jsonl", None)
    validation.check_all_records()
    return validation.problems


def validate_cudag_file(path: Path) -> list[Problem]:
    """The problems of one file of records in a dataset; nothing is compared with other files.

    Args:
        path: `train.jsonl` or another one beside `images/`, or `test/records.jsonl`.
    """
    in_test = path.parent.name == "test" and path.name == Path(TEST_RECORDS).name
    validation = _Validation(path.parent.parent if in_test else path.parent)
    validation.check_config()
    if in_test:
        validation.check_tests()
    else:
        validation.check_lines(path.name, path.stem)
        if not validation.inventory.records and not validation.problems:
            message = "the file has no record"
            validation.problems.append(
                Problem("no_records", path.name, message, severity=Severity.WARNING)
            )
    return validation.problems


@dataclass(slots=True)
class _Validation:
    """The state of one validation."""

    root: Path
    known: KnownLines = field(default_factory=KnownLines)
    problems: list[Problem] = field(default_factory=list)
    inventory: CudagInventory = field(default_factory=CudagInventory)
    configuration: dict[str, Any] = field(default_factory=dict)
    ours: bool = False

    def report(self, file: str, line: int | None, faults: Iterable[CudagFault]) -> None:
        for fault in faults:
            if problem := fault.problem(file, line, ours=self.ours):
                self.problems.append(problem)

    def check_layout(self) -> None:
        """Check required and optional files and directories."""
        name = self.root.absolute().name
        if not DIRECTORY_PATTERN.fullmatch(name):
            text = "directory name is not {prefix}--{user}--{YYYYMMDD_HHMMSS}"
            self.problems.append(Problem("directory_name", "./", text, severity=Severity.WARNING))
        for file, line, fault in required_file_faults(self.root):
            self.report(file, line, [fault])

    def check_config(self) -> None:
        """Check the configuration, which names the generator of the dataset."""
        value = self._load("config.json", "config.json")
        if isinstance(value, dict):
            self.configuration, self.ours = value, is_ours(value)
            self.report("config.json", None, config_faults(value))
        elif value is not None:
            self.report("config.json", None, [CudagFault("config", "must be a JSON object")])

    def _load(self, path: str, name: str) -> Any:
        """The value of a JSON file; None if it is missing or, as reported, cannot be read."""
        if not is_kind(self.root / path, "file"):
            return None
        try:
            value = load_json(self.root / path, name)
        except JsonFileError as error:
            self.report(name, error.line, [json_fault(error)])
            return None
        if value is None:
            self.report(name, None, [CudagFault("invalid_json", "must not be null")])
        return value

    def check_lines(self, file: str, split: str | None) -> None:
        """Check a file of records; `split` None: data.jsonl, which is compared with the splits."""
        if not is_kind(self.root / file, "file"):
            return
        _, digests = index_lines(self.root / file)
        if split is None:
            self.inventory.is_union = self.inventory.has_lines(digests)
            are_valid = all(known is not None for known in self.known.any_facts(digests))
            if self.inventory.is_union and are_valid:
                return
        # Lines of data.jsonl that a split has were found valid there.
        facts = self.known.any_facts(digests) if split is None else self.known.facts(digests)
        with (self.root / file).open("rb") as source:
            lines = zip(source, digests, facts, strict=True)
            for number, (raw, digest, known) in enumerate(lines, start=1):
                if raw.strip():
                    self._line((file, number), split, (raw, digest, known))

    def _line(
        self, position: RecordPosition, split: str | None, line: tuple[bytes, bytes, bytes | None]
    ) -> None:
        """Check a line, given with its digest and what is known of it."""
        raw, digest, image = line
        keys = record_line_keys(raw) if image is not None and split is not None else None
        if keys is None:
            try:
                record = parse_json(raw, position[0])
            except JsonFileError as error:
                self.report(*position, [json_fault(error)])
                return
            if image is None:
                image = self._training_record(position, split, record, digest)
            if not isinstance(record, dict):
                return
            keys = record_keys(record)
        if split is None:
            self.report(*position, self.inventory.add_data_line(position, keys.name, digest))
        else:
            faults = self.inventory.add(split, position, keys, image or None, digest)
            self.report(*position, faults)

    def _training_record(
        self, position: RecordPosition, split: str | None, record: Any, digest: bytes
    ) -> bytes | None:
        """Check a record by itself; returns the digest of its image."""
        before = len(self.problems)
        self.report(*position, training_faults(record))
        if not isinstance(record, dict):
            return None
        image = self._image(position, "", record.get("image"), record.get("metadata"))
        if split is not None and len(self.problems) == before:
            self.known.add_found(digest, image or b"")
        return image

    def check_tests(self) -> None:
        """Check the tests; the line of a problem is the 1-based number of the entry."""
        path = self.root / "test" / "test.json"
        lines = LineArray.of(path, self.known) if is_kind(path, "file") else None
        entries = self._load("test/test.json", "test.json") if lines is None else lines
        if not isinstance(entries, list | LineArray):
            if entries is not None:
                self.report("test.json", None, [CudagFault("tests", "must be a JSON array")])
            return
        for number, (entry, line) in enumerate(self._tests(entries), start=1):
            self._test(("test.json", number), entry, line)
        if self.ours:
            for file, place, fault in conversation_faults(self.root, entries, self.known):
                self.report(file, place, [fault])

    def _tests(
        self, entries: "list[Any] | LineArray"
    ) -> Iterator[tuple[Any, tuple[bytes, bytes | None]]]:
        """Yield the tests, each with the digest of its line, if it has one, and what is known.

        Of a test that is known to be valid its keys.
        """
        if not isinstance(entries, LineArray):
            yield from ((entry, (b"", None)) for entry in entries)
            return
        found = (entries.lines(), entries.digests, self.known.facts(entries.digests))
        for line, digest, known in zip(*found, strict=True):
            keys = test_line_keys(line) if known is not None else None
            yield keys or parse_json(line, "test.json"), (digest, known)

    def _test(self, position: RecordPosition, entry: Any, line: tuple[bytes, bytes | None]) -> None:
        """Check an entry of test.json, or take its keys."""
        digest, image = line
        if not isinstance(entry, RecordKeys):
            before = len(self.problems)
            self.report(*position, eval_faults(entry))
            if not isinstance(entry, dict):
                return
            if image is None:
                name, metadata = entry.get("screenshot"), entry.get("metadata")
                image = self._image(position, "test/", name, metadata)
            if digest and len(self.problems) == before:
                self.known.add_found(digest, image or b"")
            entry = test_keys(entry)
        self.report(*position, self.inventory.add("test", position, entry, image or None))

    def _image(
        self, position: RecordPosition, folder: str, name: object, metadata: object
    ) -> bytes | None:
        """Check that the image exists, opens and has the declared size; returns its digest."""
        if not isinstance(name, str) or not name.startswith("images/") or ".." in name.split("/"):
            return None
        key = folder + name
        image = open_image(self.root / folder, name)
        if image.info is None:
            self.report(*position, [CudagFault("image", f"{image.fault}: {printable(key)}")])
        else:
            self.report(*position, image_faults(image.info, name, metadata))
        return image.digest

    def check_all_records(self) -> None:
        """Check the rules that need all records."""
        for position, name in self._missing_from_data():
            self.report(*position, [missing_record(name)])
        self.report("./", None, self.inventory.shared_image_warnings())
        if self.ours:
            counted = self.inventory.task_types
            self.report("config.json", None, count_faults(self.configuration, counted))
            for file, line, fault in sidecar_faults(self.root, self.configuration):
                self.report(file, line, [fault])
            for file, line, fault in report_faults(self.root, self.configuration, self.inventory):
                self.report(file, line, [fault])

    def _missing_from_data(self) -> Iterator[tuple[RecordPosition, str]]:
        """Yield position and id of the records that data.jsonl does not have."""
        for file, positions in groupby(self.inventory.missing_from_data(), key=itemgetter(0)):
            lines = {line for _, line in positions}
            with (self.root / file).open("rb") as source:
                for number, raw in enumerate(source, start=1):
                    if number in lines:
                        yield (file, number), parse_json(raw, file)["id"]
