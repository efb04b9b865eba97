"""Every shell line of the pages ends as the page says, in a checkout of its own for each page."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from demo_pipeline.settings import Settings, project_root
from demo_pipeline_tests.doors.checkout import Answer, Checkout, fresh_checkout
from demo_pipeline_tests.doors.page_lines import PAGES, lines_of
from demo_pipeline_tests.sample_workspace import DEMOS, write_demos
from demo_pipeline_tests.uploads import upload

pytestmark = pytest.mark.no_cover  # the lines run in processes of their own
# A line that cannot say yes in a home of its own: no daemon runs there.
ENDS_WITH = {".venv/bin/demo-pipeline doctor --json --expect-daemon": 1}
# What a page takes for granted besides a store with the samples.
BEFORE = {"docs/operations.md": "eval truth data/predictions.jsonl --split any"}
SUITE = {page: [line for line in lines_of(page) if line.when == "suite"] for page in PAGES}
_UPLOADS = Settings.model_fields["uploads"].get_default(call_default_factory=True)
INBOX = str(Path(_UPLOADS).relative_to(project_root()))  # whatever this person's uploads are
BUILT = ("data/store", INBOX)  # Dagster's home is new for each page


def small_samples(folder: Path) -> Path:
    """Four recordings of some seconds under the ids of the samples."""
    names = ["20260105_090000", "20260106_140000", "20261121_212358", "20261121_212801"]
    made = folder / "made"
    write_demos(made)
    for number, name in enumerate(names):
        upload(made / list(DEMOS)[number % len(DEMOS)], folder / "samples", name)
    return folder / "samples"


def typed(checkout: Checkout, page: str) -> list[Answer]:
    return [checkout.type(line.text) for line in SUITE[page]]


def failures(answers: list[Answer]) -> list[str]:
    return [
        f"$ {answer.line}\n{answer.output}\nexit code {answer.code}"
        for answer in answers
        if answer.code != ENDS_WITH.get(answer.line.partition(" #")[0].strip(), 0)
    ]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_samples(tmp_path_factory.mktemp("samples"))


@pytest.fixture(scope="module")
def readme(
    samples: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Checkout, list[Answer]]:
    """The checkout in which everything of README.md was typed, and the answers."""
    checkout = fresh_checkout(tmp_path_factory.mktemp("readme") / "checkout", samples)
    return checkout, typed(checkout, "README.md")


def test_every_line_of_the_readme_succeeds(readme: tuple[Checkout, list[Answer]]) -> None:
    checkout, answers = readme
    assert failures(answers) == []
    assert "4 done, 0 quarantined" in answers[0].output
    assert (checkout.root / "data/exported/dataset/index.json").is_file()


@pytest.mark.parametrize(
    "page", [page for page, lines in SUITE.items() if lines and page != "README.md"]
)
def test_every_line_of_a_page_succeeds(
    page: str, readme: tuple[Checkout, list[Answer]], samples: Path, tmp_path: Path
) -> None:
    checkout = fresh_checkout(tmp_path / "checkout", samples)
    for name in BUILT:
        shutil.copytree(readme[0].root / name, checkout.root / name, symlinks=True)
    before = BEFORE.get(page, "quarantine")
    assert failures([checkout.type(f".venv/bin/demo-pipeline {before}")]) == []
    assert failures(typed(checkout, page)) == []
    assert failures([checkout.type(".venv/bin/demo-pipeline quarantine")]) == []  # settings hold


def test_only_what_nobody_can_run_here_is_marked() -> None:
    """Whoever marks another line changes the number here, and says why."""
    lines = [line for page in PAGES for line in lines_of(page)]
    marked = Counter(line.reason for line in lines if line.when == "not run")
    assert marked == {
        "a GPU": 1,
        "a cluster": 13,
        "a foreign bucket": 6,
        "hours": 14,  # the benchmarks and the exercises
        "more than 1 GB": 1,
    }
    assert Counter(line.when for line in lines) == {"suite": 38, "minutes": 18, "not run": 35}
