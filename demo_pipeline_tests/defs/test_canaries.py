"""A secret and a typed text, looked for in every byte that runs leave behind."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from demo_pipeline_tests.defs.bench import Bench, bench, launched, ticked
from demo_pipeline_tests.uploads import BREAKING, TYPED, upload

SECRET = "canary/5Zt9QmXw+never/to/be/written"  # noqa: S105 - it opens nothing


@pytest.fixture
def left(tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """What is left of good and bad runs, the datasets, the table, retries and a crash."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with bench(tmp_path, kept=True) as made:
        upload(recording, made.uploads, "good")
        for number, (spoil, _, _) in enumerate(BREAKING.values()):
            spoil(upload(recording, made.uploads, f"bad{number}"))
        made.catalogue()
        for _ in range(3):
            for request in ticked(made, "new_uploads").requests:
                launched(made, request)
        for job in ("build_datasets", "report_quarantine", "retry_quarantined", "register_uploads"):
            made.run(job)
        yield made


def holding(paths: Iterable[Path], canary: str) -> list[str]:
    needles = {canary.encode(), canary.encode("utf-16-le")}
    files = [path for path in paths if path.is_file()]
    assert files
    return [str(path) for path in files if any(n in path.read_bytes() for n in needles)]


def test_the_secret_is_written_nowhere_and_the_typed_text_only_where_it_belongs(
    left: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    root = left.uploads.parent
    said = [*(root / "store").rglob("manifest.json"), *(root / "store" / "quarantine").rglob("*")]
    said += [*(root / "store" / "quarantine_table").rglob("*")]
    home = list((root / "home").rglob("*"))
    assert any(path.suffix == ".db" for path in home)
    assert any(path.suffix == ".sqlite" for path in home)
    for canary in (SECRET, TYPED):
        assert holding(home, canary) == []
        assert holding(said, canary) == []
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET
    shown = capfd.readouterr()
    logged = f"{shown.out}\n{shown.err}\n{caplog.text}"
    assert SECRET not in logged
    assert TYPED not in logged
    assert holding(root.rglob("*"), SECRET) == []
    made = (root / "store" / ".versions" / "trajectories").rglob("*")
    assert holding(made, TYPED)  # where it belongs: the search does find it
