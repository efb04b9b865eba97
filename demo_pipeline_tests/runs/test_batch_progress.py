"""What people read while many demonstrations are processed."""

from demo_pipeline.runs.results import BatchProgress, DemonstrationResult, Status


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_every_few_seconds_it_says_how_many_how_fast_and_how_long_still() -> None:
    clock = Clock()
    progress = BatchProgress(40, clock)
    assert progress.due_line() is None
    clock.now += 5
    assert progress.due_line() == "0 of 40"
    progress.add(DemonstrationResult("a", Status.BUILT))
    progress.add(DemonstrationResult("a", Status.REJECTED))
    progress.add(DemonstrationResult("a", Status.BUILT))
    progress.add(DemonstrationResult("a", Status.WAITING))
    assert progress.due_line() is None
    clock.now += 5
    assert progress.due_line() == "4 of 40, 24 per minute, 2 min left, 1 failed, 1 waiting"


def test_at_the_end_it_says_what_was_up_to_date_and_what_is_not_done() -> None:
    clock = Clock()
    progress = BatchProgress(3, clock)
    progress.add(DemonstrationResult("a", Status.CACHED))
    progress.add(DemonstrationResult("a", Status.BUILT))
    progress.add(DemonstrationResult("a", Status.SUPERSEDED))
    clock.now += 61
    assert progress.last_line() == "2 of 3 demonstrations done (1 up to date), 1 superseded, 61 s"
    progress.add(DemonstrationResult("a", Status.FAILED))
    assert progress.numbers() == {"done": 2, "up_to_date": 1, "superseded": 1, "crashed": 1}
