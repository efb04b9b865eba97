"""Whether a directory is a CUDAG dataset (seed 003), and if not, what is wrong where.

Belongs here: the walk over the files. What a record must look like lies in `cudag_rules` and
`cudag_places`, what holds between records in `cudag_inventory`.

Locations are those of the seed: `train.jsonl:42` is line 42 of the file; `test.json:5` is the fifth
entry of the array in `test/test.json`, counted from 1; `test/` and `./` are directories.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_pipeline.common.image_header import ImageInfo, probe_image
from demo_pipeline.common.json_files import JsonFileError, load_json, parse_json
from demo_pipeline.formats.cudag.config import config_faults, count_faults, is_ours
from demo_pipeline.formats.cudag.cross_checks import CudagInventory, file_digest_of
from demo_pipeline.formats.cudag.fault import CudagFault, Scope, shown
from demo_pipeline.formats.cudag.models import DIRECTORY_PATTERN
from demo_pipeline.formats.cudag.record_rules import eval_faults, training_faults
from demo_pipeline.formats.cudag.sidecars import companion_faults
from demo_pipeline.formats.cudag.split_checks import report_faults
from demo_pipeline.problems import Problem, Severity

SPLITS = ("train", "val", "held_out")
_FILES = (
    ("./", "config.json"),
    ("./", "data.jsonl"),
    ("./", "train.jsonl"),
    ("./", "val.jsonl"),
    ("test/", "test.json"),
)
_FOLDERS = (("./", "images/"), ("./", "test/"), ("test/", "images/"))
_REMEDIES = {
    "test/images/": "save test images to test/images/, under no other name",
    "test/": "put test.json and its images there",
}


def validate_cudag(path: Path) -> list[Problem]:
    """Every problem of a dataset, in the order of its files; none for a valid one.

    Datasets of ours (`config.json` has our `generator`) are held to everything that the formats
    notes promise; any other to the seed alone, and what we would do otherwise is a warning.

    Args:
        path: the dataset's directory; a link to one will do.
    """
    if not _kind(path, "dir"):
        return [Problem("not_a_directory", "./", "not a directory", remedy="name a dataset")]
    check = _Check(path)
    check.layout()
    check.config()
    for split in SPLITS:
        check.lines(f"{split}.jsonl", split)
    check.tests()
    check.lines("data.jsonl", None)
    check.end()
    return check.problems


def _kind(path: Path, wanted: str) -> bool:
    """Whether a path is a `file` or a `dir`; a name no file system takes is neither."""
    try:
        return path.is_file() if wanted == "file" else path.is_dir()
    except (OSError, ValueError):
        return False


@dataclass(slots=True)
class _Picture:
    info: ImageInfo | None
    fault: str
    key: bytes | None


@dataclass(slots=True)
class _Check:
    """One validation under way."""

    root: Path
    problems: list[Problem] = field(default_factory=list)
    inventory: CudagInventory = field(default_factory=CudagInventory)
    pictures: dict[str, _Picture] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    ours: bool = False

    def report(self, file: str, line: int | None, faults: Iterable[CudagFault]) -> None:
        for fault in faults:
            if problem := fault.problem(file, line, ours=self.ours):
                self.problems.append(problem)

    def layout(self) -> None:
        """Required and optional files and directories (seed 003, Filesystem Structure)."""
        name = self.root.absolute().name
        if not DIRECTORY_PATTERN.fullmatch(name):
            text = "directory name is not {prefix}--{user}--{YYYYMMDD_HHMMSS}"
            self.problems.append(Problem("directory_name", "./", text, severity=Severity.WARNING))
        for folder, name in _FOLDERS:
            if not _kind(self.root / folder / name, "dir"):
                self._missing(folder, name, "directory")
        for folder, name in _FILES:
            if not _kind(self.root / folder / name, "file"):
                self._missing(folder, name, "file")
        if (held := self.root / "held_out.jsonl").exists() and not _kind(held, "file"):
            self.report("held_out.jsonl", None, [CudagFault("not_a_file", "must be a file")])
        if (drawn := self.root / "test" / "annotated").exists() and not _kind(drawn, "dir"):
            self.report(
                "test/", None, [CudagFault("not_a_directory", "annotated/ must be a directory")]
            )

    def _missing(self, folder: str, name: str, kind: str) -> None:
        where = f"{folder}{name}".removeprefix("./")
        other = (self.root / where).exists()
        message = f"Missing required {kind}: {name}" + (f" (not a {kind})" if other else "")
        remedy = _REMEDIES.get(where, f"write {where}")
        self.report(folder, None, [CudagFault(f"missing_{kind}", message, remedy)])

    def config(self) -> None:
        """The configuration, and from it whose dataset this is."""
        value = self._load("config.json", "config.json")
        if isinstance(value, dict):
            self.configuration, self.ours = value, is_ours(value)
            self.report("config.json", None, config_faults(value))
        elif value is not None:
            self.report("config.json", None, [CudagFault("config", "must be a JSON object")])

    def _load(self, place: str, name: str) -> Any:
        """A JSON file's value; None when it is not there or, reported, not readable."""
        if not _kind(self.root / place, "file"):
            return None
        try:
            value = load_json(self.root / place, name)
        except JsonFileError as error:
            self.report(name, error.line, [CudagFault("invalid_json", error.message)])
            return None
        if value is None:
            self.report(name, None, [CudagFault("invalid_json", "must not be null")])
        return value

    def lines(self, file: str, split: str | None) -> None:
        """A file of records; `split` None is `data.jsonl`, compared with the splits before it."""
        if not _kind(self.root / file, "file"):
            return
        with (self.root / file).open("rb") as source:
            for number, raw in enumerate(source, start=1):
                if raw.strip():
                    self._line((file, number), split, raw)

    def _line(self, place: tuple[str, int], split: str | None, raw: bytes) -> None:
        try:
            record = parse_json(raw, place[0])
        except JsonFileError as error:
            self.report(*place, [CudagFault("invalid_json", error.message)])
            return
        self.report(*place, training_faults(record))
        if not isinstance(record, dict):
            return
        picture = self._picture(place, "", record.get("image"), record.get("metadata"))
        if split is None:
            self.report(*place, self.inventory.data(place, record.get("id"), raw))
            return
        self.report(*place, self.inventory.record(split, place, record, raw))
        prompt = _first_value(record.get("conversations"))
        self.report(*place, self.inventory.seen(split, place, prompt, picture))

    def tests(self) -> None:
        """The test cases; the line of a problem is the entry's index, from 1."""
        entries = self._load("test/test.json", "test.json")
        if not isinstance(entries, list):
            if entries is not None:
                self.report("test.json", None, [CudagFault("tests", "must be a JSON array")])
            return
        for number, entry in enumerate(entries, start=1):
            place = ("test.json", number)
            self.report(*place, eval_faults(entry))
            if isinstance(entry, dict):
                shot, metadata = entry.get("screenshot"), entry.get("metadata")
                picture = self._picture(place, "test/", shot, metadata)
                self.report(*place, self.inventory.test(place, entry))
                self.report(
                    *place, self.inventory.seen("test", place, entry.get("prompt"), picture)
                )

    def _picture(
        self, place: tuple[str, int], folder: str, name: object, metadata: object
    ) -> bytes | None:
        """Check that the image exists, opens and has the size the record says; its fingerprint."""
        if not isinstance(name, str) or not name.startswith("images/") or ".." in name.split("/"):
            return None
        key = folder + name
        if key not in self.pictures:
            self.pictures[key] = _look(self.root / folder, name)
        picture = self.pictures[key]
        if picture.info is None:
            self.report(*place, [CudagFault("image", f"{picture.fault}: {shown(key)}")])
        else:
            self.report(*place, _picture_faults(picture.info, name, metadata))
        return picture.key

    def end(self) -> None:
        """What can be said only when everything was read."""
        for place, fault in self.inventory.left_over():
            self.report(*place, [fault])
        self.report("./", None, self.inventory.shared_pictures())
        if self.ours:
            counted = self.inventory.task_types
            self.report("config.json", None, count_faults(self.configuration, counted))
            for file, line, fault in companion_faults(self.root, self.configuration):
                self.report(file, line, [fault])
            for file, line, fault in report_faults(self.root, self.configuration, self.inventory):
                self.report(file, line, [fault])


def _look(folder: Path, name: str) -> _Picture:
    if not _kind(folder / name, "file"):
        return _Picture(None, "Image not found", None)
    try:
        data = (folder / name).read_bytes()
        return _Picture(probe_image(data), "", file_digest_of(data))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return _Picture(None, f"Image does not open ({reason})", None)


def _picture_faults(info: ImageInfo, name: str, metadata: object) -> Iterator[CudagFault]:
    size = [info.width, info.height]
    said = metadata.get("image_size") if isinstance(metadata, dict) else None
    if isinstance(said, list) and said != size:
        message = f"metadata.image_size {_sizes(said)} is not the image's {size}"
        yield CudagFault("image_size", message, "give the size of the stored file", Scope.SHARED)
    if name.endswith(".png") != (info.kind == "png"):
        message = f"image is {info.kind}, unlike its name: {shown(name)}"
        yield CudagFault("image_kind", message, "convert or rename it", Scope.SHARED)


def _sizes(values: list[Any]) -> str:
    return str(values) if all(isinstance(v, int) for v in values[:3]) else "(not numbers)"


def _first_value(turns: object) -> object:
    first = turns[0] if isinstance(turns, list) and turns else None
    return first.get("value") if isinstance(first, dict) else None
