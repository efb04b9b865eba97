"""From a trajectory to what may leave: what is private in it, and a copy without that.

Belongs here: looking at every text and picture of a trajectory, one fate for each secret wherever
it stands, and writing the copy. What in a text is private is decided in `detectors`; what happens
to a kind is a setting.
"""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.comparison import files_below
from demo_pipeline.files.image_files import PngWriter
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.observation.trees.secret_fields import PASSWORD
from demo_pipeline.osworld.task_text import slug
from demo_pipeline.privacy import picture_texts as pictures
from demo_pipeline.privacy.detectors import Detectors, PrivateSpan
from demo_pipeline.privacy.picture_texts import PictureBox, PictureReader, TextLine
from demo_pipeline.settings import PrivacyKind, PrivacySettings
from demo_pipeline.trajectories.provenance import read_provenance, write_provenance

_PROVENANCE, _TASK, _FINAL = "provenance.parquet", "task.json", "final_screenshot.png"
_CONTENT = frozenset({"instruction", "name", "text", "reasoning", "error_message"})  # of JSON
_SHORTEST = 4  # characters of a text that is looked for elsewhere; shorter ones stand in words
_WINDOW = "<window>"
_WINDOWS = frozenset({"window", "dialog"})
_PRESSED = frozenset({"type", "hotkey"})
_STEP = re.compile(r"steps/([0-9]+)/")
# Letters that a reader takes for each other at 11 pixels.
_ALIKE = str.maketrans("0l1i|5$8zq", "oiiiissb2g")


@dataclass(frozen=True)
class PrivateFinding:
    """Something private: where it is, never what it is.

    Attributes:
        step: index; None: of the whole demonstration.
        place: file of the trajectory, with the key or node in it.
        start, end: characters in that text; None: it is in a picture.
        x, y, width, height: box on the canvas, pixels; None: it is in a text.
        secret: the same for the same text in this demonstration: a hash keyed by the recording.
    """

    step: int | None
    place: str
    kind: str
    detector: str
    confidence: float
    policy: str
    secret: str
    start: int | None = None
    end: int | None = None
    x: int | None = None
    y: int | None = None
    width: int | None = None
    height: int | None = None


@dataclass(frozen=True)
class Marks:
    """What people say on the review page: boxes to cover, and found ones to leave alone.

    Attributes:
        added: step → boxes; the last step plus one is the final screenshot.
        kept: the same, for boxes that hold nothing private.
    """

    added: Mapping[int, Sequence[PictureBox]] = field(default_factory=dict)
    kept: Mapping[int, Sequence[PictureBox]] = field(default_factory=dict)


