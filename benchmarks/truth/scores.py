"""Scores the labels of one recording against its truth list, as figures and as lines to read."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.truth.figures import Figures
from benchmarks.truth.labels import Labels, Step, Target, read_labels
from benchmarks.truth.pairing import NEAR_MS, Pairing, pair
from benchmarks.truth.recording_log import RecordingLog
from benchmarks.truth.truth_list import Box, Intended, TruthList, Widget, read_truth
from benchmarks.truth.video_frames import VideoFrames, has_changed, is_same_at

_LEAK_PIXELS = 40
_WAIT_SHARE = 0.4  # of a true wait that a step must cover
_EXPLAINED_SHARE = 0.3  # of a true wait that explains a step
_SAME_TARGET = 0.7  # overlap of the boxes
_SAME_FOCUS = 0.6
_NESTED = 0.9
_BEFORE_PRESS_MS = 50  # the video may lag behind the log by a frame
_COLLECTIONS = frozenset({"table", "list", "list box", "tree", "tree table"})


@dataclass
class Score:
    """The figures of a recording, and a line for each fault that they count."""

    figures: Figures
    faults: list[str] = field(default_factory=list)


def score_recording(store: Path, recording: Path, truth_path: Path) -> Score:
    """Scores one demonstration of a store that is a folder."""
    truth = read_truth(truth_path)
    labels = read_labels(store, recording.name)
    log = RecordingLog(recording / "input_log.jsonl")
    video = VideoFrames(recording / "recording.mp4", truth.start_ms)
    pairing = pair(truth, labels, log)
    unanswered = [*pairing.missed, *pairing.hidden, *pairing.wrong]
    figures = Figures(
        actions=pairing.actions_right + len(unanswered),
        actions_right=pairing.actions_right,
        actions_hidden=len(pairing.hidden),
        actions_invented=len(pairing.invented),
        texts=sum(entry.kind == "type" for entry in truth.actions),
        texts_right=pairing.texts_right,
        texts_wrong=len(pairing.texts_wrong),
        texts_left_out=pairing.texts_left_out,
    )
    score = Score(figures)
    score.faults += [*unanswered, *pairing.invented, *pairing.texts_wrong]
    if truth.clock_is_exact:
        figures.clock_error_ms = round(abs(labels.origin_ms - truth.start_ms))
    _score_waits(truth, labels, score)
    _score_frames(truth, pairing, log, score)
    looks = _score_targets(pairing, log, score)
    _score_key_targets(pairing, score)
    spans = list(_resting_spans(truth, pairing))
    video.want(time_ms for look in looks.values() for time_ms in look.times)
    video.want(time_ms for span in spans for time_ms in (span.begin_ms, span.end_ms))
    for line, look in looks.items():
        if look.stands(log, video, labels.pixel_ratio):
            score.figures.targets_missing += 1
            score.faults.append(f"{line}, which the newest scan holds, got none")
    _score_changes(truth, spans, video, score)
    return score


def _score_waits(truth: TruthList, labels: Labels, score: Score) -> None:
    waits = [step for step in labels.steps if step.kind == "wait"]
    figures = score.figures
    figures.waits = len(truth.waits)
    for entry in truth.waits:
        needed = _WAIT_SHARE * (entry.end_ms - entry.press_ms)
        if any(_common_ms(entry, step) > needed for step in waits):
            figures.waits_found += 1
        else:
            score.faults.append(_line(truth, entry.press_ms, "missed wait"))
    every_wait = [entry for entry in truth.entries if entry.kind == "wait"]
    for step in waits:
        explained = any(
            _common_ms(entry, step) > _EXPLAINED_SHARE * (entry.end_ms - entry.press_ms)
            for entry in every_wait
        )
        if not explained:
            figures.waits_invented += 1
            score.faults.append(_line(truth, step.press_ms, f"step {step.index}: invented wait"))


def _common_ms(entry: Intended, step: Step) -> float:
    return max(0, min(step.end_ms, entry.end_ms) - max(step.press_ms, entry.press_ms))


def _score_frames(truth: TruthList, pairing: Pairing, log: RecordingLog, score: Score) -> None:
    figures = score.figures
    for entry, step in pairing.pairs:
        if step.pts is None:
            figures.screenshots_missing += 1
            continue
        shown_ms = truth.start_ms + step.pts * 1000
        # A busy recorder stamps a press late; the log is all that the pipeline has.
        if shown_ms >= max(entry.press_ms, step.press_ms):
            figures.screenshots_late += 1
            score.faults.append(_line(truth, entry.press_ms, f"step {step.index}: late frame"))
        if entry.x is None or entry.y is None or entry.look_ms is None:
            continue
        is_leak = log.distance(shown_ms, entry.x, entry.y) < _LEAK_PIXELS
        is_avoidable = log.distance(entry.look_ms, entry.x, entry.y) >= _LEAK_PIXELS
        if is_leak and is_avoidable:
            figures.leaks_avoidable += 1
            score.faults.append(_line(truth, entry.press_ms, f"step {step.index}: avoidable leak"))


def _score_targets(pairing: Pairing, log: RecordingLog, score: Score) -> "dict[str, _Look]":
    """Scores the targets of the pointer; returns those that the video must decide."""
    figures = score.figures
    looks = {}
    for entry, step in pairing.pairs:
        widget = entry.scored_target
        if widget is None or entry.x is None:
            continue
        figures.targets += 1
        line = f"step {step.index}: wanted {widget.role} {widget.name!r}"
        if step.target is None:
            look = _Look.of(entry, widget, log)
            if look is not None:
                looks[line] = look
        elif _is_same(widget, step.target, step):
            figures.targets_right += 1
        elif not _is_nested(widget, step.target, step):
            figures.targets_wrong += 1
            score.faults.append(f"{line}, got {step.target.role} {step.target.name!r}")
    return looks


@dataclass(frozen=True, slots=True)
class _Look:
    """A widget that a scan holds, with the times between which it must not have changed."""

    widget: Widget
    times: tuple[float, float]
    pointer_times: tuple[float, ...]

    @classmethod
    def of(cls, entry: Intended, widget: Widget, log: RecordingLog) -> "_Look | None":
        scan = log.newest_scan(entry.press_ms)
        if scan is None or entry.look_ms is None or not scan.holds(widget):
            return None
        look_ms = max(min(entry.look_ms, entry.press_ms), scan.end_ms)
        pointer_times = (scan.begin_ms, scan.end_ms, look_ms, entry.press_ms)
        return cls(widget, (scan.begin_ms, look_ms), pointer_times)

    def stands(self, log: RecordingLog, video: VideoFrames, pixel_ratio: float) -> bool:
        """Whether the widget looks the same since the scan began."""
        scanned = video.frame(self.times[0])
        seen = video.frame(self.times[1])
        if scanned is None or seen is None:
            return False
        pointers = []
        for time_ms in self.pointer_times:
            x, y = log.pointer(time_ms)
            pointers.append((x * pixel_ratio, y * pixel_ratio))
        return is_same_at(scanned, seen, self.widget.box.scaled(pixel_ratio), pointers)


def _on_canvas(widget: Widget, step: Step) -> Box:
    return widget.box.scaled(step.scale, step.pad_x, step.pad_y)


def _has_same_name(widget: Widget, target: Target) -> bool:
    name = widget.name.strip()
    return name == target.name or not name or not target.name


def _is_same(widget: Widget, target: Target, step: Step) -> bool:
    overlap = _on_canvas(widget, step).overlap(target.box)
    return overlap > _SAME_TARGET and _has_same_name(widget, target)


def _is_nested(widget: Widget, target: Target, step: Step) -> bool:
    """Whether the target is the widget's own label or frame: neither right nor wrong."""
    nested = _on_canvas(widget, step).nesting(target.box) > _NESTED
    return nested and (target.name == widget.name.strip() or not target.name)


