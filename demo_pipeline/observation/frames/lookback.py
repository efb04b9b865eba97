"""One forward decode for calibration and the decode pass: what the first reads, the second gets.

Belongs here: how far calibration reads on in the same decode, and how the decode pass goes on from
there. Without it the beginning of each video would be decoded twice.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from demo_pipeline.observation.frames.forward_reader import (
    ForwardReader,
    PtsRange,
    decode_spans,
    decode_stretches,
    open_forward_reader,
    wanted_stretches,
)
from demo_pipeline.observation.frames.frame_archive import FrameArchive
from demo_pipeline.observation.frames.video_frames import Frame, Span
from demo_pipeline.recording.video_probe import PacketScan

KEPT_BYTES = 32 * 2**20  # of all kept frames; minutes of a usual screen, a second of a film
FRAME_BYTES = 96 * 2**10  # of a kept frame in the mean; more than that is a film
GAP_S = 10.0  # seconds that are read on to a later stretch; over a longer gap it is sought


class Lookback:
    """Reads a video forwards and keeps what was read; a context manager, which closes the video.

    `look` is called first, any number of times, then `resume` once. A stretch that cannot be
    reached in the same decode, or whose frames take too much memory, is decoded by itself.

    Args:
        path: of the video.
        packets: its frames' times.
        size: width and height that every frame must have, pixels before rotation; None: any.
    """

    def __init__(self, path: Path, packets: PacketScan, size: tuple[int, int] | None) -> None:
        self._path, self._packets, self._size = path, packets, size
        self._archive = FrameArchive(KEPT_BYTES, FRAME_BYTES)
        self._reader: ForwardReader | None = None
        self._first: int | None = None
        self._last = 0
        self._latest: Frame | None = None
        self._spent = False
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._archive.drop()
        self._reader = self._latest = None
        self._open.close()

    @property
    def is_spent(self) -> bool:
        """Whether `resume` was called."""
        return self._spent

    def look(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Frames in ascending, disjoint spans, as `decode_spans` gives them."""
        if self._latest is not None and spans and self._is_at(spans[0], self._latest):
            yield self._latest  # the last frame of one look may be the first of the next
        for span in spans:
            for stretch in wanted_stretches(self._packets, [span]):
                if self._archive.is_open and self._is_next(stretch):
                    yield from self._read_on(stretch)
                else:
                    yield from decode_spans(self._path, self._packets, [span], self._size)

    def _is_next(self, stretch: PtsRange) -> bool:
        """Whether a stretch comes soon enough after what was read."""
        if self._first is None:
            return True
        gap = (stretch[0] - self._last) * float(self._packets.time_base)
        return 0 <= gap <= GAP_S and stretch[1] > self._last

    def _is_at(self, span: Span, frame: Frame) -> bool:
        """Whether a span that can be read on to begins with a frame."""
        stretch = wanted_stretches(self._packets, [span])
        return bool(stretch) and self._is_next(stretch[0]) and stretch[0][0] == frame.pts

    def _read_on(self, stretch: PtsRange) -> Iterator[Frame]:
        """Read up to the end of a stretch, and keep everything on the way."""
        if self._reader is None:
            forward = open_forward_reader(self._path, self._packets, self._size)
            self._reader = self._open.enter_context(forward)
        first, last = stretch
        begin = first if self._first is None else self._last + 1
        self._first = begin if self._first is None else self._first
        self._last = last
        for frame in self._reader.read_on((begin, last)):
            self._archive.add(frame)
            self._latest = frame
            if frame.pts >= first:
                yield frame

    def resume(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Frames in ascending, disjoint spans: kept ones first, then those read on."""
        self._spent, self._latest = True, None
        wanted = wanted_stretches(self._packets, spans)
        if self._reader is None or self._first is None or not len(self._archive):
            self._archive.drop()
            self._reader = None
            self._open.close()  # a second decoder beside it would take 20 MB more
            yield from decode_stretches(self._path, self._packets, wanted, self._size)
            return
        first, last = self._first, self._last
        before = _between(wanted, None, first - 1)
        if before:
            yield from decode_stretches(self._path, self._packets, before, self._size)
        inside = _Membership(_between(wanted, first, last))
        yield from self._archive.take(inside.has)
        yield from self._reader.stretches(_between(wanted, last + 1, None))


class _Membership:
    """Whether PTS, asked for in ascending order, are in ascending stretches."""

    def __init__(self, stretches: Sequence[PtsRange]) -> None:
        self._ahead = list(reversed(stretches))

    def has(self, pts: int) -> bool:
        while self._ahead and self._ahead[-1][1] < pts:
            self._ahead.pop()
        return bool(self._ahead) and self._ahead[-1][0] <= pts


def _between(stretches: Sequence[PtsRange], first: int | None, last: int | None) -> list[PtsRange]:
    """The parts of stretches from one PTS to another; None: without a bound."""
    clipped = [
        (low if first is None else max(low, first), high if last is None else min(high, last))
        for low, high in stretches
    ]
    return [(low, high) for low, high in clipped if low <= high]
