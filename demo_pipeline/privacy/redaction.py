"""From a trajectory to what may leave: what is private in it, and a copy without that.

Belongs here: looking at every text and picture of a trajectory, one fate for each secret wherever
it stands, and writing the copy. What in a text is private is decided in `detectors` and
`private_texts`; what happens to a kind is a setting.
"""

import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from demo_pipeline.desktopd.trajectory_reader import native_of
from demo_pipeline.files.atomic_write import link_or_copy, read_digest
from demo_pipeline.files.comparison import files_below
from demo_pipeline.files.image_files import PngWriter
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.observation.trees.secret_fields import mapped_texts
from demo_pipeline.osworld.task_text import slug
from demo_pipeline.privacy import picture_texts as pictures
from demo_pipeline.privacy.detectors import Detectors, PrivateSpan
from demo_pipeline.privacy.picture_texts import BgrPicture, PictureBox, PictureReader, TextLine
from demo_pipeline.privacy.private_texts import PrivateTexts
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.trajectories.provenance import read_provenance, write_provenance

_Row = dict[str, Any]
_LOG = logging.getLogger(__name__)
_PROVENANCE = "provenance.parquet"
_TASK = "task.json"
_FINAL = "final_screenshot.png"
# Keys of JSON whose texts are ours: names of forms, ids, times. All other texts are people's, or
# those of what the screen showed.
OURS = frozenset(
    (
        *("id", "role", "states", "timestamp", "task_id", "trajectory_id", "osworld_task_id"),
        *("action_type", "direction", "button", "modifiers", "keys", "difficulty", "version"),
        *("author", "judged", "time", "kind", "source", "prompt", "variant", "demonstration"),
        *("trajectory", "decision", "reason"),
    )
)
_COLUMNS = ("text", "target_name", "reason")  # of provenance
_REVIEW = "review"  # detector: a person, whatever the policy is
_WINDOW = "<window>"
_WINDOWS = frozenset({"window", "dialog"})
_STEP = re.compile(r"steps/([0-9]+)/")
_KEY_OPENED = re.compile(r"BEGIN[A-Z0-9 ]*PRIVATE ?KEY(?!.*END)")
_KEY_LINE = re.compile(r"\S{16,}|.*END.*KEY.*")
_IN_IDS = frozenset({"word", "expression", "aws_key", "github_token", "slack_token", "iban"})


@dataclass(frozen=True)
class Marks:
    """What people say on the review page: boxes to cover, and found ones to leave alone.

    The final screenshot, which that page does not show, is covered like the last step.

    Attributes:
        added: step → boxes.
        kept: the same, for boxes that hold nothing private.
    """

    added: dict[int, Sequence[PictureBox]] = field(default_factory=dict)
    kept: dict[int, Sequence[PictureBox]] = field(default_factory=dict)