@dataclass
class Redaction:
    """What was found in a trajectory so far.

    Attributes:
        folder: of the trajectory.
        detectors: what is looked for.
        key: of the hashes: of the recording, so that only who has it can guess.
        passwords: typed ones, which the trajectory lacks already.
        marks: of people.
        findings: in the order of the files.
        secrets: text → kind, as far as found.
        pictures_read: how many.
    """

    folder: Path
    detectors: Detectors
    key: bytes
    passwords: Collection[str] = ()
    marks: Marks = field(default_factory=Marks)
    findings: list[PrivateFinding] = field(default_factory=list)
    secrets: dict[str, PrivacyKind] = field(default_factory=dict)
    pictures_read: int = 0
    _boxes: dict[str, list[PictureBox]] = field(default_factory=dict)
    _windows: dict[str, set[str]] = field(default_factory=dict)

    @property
    def settings(self) -> PrivacySettings:
        """Policies and lists."""
        return self.detectors.settings

    def find(self) -> None:
        """Look at every text, then at every picture."""
        self.found_in_texts()
        for name in self._names("/ui_tree.json"):
            self._find_in_tree(name, load_json(self.folder / name))
        self._find_in_pictures()

    def found_in_texts(self) -> list[PrivateFinding]:
        """Look at every text; returns what was found."""
        documents = {name: load_json(self.folder / name) for name in self._names(".json")}
        rows = read_provenance(self.folder / _PROVENANCE)
        texts = [*_texts_of(documents), *_texts_of_rows(rows)]
        self._find_secrets(text for _, _, text in texts)
        self._find_typed(documents)
        for name, place, text in texts:
            for span in self._spans(text):
                self._note(name, place, span, text[span.start : span.end])
        return self.findings

    def withheld(self) -> str:
        """Why the demonstration must not leave; empty: it may."""
        dropped = {one.kind for one in self.findings if one.policy == "drop"}
        if dropped:
            return f"private: {', '.join(sorted(dropped))}"
        if self.settings.reads_pictures and not self.pictures_read:
            return "pictures not read"
        return ""

    def write(self, out: Path) -> int:
        """Write a copy without what is redacted; returns how many files differ, 0 without a copy.

        Other files are linked, or copied where that is not possible.
        """
        changed = {**self._changed_documents(), **self._changed_pictures()}
        if not changed:
            return 0
        for name, _ in files_below(self.folder):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            if write := changed.get(name):
                write(out / name)
            else:
                link_or_copy(self.folder / name, out / name)
        return len(changed)

    def _names(self, suffix: str) -> list[str]:
        names = sorted(name for name, _ in files_below(self.folder) if name.endswith(suffix))
        return [name for name in names if name != "redactions.json"]

    # --- texts

    def _find_secrets(self, texts: Iterator[str]) -> None:
        for text in dict.fromkeys(texts):
            for span in self.detectors.find(text):
                self.secrets.setdefault(text[span.start : span.end], span.kind)
        for password in self.passwords:
            self.secrets[password] = "password"

    def _find_typed(self, documents: Mapping[str, Any]) -> None:
        """Secrets that a rest of the hand, or a key, parts into several steps."""
        pieces: list[str] = []
        for name, value in documents.items():
            if not name.endswith("/action.json"):
                continue
            if value["action_type"] not in _PRESSED:
                pieces.clear()
            elif value["action_type"] == "type":
                pieces.append(value["parameters"]["text"])
                self._find_parted(pieces)

    def _find_parted(self, pieces: Sequence[str]) -> None:
        for span in self.detectors.find("".join(pieces)) if len(pieces) > 1 else ():
            begin = 0
            for piece in pieces:
                part = piece[max(0, span.start - begin) : max(0, span.end - begin)]
                begin += len(piece)
                if len(part) >= _SHORTEST and part not in self.secrets:
                    self.secrets[part] = span.kind

    def _spans(self, text: str) -> Iterator[PrivateSpan]:
        """Yield each known secret in a text, the longer one where two overlap."""
        taken: list[tuple[int, int]] = []
        spans = {(span.start, span.end): span for span in self.detectors.find(text)}
        for secret, kind in self.secrets.items():
            for match in re.finditer(re.escape(secret), text) if len(secret) >= _SHORTEST else ():
                spans.setdefault(match.span(), PrivateSpan(*match.span(), kind, "same_text", 1.0))
        for match in re.finditer(re.escape(PASSWORD), text):
            spans[match.span()] = PrivateSpan(*match.span(), "password", "secret_field", 1.0)
        for (start, end), span in sorted(spans.items(), key=lambda one: one[0][0] - one[0][1]):
            if all(end <= first or last <= start for first, last in taken):
                taken.append((start, end))
                yield span

    def _note(
        self, name: str, place: str, span: PrivateSpan, secret: str, box: PictureBox | None = None
    ) -> None:
        policy = self.settings.policy_of(span.kind)
        if policy == "off":
            return
        step = _STEP.match(name)
        digest = hmac.new(self.key, _folded(secret).encode("utf-8", "replace"), hashlib.sha256)
        found = PrivateFinding(
            int(step[1]) if step else None,
            f"{name}#{place}" if place else name,
            span.kind,
            span.detector,
            span.confidence,
            policy,
            digest.hexdigest()[:16],
        )
        if box is None:
            found = replace(found, start=span.start, end=span.end)
        else:
            x, y, width, height = box
            found = replace(found, x=x, y=y, width=width, height=height)
        self.findings.append(found)

    # --- trees and pictures

    def _find_in_tree(self, name: str, tree: Any) -> None:
        """Boxes of nodes whose name is mostly a secret, and of private windows."""
        picture = name.replace("ui_tree.json", "screenshot.png")
        for node, above in _nodes(tree):
            text, bounds = node.get("name") or "", node.get("bounds")
            if not bounds:
                continue
            box = (bounds["x"], bounds["y"], bounds["width"], bounds["height"])
            titles = [one for one in self.settings.windows if one.casefold() in text.casefold()]
            if titles and (node.get("role") in _WINDOWS or above <= 1):
                self._hide_window(picture, node)
            found = list(self._spans(text))
            part = sum(span.end - span.start for span in found)
            if part * 2 >= len(text) > 0 and not node.get("children"):
                for span in found:
                    self._cover(picture, span, text[span.start : span.end], box)

    def _hide_window(self, picture: str, top: Mapping[str, Any]) -> None:
        """Cover a window, or those of an application, and keep the names inside to replace them."""
        for node, _ in _nodes({"root": top}):
            bounds, text = node["bounds"], node.get("name") or ""
            if (node is top or node.get("role") in _WINDOWS) and bounds["width"] * bounds["height"]:
                box = (bounds["x"], bounds["y"], bounds["width"], bounds["height"])
                self._cover(picture, PrivateSpan(0, 0, "window", "list", 1.0), text, box)
            if text and self.settings.policy_of("window") == "redact":
                self._windows.setdefault(picture.rpartition("/")[0], set()).add(text)

    def _find_in_pictures(self) -> None:
        names = [name for name in self._names(".png") if name.startswith("steps/")]
        reader = PictureReader()
        reads = self.settings.reads_pictures and pictures.can_read()
        for number, name in enumerate([*names, _FINAL]):
            for region in self.settings.regions:
                self._cover(name, PrivateSpan(0, 0, "region", "list", 1.0), "", region)
            for box in self.marks.added.get(number, ()):
                self._cover(name, PrivateSpan(0, 0, "region", "review", 1.0), "", box)
            picture = pictures.load_picture(self.folder / name) if reads else None
            for line in reader.lines(picture) if picture is not None else ():
                for span in self._read_spans(line):
                    for box in line.boxes_of(span.start, span.end):
                        self._cover(name, span, line.text[span.start : span.end], box)
            kept = self.marks.kept.get(number, ())
            self._boxes[name] = [box for box in self._boxes.get(name, []) if box not in kept]
        self.pictures_read = reader.read

    def _read_spans(self, line: TextLine) -> list[PrivateSpan]:
        """What is private in a line that was read, where letters may be taken for each other."""
        found = self.detectors.find_read(line.text)
        folded = _folded(line.text)
        for secret, kind in self.secrets.items():
            if len(secret) >= _SHORTEST and _nearly_in(_folded(secret), folded):
                place = line.text.find(secret)
                whole = (0, len(line.text)) if place < 0 else (place, place + len(secret))
                found.append(PrivateSpan(*whole, kind, "read", 0.8))
        return found

    def _cover(self, name: str, span: PrivateSpan, secret: str, box: PictureBox) -> None:
        self._note(name, "", span, secret, box)
        if self.settings.policy_of(span.kind) == "redact":
            self._boxes.setdefault(name, []).append(box)

    # --- the copy

    def _placeholders(self) -> dict[str, str]:
        """Secret → what stands for it: `<email>`, the next one of its kind `<email-2>`."""
        numbers: dict[tuple[str, str], int] = {}
        counts = Counter[str]()
        found: dict[str, str] = {}
        for secret, kind in self.secrets.items():
            if self.settings.policy_of(kind) != "redact":
                continue
            same = (kind, _folded(secret))
            if same not in numbers:
                counts[kind] += 1
                numbers[same] = counts[kind]
            number = numbers[same]
            found[secret] = (
                f"<{kind}>" if number == 1 or kind == "password" else f"<{kind}-{number}>"
            )
        return found

    def _cleaned(self, placeholders: Mapping[str, str], folder: str) -> Callable[[str], str]:
        """The function that replaces secrets, and in a step's files the names in its windows."""
        titles = self._windows.get(folder, ())

        def clean(text: str) -> str:
            if text in titles:
                return _WINDOW
            for secret in sorted(placeholders, key=len, reverse=True):
                text = text.replace(secret, placeholders[secret])
            for title in sorted(titles, key=len, reverse=True):
                text = text.replace(f'"{title}"', f'"{_WINDOW}"')  # as sentences quote names
            return text

        return clean

    def _changed_documents(self) -> dict[str, Callable[[Path], None]]:
        placeholders = self._placeholders()
        changed: dict[str, Callable[[Path], None]] = {}
        for name in self._names(".json"):
            document = load_json(self.folder / name)
            cleaned = _mapped(document, self._cleaned(placeholders, name.rpartition("/")[0]))
            if cleaned != document:
                if name == _TASK:
                    cleaned["task_id"] = _new_id(cleaned)
                changed[name] = _json_writer(cleaned, compact=name.endswith("/ui_tree.json"))
        rows = read_provenance(self.folder / _PROVENANCE)
        new_rows = [self._changed_row(row, placeholders) for row in rows]
        if _TASK in changed:
            task = load_json(self.folder / _TASK)
            group = _new_id(_mapped(task, self._cleaned(placeholders, "")))
            new_rows = [{**row, "split_group": group} for row in new_rows]
        if new_rows != rows:
            changed[_PROVENANCE] = lambda path: write_provenance(path, new_rows)
        return changed

    def _changed_row(
        self, row: Mapping[str, Any], placeholders: Mapping[str, str]
    ) -> dict[str, Any]:
        clean = self._cleaned(placeholders, f"steps/{row['step_index']:03d}")
        texts = {name: row[name] and clean(row[name]) for name in ("text", "target_name")}
        objectives = row["objectives"] and [clean(text) for text in row["objectives"]]
        return {**row, **texts, "objectives": objectives}

    def _changed_pictures(self) -> dict[str, Callable[[Path], None]]:
        return {
            name: self._picture_writer(name, boxes) for name, boxes in self._boxes.items() if boxes
        }

    def _picture_writer(self, name: str, boxes: Sequence[PictureBox]) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            picture = pictures.load_picture(self.folder / name)
            if picture is None:
                raise OSError(f"{name} cannot be read as a picture")
            pictures.cover(picture, boxes)
            if self.pictures_read:  # what is still read there takes its whole line along
                lines = pictures.read_lines(picture)
                left = [line.box for line in lines if self._still_private(line)]
                pictures.cover(picture, left)
            PngWriter().write(path, picture[:, :, ::-1])

        return write

    def _still_private(self, line: TextLine) -> bool:
        return any(self.settings.policy_of(one.kind) == "redact" for one in self._read_spans(line))

    def rows(self) -> list[dict[str, Any]]:
        """The findings as rows of redactions.parquet."""
        return [asdict(finding) for finding in self.findings]


