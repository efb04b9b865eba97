"""Tests that the labels of the recordings with truth lists are as good as the stored figures."""

import pytest

from benchmarks.truth.figures import markdown_table, worse_figures
from benchmarks.truth.measuring import RECORDINGS, measure, read_figures
from benchmarks.truth.page import written_table


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory):
    return measure(RECORDINGS, tmp_path_factory.mktemp("truth"))


def test_every_recording_has_figures(scores):
    assert sorted(scores) == sorted(read_figures()), "run `make truth TRUTH=record`"


def test_no_label_is_less_right_than_recorded(scores):
    recorded = read_figures()
    worse = []
    for name, score in scores.items():
        lines = worse_figures(recorded[name], score.figures)
        worse += [f"{name} {line}" for line in lines]
    assert worse == [], "run `make truth` to see each fault"


def test_the_readme_shows_the_recorded_figures():
    assert written_table() == markdown_table(read_figures()), "run `make truth`"


def test_the_recordings_are_small():
    size = sum(path.stat().st_size for path in RECORDINGS.rglob("recording.mp4"))
    assert size < 12_000_000