def _score_key_targets(pairing: Pairing, score: Score) -> None:
    figures = score.figures
    for entry, step in pairing.pairs:
        focus = entry.focus
        if focus is None or focus.name == "?" or focus.role.startswith("document"):
            continue
        if focus.role == "none":
            if step.target is not None:
                figures.key_targets_invented += 1
                line = f"step {step.index}: keys for {step.target.role} {step.target.name!r}"
                score.faults.append(f"{line}, where no widget has the keyboard")
            continue
        figures.key_targets += 1
        if step.target is None:
            figures.key_targets_missing += 1
            continue
        box = _on_canvas(focus, step)
        nested = focus.role in _COLLECTIONS and box.nesting(step.target.box) > _NESTED
        if nested or box.overlap(step.target.box) > _SAME_FOCUS:
            figures.key_targets_right += 1
        else:
            figures.key_targets_wrong += 1
            line = f"step {step.index}: keys for {step.target.role} {step.target.name!r}"
            score.faults.append(f"{line}, wanted {focus.role} {focus.name!r}")


@dataclass(frozen=True, slots=True)
class _RestingSpan:
    """A step, with times before and after it between which the pointer rests at one place."""

    step: Step
    begin_ms: float
    end_ms: float


def _resting_spans(truth: TruthList, pairing: Pairing) -> Iterator[_RestingSpan]:
    """From before the press until the person sets out for the next action."""
    looks = sorted(entry.look_ms for entry in truth.entries if entry.look_ms is not None)
    answered: set[int] = set()
    for entry, step in pairing.pairs:
        is_gesture = entry.kind in ("drag", "word_drag", "held")
        if is_gesture or step.index in answered or entry.look_ms is None:
            continue
        answered.add(step.index)
        later = [look_ms for look_ms in looks if look_ms > max(entry.end_ms, step.end_ms)]
        if later and later[0] - entry.end_ms >= NEAR_MS:
            yield _RestingSpan(step, entry.press_ms - _BEFORE_PRESS_MS, later[0])


def _score_changes(
    truth: TruthList, spans: list[_RestingSpan], video: VideoFrames, score: Score
) -> None:
    """Compares what steps say about the screen with what the video shows."""
    figures = score.figures
    for span in spans:
        before = video.frame(span.begin_ms)
        after = video.frame(span.end_ms)
        if before is None or after is None:
            continue
        figures.changes += 1
        changed = has_changed(before, after)
        if span.step.changed is None:
            continue
        if span.step.changed == changed:
            figures.changes_right += 1
        elif changed:
            figures.changes_missed += 1
            line = f"step {span.step.index}: a change of the screen is denied"
            score.faults.append(_line(truth, span.step.press_ms, line))


def _line(truth: TruthList, time_ms: float, text: str) -> str:
    return f"at {(time_ms - truth.start_ms) / 1000:.1f} s: {text}"