def _new_id(task: Mapping[str, Any]) -> str:
    """Task id and split group made of the redacted words, as the old ones quote the others."""
    return slug(f"{task['application']} {task['instruction']}")


def _json_writer(value: Any, *, compact: bool) -> Callable[[Path], None]:
    return lambda path: dump_json(path, value, compact=compact)


def _mapped(value: Any, change: Callable[[str], str], key: str = "") -> Any:
    """A JSON value in which every text of a person, or of what the screen showed, is changed."""
    if isinstance(value, Mapping):
        return {name: _mapped(inner, change, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, change, key) for inner in value]
    return change(value) if isinstance(value, str) and key in _CONTENT else value


def _texts_of(documents: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the file, the node or key, and the text of each text with content."""
    for name, document in documents.items():
        pending: list[tuple[str, str, Any]] = [("", "", document)]
        while pending:
            place, key, value = pending.pop()
            if isinstance(value, Mapping):
                inner = str(value.get("id") or place)
                pending += [(inner, one, other) for one, other in value.items()]
            elif isinstance(value, list):
                pending += [(place, key, other) for other in value]
            elif isinstance(value, str) and key in _CONTENT:
                yield name, f"{place}.{key}".lstrip("."), value


def _texts_of_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for text in (rows[0]["objectives"] or ()) if rows else ():
        yield _PROVENANCE, "objectives", text


def _nodes(tree: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield each node of a tree and how many are above it."""
    root = tree.get("root", tree)
    pending = [(root, 0)]
    while pending:
        node, above = pending.pop()
        yield node, above
        pending += [(child, above + 1) for child in reversed(node.get("children") or [])]


def _folded(text: str) -> str:
    """A text without what readers of pictures get wrong: spaces, case, letters that look alike."""
    return "".join(text.split()).casefold().translate(_ALIKE)


def _nearly_in(secret: str, text: str) -> bool:
    """Whether a secret is in a text, but for one letter in eight."""
    if secret in text:
        return True
    allowed, size = len(secret) // 8, len(secret)
    return allowed > 0 and any(
        sum(one != other for one, other in zip(secret, text[start:], strict=False)) <= allowed
        for start in range(len(text) - size + 1)
    )
