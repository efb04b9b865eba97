"""Finds the private data of a trajectory, and writes a redacted copy of the trajectory.

The settings have a policy for each kind of private data.
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
from demo_pipeline.privacy import screenshot_texts
from demo_pipeline.privacy.detectors import Detectors, PrivateSpan
from demo_pipeline.privacy.private_texts import PrivateTexts
from demo_pipeline.privacy.screenshot_texts import (
    BgrImage,
    ScreenshotBox,
    ScreenshotReader,
    TextLine,
)
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.trajectories.provenance import read_provenance, write_provenance

_Row = dict[str, Any]
_LOG = logging.getLogger(__name__)
_PROVENANCE = "provenance.parquet"
_TASK = "task.json"
_FINAL = "final_screenshot.png"
# JSON keys whose values come from the pipeline, such as ids, times and action types. These
# values are never searched.
PIPELINE_KEYS = frozenset(
    (
        *("id", "role", "states", "timestamp", "task_id", "trajectory_id", "osworld_task_id"),
        *("action_type", "direction", "button", "modifiers", "keys", "difficulty", "version"),
        *("author", "judged", "time", "kind", "source", "prompt", "variant", "demonstration"),
        *("trajectory", "decision", "reason"),
    )
)
_TEXT_COLUMNS = ("text", "target_name", "reason")  # columns of provenance that may contain secrets
# Name of the detector for boxes that people marked as private. These boxes are redacted under every
# policy.
_REVIEW = "review"
_WINDOW = "<window>"  # replaces the names inside a private window
_WINDOW_ROLES = frozenset({"window", "dialog"})
_STEP = re.compile(r"steps/([0-9]+)/")
# Lines of a private key in recognised text: the first line, with a begin marker but no end marker,
# and the lines below it.
_KEY_OPENED = re.compile(r"BEGIN[A-Z0-9 ]*PRIVATE ?KEY(?!.*END)")
_KEY_LINE = re.compile(r"\S{16,}|.*END.*KEY.*")
# Kinds of private data that are searched for in the id of a demonstration.
_KINDS_IN_IDS = frozenset({"word", "expression", "aws_key", "github_token", "slack_token", "iban"})


@dataclass(frozen=True)
class Marks:
    """The boxes that people marked on the review page.

    Boxes for the last step also cover the final screenshot, which the page does not show.

    Attributes:
        added: maps step numbers to the boxes to cover.
        kept: maps step numbers to the detected boxes that people marked as not private.
    """

    added: dict[int, Sequence[ScreenshotBox]] = field(default_factory=dict)
    kept: dict[int, Sequence[ScreenshotBox]] = field(default_factory=dict)


@dataclass
class Redaction:
    """Searches one trajectory for private data and writes its redacted copy.

    Attributes:
        key: key of the HMAC hashes in the findings. It is computed from the recording, so that
            nobody without the recording can find a secret by hashing guesses.
        passwords: typed passwords, which the trajectory contains only as `<password>`.
        findings: rows of redactions.parquet, with the place of each secret but never its text.
        pictures_read: number of screenshots whose text was searched.
        pictures_unread: number of screenshots whose text could not be searched.
    """

    folder: Path
    detectors: Detectors
    key: bytes
    passwords: Collection[str] = ()
    marks: Marks = field(default_factory=Marks)
    findings: list[_Row] = field(default_factory=list)
    pictures_read: int = 0
    pictures_unread: int = 0
    # Maps each screenshot to the boxes to cover.
    _boxes: dict[str, list[ScreenshotBox]] = field(default_factory=dict)
    # Maps the folder of a step to the names of the nodes inside private windows.
    _window_names: dict[str, set[str]] = field(default_factory=dict)
    # Maps each file to its texts that contain a secret.
    _private_texts: dict[str, set[str]] = field(default_factory=dict)
    # Texts that contain a secret of a kind that the settings remove.
    _changed_texts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.texts = PrivateTexts(self.detectors)

    @property
    def settings(self) -> PrivacySettings:
        """The policy for each kind of private data, and lists of private words and windows."""
        return self.detectors.settings

    def find(self) -> None:
        """Searches all texts, trees and screenshots, and adds the results to `findings`."""
        self.find_in_texts()
        for name in self._names("/ui_tree.json"):
            if self.settings.windows or self._private_texts[name]:
                self._find_in_tree(name, self._load(name))
        self._find_in_screenshots()

    def find_in_texts(self) -> None:
        """Searches the texts of all files, and adds the results to `findings`."""
        self.learn()
        for name, private_texts in self._private_texts.items():
            if not private_texts:
                continue
            for place, text in self._placed_texts(name):
                if text in private_texts:
                    for span in self.texts.spans(text):
                        self._note(name, place, span, text)

    def learn(self) -> None:
        """Collects the secrets of all files, then finds all texts that contain a secret."""
        shared_texts = dict[str, str]()  # equal texts share one object
        texts_by_digest = dict[str, dict[str, None]]()  # files with equal content are read once
        digests = dict[str, str]()
        groups = list[list[str]]()
        for name in (*self._names(".json"), _PROVENANCE):
            digest = read_digest(self.folder / name).sha256
            digests[name] = digest
            if digest not in texts_by_digest:
                texts = dict.fromkeys(text for _, text in self._placed_texts(name))
                new_texts = [text for text in texts if text not in shared_texts]
                shared = map(shared_texts.setdefault, texts, texts)
                texts_by_digest[digest] = dict.fromkeys(shared)
                groups.append(new_texts)
                self.texts.learn(new_texts)
        for password in sorted(self.passwords):
            self.texts.add(password, "password")
        self.texts.learn_typed(map(self._load, self._names("action.json")))
        private = set[str]().union(*map(self.texts.private, groups))
        for name, digest in digests.items():
            self._private_texts[name] = private.intersection(texts_by_digest[digest])
        for text in private:
            if self.texts.clean(text) != text:
                self._changed_texts.add(text)

    def _placed_texts(self, name: str) -> Iterator[tuple[str, str]]:
        """Yields (place, text) for each text of a file. The place names the text's node or key."""
        if name == _PROVENANCE:
            return _texts_of_rows(read_provenance(self.folder / name))
        if name.endswith("/ui_tree.json"):
            with suppress(msgspec.DecodeError, RecursionError):
                return _texts_of_tree(_TREE.decode((self.folder / name).read_bytes()))
        return _texts_of(self._load(name))

    def _load(self, name: str) -> Any:
        return load_json(self.folder / name)

    def withheld(self, demonstration: str) -> str:
        """Returns why the demonstration must not be exported; empty if it may be exported."""
        dropped = {finding["kind"] for finding in self.findings if finding["policy"] == "drop"}
        if dropped:
            return f"private: {', '.join(sorted(dropped))}"
        for span in self.detectors.find(demonstration):
            if span.kind in _KINDS_IN_IDS and self.settings.removes(span.kind):
                return "private: its id"
        if self.pictures_unread:
            return "pictures not read"
        return ""

    def write(self, out: Path) -> int:
        """Writes a redacted copy of the trajectory into `out`, with links to unchanged files.

        Returns:
            The number of files that are changed or left out. If it is 0, nothing is written.
        """
        changed = self._changed_documents()
        for name, boxes in self._boxes.items():
            changed[name] = partial(self._write_screenshot, name, boxes)
        withheld = self._withheld_screenshots()
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

    def _withheld_screenshots(self) -> set[str]:
        """Returns the screenshots of native size that the copy leaves out.

        If the settings require text recognition, all are left out, because text is only recognised
        in canvas screenshots. Otherwise, a screenshot is left out if its canvas screenshot has
        covered boxes.
        """
        native = self._names("_native.png")
        if self.settings.reads_pictures:
            return set(native)
        covered = {str(native_of(Path(name))) for name, boxes in self._boxes.items() if boxes}
        return covered.intersection(native)

    def _names(self, suffix: str) -> list[str]:
        """Returns the sorted paths of the trajectory's files with this suffix."""
        names = sorted(name for name, _ in files_below(self.folder) if name.endswith(suffix))
        return [name for name in names if name != "redactions.json"]

    def _note(
        self, name: str, place: str, span: PrivateSpan, text: str, box: ScreenshotBox | None = None
    ) -> None:
        """Adds a finding, unless the policy for the kind of private data is `off`.

        Args:
            place: node or key inside the file; empty for a screenshot.
            box: the box in a screenshot; None for a finding in a text.
        """
        policy = "redact" if span.detector == _REVIEW else self.settings.policy_of(span.kind)
        if policy == "off":
            return
        step = _STEP.match(name)
        secret = span.secret or text[span.start : span.end]
        finding = {
            "step": int(step[1]) if step else None,
            "place": f"{name}#{place}" if place else name,
            "kind": span.kind,
            "detector": span.detector,
            "confidence": span.confidence,
            "policy": policy,
            # A hash without a key could be reversed by hashing all likely secrets.
            "secret": hmac.new(self.key, _normalised(secret), hashlib.sha256).hexdigest()[:16],
            "start": None if box else span.start,
            "end": None if box else span.end,
        }
        sides = zip(("x", "y", "width", "height"), box or (None,) * 4, strict=True)
        self.findings.append(finding | dict(sides))

    # --- trees and screenshots

    def _find_in_tree(self, name: str, tree: Any) -> None:
        """Covers private windows, and leaf nodes if at least half of their name is secret."""
        screenshot = name.replace("ui_tree.json", "screenshot.png")
        for node, depth in _nodes(tree):
            text = node.get("name") or ""
            bounds = node.get("bounds")
            if not bounds:
                continue
            folded_text = text.casefold()
            has_title = any(title.casefold() in folded_text for title in self.settings.windows)
            if has_title and (node.get("role") in _WINDOW_ROLES or depth <= 1):
                self._hide_window(screenshot, node)
            spans = self.texts.spans(text)
            private_characters = sum(span.end - span.start for span in spans)
            if private_characters * 2 >= len(text) > 0 and not node.get("children"):
                for span in spans:
                    self._cover(screenshot, span, text, _box_of(node))

    def _hide_window(self, screenshot: str, top: Mapping[str, Any]) -> None:
        """Covers a window or all windows of an application, and treats the names inside as private.

        The step's typed text is private as well if a node inside the window has the focus or is the
        target of the step, or if the target is unknown.

        Args:
            screenshot: path of the step's screenshot.
            top: the node of the window or the application.
        """
        folder = screenshot.rpartition("/")[0]
        inside = set[str]()
        focused = False
        names = self._window_names.setdefault(folder, set())
        for node, _ in _nodes({"root": top}):
            bounds = node["bounds"]
            text = node.get("name") or ""
            inside.add(node["id"])
            focused = focused or "FOCUSED" in node.get("states", ())
            is_window = node is top or node.get("role") in _WINDOW_ROLES
            if is_window and bounds["width"] * bounds["height"]:
                span = PrivateSpan(0, 0, "window", "list", 1.0)
                self._cover(screenshot, span, text, _box_of(node))
                if screenshot == self._names("/screenshot.png")[-1]:
                    # The final screenshot has no tree. It gets the window boxes of the last step.
                    self._cover(_FINAL, span, text, _box_of(node))
            if text:
                names.add(text)
        action = self._load(f"{folder}/action.json")
        target = (action.get("target_element") or {}).get("id")
        if action["action_type"] == "type" and (focused or target in {None, *inside}):
            names.add(action["parameters"]["text"])

    def _find_in_screenshots(self) -> None:
        """Covers regions from the settings, boxes that people marked, and recognised secrets."""
        names = [name for name in self._names("/screenshot.png") if name.startswith("steps/")]
        reader = ScreenshotReader()
        for number, name in enumerate([*names, _FINAL]):
            for region in self.settings.regions:
                self._cover(name, PrivateSpan(0, 0, "region", "list", 1.0), "", region)
            for box in self.marks.added.get(min(number, len(names) - 1), ()):
                self._cover(name, PrivateSpan(0, 0, "region", _REVIEW, 1.0), "", box)
            if self.settings.reads_pictures:
                self._find_in_screenshot(name, reader)

    def _find_in_screenshot(self, name: str, reader: ScreenshotReader) -> None:
        """Covers the private text that is recognised in a screenshot.

        If private text is still recognised afterwards, the whole line is covered. A screenshot that
        cannot be searched is covered completely.
        """
        screenshot = self._screenshot(name)
        try:
            for line, span in self._private_lines(reader.lines(screenshot)):
                for box in line.boxes_of(span.start, span.end):
                    self._cover(name, span, line.text, box)
            covered = screenshot.copy()
            screenshot_texts.cover(covered, self._boxes.get(name, ()))
            if covered.tobytes() != screenshot.tobytes():
                for line, span in self._private_lines(reader.lines(covered)):
                    self._cover(name, span, line.text, line.box)
            self.pictures_read += 1
        except Exception as error:  # noqa: BLE001 - RapidOCR does not document its exceptions
            reason = type(error).__name__
            _LOG.warning("%s: its text was not searched (%s); it is covered", name, reason)
            self.pictures_unread += 1
            self._boxes[name] = [(0, 0, screenshot.shape[1], screenshot.shape[0])]

    def _private_lines(self, lines: Sequence[TextLine]) -> Iterator[tuple[TextLine, PrivateSpan]]:
        """Yields (line, span) for each private span of the recognised lines.

        A secret that continues in the next line is yielded for both lines.
        """
        for line in lines:
            for span in self.texts.recognised_spans(line.text):
                yield line, span
            if (below := screenshot_texts.line_below(line, lines)) is None:
                continue
            if shared_span := self.texts.span_over_two_lines(line.text, below.text):
                yield line, shared_span._replace(start=0, end=len(line.text))
                yield below, shared_span._replace(start=0, end=len(below.text))
            if _KEY_OPENED.search(line.text):
                yield from self._lines_of_private_key(below, lines)

    def _lines_of_private_key(
        self, first: TextLine, lines: Sequence[TextLine]
    ) -> Iterator[tuple[TextLine, PrivateSpan]]:
        """Yields the lines of a private key, starting with the line below the begin marker."""
        line: TextLine | None = first
        while line and _KEY_LINE.fullmatch(line.text):
            yield line, PrivateSpan(0, len(line.text), "private_key", "read", 0.8)
            line = screenshot_texts.line_below(line, lines)

    def _screenshot(self, name: str) -> BgrImage:
        screenshot = screenshot_texts.load_screenshot(self.folder / name)
        if screenshot is None:
            message = "it cannot be decoded as an image"
            remedy = "record it again"
            raise DemonstrationError([Problem("picture_unreadable", name, message, remedy=remedy)])
        return screenshot

    def _cover(self, name: str, span: PrivateSpan, text: str, box: ScreenshotBox) -> None:
        """Adds a finding in a screenshot, and covers its box if the settings remove the kind.

        Does nothing if people marked this box, or a box that touches it, as not private. For a
        private window or region, only a mark of exactly this box counts.
        """
        if step := _STEP.match(name):
            kept = self.marks.kept.get(int(step[1]), ())
            is_large = span.kind in {"window", "region"}
            touches_kept = any(screenshot_texts.touch(box, kept_box) for kept_box in kept)
            if box in kept or (touches_kept and not is_large):
                return
        self._note(name, "", span, text, box)
        if span.detector == _REVIEW or self.settings.removes(span.kind):
            self._boxes.setdefault(name, []).append(box)

    # --- the copy

    def _cleaned(self, folder: str) -> Callable[[str], str]:
        """Returns a function that replaces secrets in a text of a step.

        The function also replaces the names of nodes inside the step's private windows.
        """
        titles = list[str]()
        if self.settings.removes("window"):
            titles = sorted(self._window_names.get(folder, ()), key=len, reverse=True)

        def clean(text: str) -> str:
            if text in titles:
                return _WINDOW
            for title in titles:
                # Sentences quote names in double or single quotes.
                for quoted in (f'"{title}"', f"'{title}'"):
                    text = text.replace(quoted, f'"{_WINDOW}"')
            return self.texts.clean(text)

        return clean

    def _changed_documents(self) -> dict[str, Callable[[Path], None]]:
        """Maps the path of each document with private text to a function.

        The function writes the document's redacted copy.
        """
        changed: dict[str, Callable[[Path], None]] = {}
        group = None
        for name in self._names(".json"):
            folder = name.rpartition("/")[0]
            has_window = folder in self._window_names
            if not has_window and self._changed_texts.isdisjoint(self._private_texts[name]):
                continue
            document = self._load(name)
            cleaned = mapped_texts(document, self._cleaned(folder), PIPELINE_KEYS)
            if cleaned != document:
                if name == _TASK:  # the task id is made from the application and the instruction
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
        """Returns a row of provenance.parquet with redacted texts and the split group `group`."""
        clean = self._cleaned(f"steps/{row['step_index']:03d}")
        texts = {name: row[name] and clean(row[name]) for name in _TEXT_COLUMNS}
        objectives = row["objectives"] and [clean(text) for text in row["objectives"]]
        return {**row, **texts, "objectives": objectives, "split_group": group}

    def _write_screenshot(self, name: str, boxes: Sequence[ScreenshotBox], path: Path) -> None:
        screenshot = self._screenshot(name)
        screenshot_texts.cover(screenshot, boxes)
        PngWriter().write(path, screenshot[:, :, ::-1])


