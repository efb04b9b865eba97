"""What people do to a bucket in a simulation: every change with its time, from a seed."""

from dataclasses import dataclass
from random import Random

from demo_pipeline.files.recording_files import RECORDING_FILES

STABLE = 60.0  # seconds; the gaps within one upload are shorter
_LONGEST_GAP = 0.97 * STABLE


@dataclass(frozen=True, order=True)
class Change:
    """One file put or deleted.

    Attributes:
        time: when it can be seen.
        name: of the folder.
        file: of the folder.
        etag: None: deleted.
        modified: what the bucket says; a slow multipart upload's is its start.
        last: of what one person does at a time; then the upload is finished.
    """

    time: float
    name: str
    file: str
    etag: str | None
    modified: float
    last: bool


Contents = dict[str, str]  # file -> ETag


class Person:
    """A person with one demonstration.

    Args:
        name: of the folder.
        random: chooses everything.
        begin: when the first upload begins.
    """

    def __init__(self, name: str, random: Random, begin: float) -> None:
        self.changes: list[Change] = []
        self._name, self._random, self._time = name, random, begin
        self._contents: Contents = {}
        self._before: list[Contents] = []
        self._etags = 0

    def act(self) -> None:
        """2 % never finish; 5 % upload again, up to three times; 2 % delete."""
        fate = self._random.random()
        if fate < 0.02:
            files = self._random.sample(RECORDING_FILES, self._random.choice((1, 2)))
            self._put({file: self._etag() for file in files})
            return
        self._put({file: self._etag() for file in RECORDING_FILES})
        if fate < 0.07:
            for _ in range(self._random.choice((1, 1, 2, 3))):
                self._rest()
                self._put(self._next())
        elif fate < 0.09:
            self._rest()
            self._delete()
            if self._random.random() < 0.5:
                self._rest()
                again = {file: self._etag() for file in RECORDING_FILES}
                self._put(self._random.choice((self._before[0], again)))

    def _next(self) -> Contents:
        """Some files new, or all as they once were, or the same bytes under another ETag."""
        if len(self._before) > 1 and self._random.random() < 0.6:
            return self._before[-2]
        files = self._random.sample(RECORDING_FILES, self._random.choice((1, 2, 3)))
        return {file: self._etag() for file in files}

    def _put(self, contents: Contents) -> None:
        """Files in any order, some of them twice."""
        order = self._random.sample(sorted(contents), len(contents))
        puts = [(file, contents[file]) for file in order]
        if self._random.random() < 0.15:
            file = self._random.choice(order)
            puts.insert(self._random.randrange(order.index(file) + 1), (file, self._etag()))
        for place, (file, etag) in enumerate(puts):
            lacks = set(RECORDING_FILES) - self._contents.keys()
            self._gap(long=lacks == {file})
            self._add(file, etag, last=place == len(puts) - 1)
        self._before.append(dict(self._contents))

    def _delete(self) -> None:
        files = (
            RECORDING_FILES
            if self._random.random() < 0.6
            else (self._random.choice(RECORDING_FILES),)
        )
        for file in files:
            self._gap(long=False)
            self._add(file, None, last=file == files[-1])

    def _add(self, file: str, etag: str | None, *, last: bool) -> None:
        slow = file == "recording.mp4" and self._random.random() < 0.5
        modified = self._time - (self._random.uniform(60, 900) if slow else 0)
        self.changes.append(Change(self._time, self._name, file, etag, modified, last))
        self._contents.pop(file, None)
        if etag is not None:
            self._contents[file] = etag

    def _gap(self, *, long: bool) -> None:
        """The pause before the last missing file may have any length."""
        longest = 900 if long and self._random.random() < 0.3 else _LONGEST_GAP
        self._time += self._random.uniform(0, longest)

    def _rest(self) -> None:
        self._time += self._random.choice((0, 30, 100, 400, 1500)) * self._random.random()

    def _etag(self) -> str:
        self._etags += 1
        return f"{self._name}-{self._etags}"


def people(random: Random, count: int, seconds: float) -> list[Change]:
    """Every change, by time."""
    changes: list[Change] = []
    for number in range(count):
        person = Person(f"demo-{number:04}", random, random.uniform(0, seconds))
        person.act()
        changes += person.changes
    return sorted(changes)
