"""The files of a recording of another tool, and the facts that every importer reads from them."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from demo_pipeline.importers.source_values import UnreadableSourceError


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The files of one recording of another tool, recognised by their names.

    Attributes:
        name: the recording's name for people; the demonstration's id begins with this name.
        videos: the files of the video, in the order given by their names; empty without a video.
        id: the demonstration's id in the source; if empty, it is computed from `name` and `logs`.
    """

    folder: Path
    name: str
    logs: tuple[Path, ...]
    videos: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    id: str = ""

    @property
    def place(self) -> Path:
        """The path of the recording in messages: the log if there is only one, else the folder."""
        if len(self.logs) == 1:
            return self.logs[0]
        return self.folder

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the recording."""
        return (*self.logs, *self.videos, *self.others)

    def only_video(self, advice: str) -> Path:
        """Returns the recording's video, which must be a single file.

        Args:
            advice: a remedy for the end of the error message.

        Raises:
            UnreadableSourceError: there is no video, or several.
        """
        if len(self.videos) != 1:
            trouble = "is one of several" if self.videos else "is missing"
            raise UnreadableSourceError(f"{self.logs[0]}: its video {trouble}: {advice}")
        return self.videos[0]


@dataclass(kw_only=True)
class SourceFacts:
    """Facts that every importer reads about a recording, and notes on all that is not imported.

    Texts are empty if the source does not contain the fact.

    Attributes:
        status: completed, failed or aborted.
        platform: windows, macos or linux.
        lost: sentences about parts of the source that are not imported.
        left_out: the number of events of each kind that were not imported.
        damaged: sentences about parts of the source that could not be read.
    """

    task: str = ""
    status: str = ""
    application: str = ""
    platform: str = ""
    lost: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)

    @property
    def not_carried_over(self) -> list[str]:
        """The sentences in `lost`, and a phrase such as `3 moves` for each kind in `left_out`."""
        counts = sorted((+self.left_out).items())
        return [*self.lost, *(f"{count} {kind}" for kind, count in counts)]
