"""The files of a recording of another tool, and the facts that every importer reads from them."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from demo_pipeline.importers.source_values import UnreadableSourceError


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The files of one recording of another tool, recognised by their names.

    Attributes:
        folder: the folder that contains the recording.
        name: the recording's name for people; the demonstration's id begins with it.
        logs: the files whose content the demonstration's id is computed from.
        videos: the files of the video, in order as far as their names tell it.
        others: other files that the importer reads.
        id: the demonstration's id, if the source has one; empty: computed from `name` and `logs`.
    """

    folder: Path
    name: str
    logs: tuple[Path, ...]
    videos: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    id: str = ""

    @property
    def place(self) -> Path:
        """The path that messages name: the log if there is only one, else the folder."""
        if len(self.logs) == 1:
            return self.logs[0]
        return self.folder

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the recording."""
        return (*self.logs, *self.videos, *self.others)

    def only_video(self, advice: str) -> Path:
        """Returns the recording's video.

        Args:
            advice: the remedy, with which the error's message ends.

        Raises:
            UnreadableSourceError: there is no video, or several.
        """
        if len(self.videos) != 1:
            trouble = "is one of several" if self.videos else "is missing"
            raise UnreadableSourceError(f"{self.logs[0]}: its video {trouble}: {advice}")
        return self.videos[0]


@dataclass(kw_only=True)
class SourceFacts:
    """The facts that every importer reads about a recording, and a record of all that is lost.

    Attributes:
        task: the task of the person or the agent; empty: not recorded.
        status: completed, failed or aborted; empty: not recorded.
        application: the main application; empty: not recorded.
        platform: windows, macos or linux; empty: not recorded.
        lost: sentences about parts of the source that are not carried over.
        left_out: single events that were not carried over: kind → count.
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
        """The sentences in `lost`, and a sentence for each kind of event in `left_out`."""
        counts = sorted((+self.left_out).items())
        return [*self.lost, *(f"{count} {kind}" for kind, count in counts)]