@dataclass
class Redaction:
    """What was found in a trajectory so far.

    Attributes:
        folder: of the trajectory.
        detectors: what is looked for.
        key: of the hashes: of the recording, so that only who has it can guess.
        passwords: typed ones, which the trajectory lacks already.
        marks: of people.
        findings: rows of redactions.parquet: where something private is, never what it is.
        pictures_read, pictures_unread: how many.
    """

    folder: Path
    detectors: Detectors
    key: bytes
    passwords: Collection[str] = ()
    marks: Marks = field(default_factory=Marks)
    findings: list[_Row] = field(default_factory=list)
    pictures_read: int = 0
    pictures_unread: int = 0
    _boxes: dict[str, list[PictureBox]] = field(default_factory=dict)
    _windows: dict[str, set[str]] = field(default_factory=dict)
    _private: dict[str, set[str]] = field(default_factory=dict)  # texts of each file
    _removed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.texts = PrivateTexts(self.detectors)

    @property
    def settings(self) -> PrivacySettings:
        """Policies and lists."""
        return self.detectors.settings

    def find(self) -> None:
        """Look at every text, then at every picture."""
        self.find_in_texts()
        for name in self._names("/ui_tree.json"):
            if self.settings.windows or self._private[name]:
                self._find_in_tree(name, self._load(name))
        self._find_in_pictures()

    def find_in_texts(self) -> None:
        """Look at every text."""
        self.learn()
        for name, private in self._private.items():
            for place, text in self._placed_texts(name) if private else ():
                for span in self.texts.spans(text) if text in private else ():
                    self._note(name, place, span, text)

    def learn(self) -> None:
        """Note every secret that is typed or shown."""
        same = dict[str, str]()  # one object for equal texts: trees repeat most of theirs
        known = dict[str, dict[str, None]]()  # several steps have one tree
        names = dict[str, str]()
        groups = list[list[str]]()
        for name in (*self._names(".json"), _PROVENANCE):
            digest = names[name] = read_digest(self.folder / name).sha256
            if digest not in known:
                texts = dict.fromkeys(text for _, text in self._placed_texts(name))
                groups.append([text for text in texts if text not in same])
                known[digest] = dict.fromkeys(map(same.setdefault, texts, texts))
                self.texts.learn(groups[-1])
        for password in sorted(self.passwords):
            self.texts.add(password, "password")
        self.texts.learn_typed(map(self._load, self._names("action.json")))
        private = set[str]().union(*map(self.texts.private, groups))
        self._private = {name: private.intersection(known[names[name]]) for name in names}
        self._removed = {text for text in private if self.texts.clean(text) != text}

    def _placed_texts(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the place and the content of each text of a file, which is not kept."""
        if name == _PROVENANCE:
            return _texts_of_rows(read_provenance(self.folder / name))
        if name.endswith("/ui_tree.json"):
            with suppress(msgspec.DecodeError, RecursionError):
                return _texts_of_tree(_TREE.decode((self.folder / name).read_bytes()))
        return _texts_of(self._load(name))

    def _load(self, name: str) -> Any:
        return load_json(self.folder / name)

    def withheld(self, demonstration: str) -> str:
        """Why the demonstration must not leave; empty: it may."""
        if dropped := {one["kind"] for one in self.findings if one["policy"] == "drop"}:
            return f"private: {', '.join(sorted(dropped))}"
        named = self.detectors.find(demonstration)
        if any(one.kind in _IN_IDS and self.settings.removes(one.kind) for one in named):
            return "private: its id"
        return "pictures not read" if self.pictures_unread else ""

    def write(self, out: Path) -> int:
        """Write a copy without what is redacted; returns how many files differ, 0 without a copy.

        Other files are linked, or copied where that is not possible.
        """
        changed = self._changed_documents()
        pictures_of = self._boxes.items()
        changed |= {name: partial(self._write_picture, name, boxes) for name, boxes in pictures_of}
        withheld = self._withheld_pictures()
        if not changed and not withheld:
            return 0
        for name, _ in files_below(self.folder):
            if name in withheld:
                continue
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            if write := changed.get(name):
                write(out / name)
            else:
                link_or_copy(self.folder / name, out / name)
        return len(changed) + len(withheld)

    def _withheld_pictures(self) -> set[str]:
        """The screen's own pictures that are not in the copy: they were not read in their size.

        Boxes are those of the screenshot: without reading, only uncovered ones have the other.
        """
        native = self._names("_native.png")
        covered = {str(native_of(Path(name))) for name, boxes in self._boxes.items() if boxes}
        return {name for name in native if self.settings.reads_pictures or name in covered}

    def _names(self, suffix: str) -> list[str]:
        names = sorted(name for name, _ in files_below(self.folder) if name.endswith(suffix))
        return [name for name in names if name != "redactions.json"]

    def _note(
        self, name: str, place: str, span: PrivateSpan, text: str, box: PictureBox | None = None
    ) -> None:
        policy = "redact" if span.detector == _REVIEW else self.settings.policy_of(span.kind)
        if policy == "off":
            return
        step = _STEP.match(name)
        same = span.secret or text[span.start : span.end]
        found = {
            "step": int(step[1]) if step else None,
            "place": f"{name}#{place}" if place else name,
            "kind": span.kind,
            "detector": span.detector,
            "confidence": span.confidence,
            "policy": policy,
            # Keyed, so that only who has the recording can guess.
            "secret": hmac.new(self.key, _same(same), hashlib.sha256).hexdigest()[:16],
            "start": None if box else span.start,
            "end": None if box else span.end,
        }
        sides = zip(("x", "y", "width", "height"), box or (None,) * 4, strict=True)
        self.findings.append(found | dict(sides))

    # --- trees and pictures

    def _find_in_tree(self, name: str, tree: Any) -> None:
        """Boxes of nodes whose name is mostly a secret, and of private windows."""
        picture = name.replace("ui_tree.json", "screenshot.png")
        for node, above in _nodes(tree):
            text = node.get("name") or ""
            bounds = node.get("bounds")
            if not bounds:
                continue
            titles = [one for one in self.settings.windows if one.casefold() in text.casefold()]
            if titles and (node.get("role") in _WINDOWS or above <= 1):
                self._hide_window(picture, node)
            found = self.texts.spans(text)
            part = sum(span.end - span.start for span in found)
            if part * 2 >= len(text) > 0 and not node.get("children"):
                for span in found:
                    self._cover(picture, span, text, _box_of(node))

    def _hide_window(self, picture: str, top: Mapping[str, Any]) -> None:
        """Cover a window, or those of an application, and keep the names inside to replace them.

        What is typed while the keyboard is in it, or nobody knows where it is, goes with them.
        """
        folder = picture.rpartition("/")[0]
        inside = set[str]()
        focused = False
        names = self._windows.setdefault(folder, set())
        for node, _ in _nodes({"root": top}):
            bounds = node["bounds"]
            text = node.get("name") or ""
            inside.add(node["id"])
            focused = focused or "FOCUSED" in node.get("states", ())
            if (node is top or node.get("role") in _WINDOWS) and bounds["width"] * bounds["height"]:
                is_last = picture == self._names("/screenshot.png")[-1]
                for name in (picture, _FINAL) if is_last else (picture,):  # the end has no tree
                    span = PrivateSpan(0, 0, "window", "list", 1.0)
                    self._cover(name, span, text, _box_of(node))
            if text:
                names.add(text)
        action = self._load(f"{folder}/action.json")
        target = (action.get("target_element") or {}).get("id")
        if action["action_type"] == "type" and (focused or target in {None, *inside}):
            names.add(action["parameters"]["text"])

    def _find_in_pictures(self) -> None:
        names = [name for name in self._names("/screenshot.png") if name.startswith("steps/")]
        reader = PictureReader()
        for number, name in enumerate([*names, _FINAL]):
            for region in self.settings.regions:
                self._cover(name, PrivateSpan(0, 0, "region", "list", 1.0), "", region)
            for box in self.marks.added.get(min(number, len(names) - 1), ()):
                self._cover(name, PrivateSpan(0, 0, "region", _REVIEW, 1.0), "", box)
            if self.settings.reads_pictures:
                self._read(name, reader)

    def _read(self, name: str, reader: PictureReader) -> None:
        """Cover what is read in a picture; one that cannot be read is covered as a whole.

        What is still read in the covered picture takes its whole line along.
        """
        picture = self._picture(name)
        try:
            self._cover_lines(name, reader.lines(picture), whole=False)
            covered = picture.copy()
            pictures.cover(covered, self._boxes.get(name, ()))
            if covered.tobytes() != picture.tobytes():
                self._cover_lines(name, reader.lines(covered), whole=True)
            self.pictures_read += 1
        except Exception as error:  # noqa: BLE001 - whatever the engine raises
            _LOG.warning("%s was not read (%s)", name, type(error).__name__)
            self.pictures_unread += 1
            self._boxes[name] = [(0, 0, picture.shape[1], picture.shape[0])]

    def _cover_lines(self, name: str, lines: Sequence[TextLine], *, whole: bool) -> None:
        """Cover the words of lines that are private, or the `whole` line."""
        for line, span in self._private_lines(lines):
            for box in [line.box] if whole else line.boxes_of(span.start, span.end):
                self._cover(name, span, line.text, box)

    def _private_lines(self, lines: Sequence[TextLine]) -> Iterator[tuple[TextLine, PrivateSpan]]:
        for line in lines:
            for span in self.texts.spans_read(line.text):
                yield line, span
            if (below := pictures.line_below(line, lines)) is None:
                continue
            if parted := self.texts.parted(line.text, below.text):
                for one in (line, below):
                    yield one, parted._replace(start=0, end=len(one.text))
            opened = line if _KEY_OPENED.search(line.text) else None
            while opened and (opened := pictures.line_below(opened, lines)):
                if not _KEY_LINE.fullmatch(opened.text):
                    break
                yield opened, PrivateSpan(0, len(opened.text), "private_key", "read", 0.8)

    def _picture(self, name: str) -> BgrPicture:
        picture = pictures.load_picture(self.folder / name)
        if picture is None:
            message = "it cannot be read as a picture"
            remedy = "record it again"
            raise DemonstrationError([Problem("picture_unreadable", name, message, remedy=remedy)])
        return picture

    def _cover(self, name: str, span: PrivateSpan, text: str, box: PictureBox) -> None:
        step = _STEP.match(name)
        kept = self.marks.kept.get(int(step[1]), ()) if step else ()
        large = span.kind in {"window", "region"}  # which a word inside does not take along
        if box in kept or (not large and any(pictures.touch(box, one) for one in kept)):
            return
        self._note(name, "", span, text, box)
        if span.detector == _REVIEW or self.settings.removes(span.kind):
            self._boxes.setdefault(name, []).append(box)

    # --- the copy

    def _cleaned(self, folder: str) -> Callable[[str], str]:
        """The function that replaces secrets, and in a step's files the names in its windows."""
        removed = self.settings.removes("window")
        titles = sorted(self._windows.get(folder, ()) if removed else (), key=len, reverse=True)

        def clean(text: str) -> str:
            if text in titles:
                return _WINDOW
            for title in titles:
                for quoted in (f'"{title}"', f"'{title}'"):  # as sentences quote names
                    text = text.replace(quoted, f'"{_WINDOW}"')
            return self.texts.clean(text)

        return clean

    def _changed_documents(self) -> dict[str, Callable[[Path], None]]:
        changed: dict[str, Callable[[Path], None]] = {}
        group = None
        for name in self._names(".json"):
            folder = name.rpartition("/")[0]
            if folder not in self._windows and self._removed.isdisjoint(self._private[name]):
                continue
            document = self._load(name)
            cleaned = mapped_texts(document, self._cleaned(folder), OURS)
            if cleaned != document:
                if name == _TASK:  # id and split group quote the words
                    group = slug(f"{cleaned['application']} {cleaned['instruction']}")
                    cleaned["task_id"] = group
                is_tree = name.endswith("/ui_tree.json")
                changed[name] = partial(dump_json, value=cleaned, compact=is_tree)
        rows = read_provenance(self.folder / _PROVENANCE)
        new_rows = [self._changed_row(row, group or row["split_group"]) for row in rows]
        if new_rows != rows:
            changed[_PROVENANCE] = lambda path: write_provenance(path, new_rows)
        return changed

    def _changed_row(self, row: Mapping[str, Any], group: str) -> dict[str, Any]:
        clean = self._cleaned(f"steps/{row['step_index']:03d}")
        texts = {name: row[name] and clean(row[name]) for name in _COLUMNS}
        objectives = row["objectives"] and [clean(text) for text in row["objectives"]]
        return {**row, **texts, "objectives": objectives, "split_group": group}

    def _write_picture(self, name: str, boxes: Sequence[PictureBox], path: Path) -> None:
        picture = self._picture(name)
        pictures.cover(picture, boxes)
        PngWriter().write(path, picture[:, :, ::-1])


def _same(secret: str) -> bytes:
    return "".join(secret.split()).casefold().encode("utf-8", "replace")


def _box_of(node: Mapping[str, Any]) -> PictureBox:
    bounds = node["bounds"]
    return bounds["x"], bounds["y"], bounds["width"], bounds["height"]


def _texts_of(document: Any) -> Iterator[tuple[str, str]]:
    """Yield the node or key, and the content, of each text of a JSON document."""
    pending: list[tuple[str, str, Any]] = [("", "", document)]
    while pending:
        place, key, value = pending.pop()
        if isinstance(value, str):
            if key not in OURS:
                yield f"{place}.{key}".lstrip("."), value
        elif isinstance(value, dict):
            inner = str(value.get("id") or place)
            pending += [(inner, one, other) for one, other in value.items()]
        elif isinstance(value, list):
            pending += [(place, key, other) for other in value]


class _TreeNode(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str
    role: str
    name: str
    bounds: dict[str, int]
    states: list[str] = []
    children: list["_TreeNode"] = []


class _Tree(msgspec.Struct, forbid_unknown_fields=True):
    """A tree as this pipeline writes it, whose only texts are names and those of `OURS`."""

    timestamp: str
    screen: dict[str, int]
    root: _TreeNode


_TREE = msgspec.json.Decoder(_Tree)


def _texts_of_tree(tree: _Tree) -> Iterator[tuple[str, str]]:
    """What `_texts_of` yields for a tree, in a tenth of the time."""
    pending = [tree.root]
    found = list[tuple[str, str]]()
    while pending:
        node = pending.pop()
        found.append((f"{node.id}.name", node.name))
        pending += node.children[::-1]
    return reversed(found)


def _texts_of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for text in (rows[0]["objectives"] or ()) if rows else ():
        yield "objectives", text
    for text in dict.fromkeys(row["reason"] for row in rows):
        yield "reason", text


def _nodes(tree: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield each node of a tree and how many are above it."""
    root = tree.get("root", tree)
    pending = [(root, 0)]
    while pending:
        node, above = pending.pop()
        yield node, above
        pending += [(child, above + 1) for child in reversed(node.get("children") or [])]