def _normalised(secret: str) -> bytes:
    """Returns a secret as bytes to hash, without white space and differences of case."""
    return "".join(secret.split()).casefold().encode("utf-8", "replace")


def _box_of(node: Mapping[str, Any]) -> ScreenshotBox:
    bounds = node["bounds"]
    return bounds["x"], bounds["y"], bounds["width"], bounds["height"]


def _texts_of(document: Any) -> Iterator[tuple[str, str]]:
    """Yields (place, text) for each text of a JSON document.

    The place is `<id>.<key>`. The id comes from the innermost enclosing object with an `id`.
    """
    pending: list[tuple[str, str, Any]] = [("", "", document)]
    while pending:
        place, key, value = pending.pop()
        if isinstance(value, str):
            if key not in PIPELINE_KEYS:
                yield f"{place}.{key}".lstrip("."), value
        elif isinstance(value, dict):
            inner = str(value.get("id") or place)
            pending += [(inner, inner_key, content) for inner_key, content in value.items()]
        elif isinstance(value, list):
            pending += [(place, key, item) for item in value]


class _TreeNode(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str
    role: str
    name: str
    bounds: dict[str, int]
    states: list[str] = []
    children: list["_TreeNode"] = []


class _Tree(msgspec.Struct, forbid_unknown_fields=True):
    """A UI tree as written by this pipeline, in which only the names of nodes may be private."""

    timestamp: str
    screen: dict[str, int]
    root: _TreeNode


_TREE = msgspec.json.Decoder(_Tree)


def _texts_of_tree(tree: _Tree) -> Iterator[tuple[str, str]]:
    """Yields the same texts as `_texts_of` for a UI tree, in a tenth of the time."""
    pending = [tree.root]
    texts = list[tuple[str, str]]()
    while pending:
        node = pending.pop()
        texts.append((f"{node.id}.name", node.name))
        pending += node.children[::-1]
    return reversed(texts)


def _texts_of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields the objectives and the reasons in rows of provenance.parquet.

    The other text columns only repeat texts of action.json.
    """
    if rows:
        for text in rows[0]["objectives"] or ():
            yield "objectives", text
    for text in dict.fromkeys(row["reason"] for row in rows):
        yield "reason", text


def _nodes(tree: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yields each node of a tree with its depth, which is 0 for the root."""
    root = tree.get("root", tree)
    pending = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        yield node, depth
        pending += [(child, depth + 1) for child in reversed(node.get("children") or [])]
