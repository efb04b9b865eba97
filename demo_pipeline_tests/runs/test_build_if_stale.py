import pytest

from demo_pipeline.problems import DemonstrationError, Problem, Severity
from demo_pipeline.runs.build import build_if_stale
from demo_pipeline.store.store import open_store
from demo_pipeline.store.versions import CheckOutcome
from demo_pipeline_tests.store.making_outputs import recipe, seen

WARNING = Problem("odd", "a", "is odd", severity=Severity.WARNING)


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path))


class Stage:
    """Writes one file, has a check with a given result, and counts its builds."""

    def __init__(self, text="alpha", *, passed=True, blocking=True):
        self.text, self.passed, self.blocking = text, passed, blocking
        self.built = 0

    def build(self, staging):
        self.built += 1
        (staging.path / "a").write_text(self.text)
        return {"length": len(self.text), "parts": [1, 2]}

    def check(self, path):
        metadata = {"read": (path / "a").read_text(), "seen": (1, 2)}
        return [CheckOutcome("valid", self.passed, (WARNING,), metadata, self.blocking)]

    def make(self, store, code_version="1", *, force=False):
        wanted = recipe(code_version, log="x")
        return build_if_stale(store, "events/d1", wanted, self.build, self.check, force=force)


def test_an_unchanged_recipe_returns_the_committed_result(either):
    stage = Stage()
    first, second = stage.make(either), stage.make(either)
    assert (first.status, second.status) == ("made", "unchanged")
    assert stage.built == 1
    assert first.version == second.version == either.current("events/d1").name
    assert first.summary == second.summary == {"length": 5, "parts": [1, 2]}
    assert first.checks == second.checks
    assert second.checks[0].problems == (WARNING,)
    assert second.checks[0].metadata["read"] == "alpha"


def test_a_new_code_version_or_force_builds_again(either):
    stage = Stage()
    first = stage.make(either)
    forced = stage.make(either, force=True)
    changed = stage.make(either, "2")
    assert (stage.built, forced.status, changed.status) == (3, "made", "made")
    assert forced.version == first.version
    assert changed.version != first.version
    assert changed.version.content == first.version.content


def test_a_lost_file_is_built_again_with_the_same_bytes(store, tmp_path):
    stage = Stage()
    first = stage.make(store)
    (tmp_path / "events/d1/a").unlink()
    assert stage.make(store) == first
    assert stage.built == 2
    assert seen(store, "events/d1") == {"a": "alpha"}


def test_readers_keep_the_last_version_when_a_check_fails(store, tmp_path):
    Stage("good").make(store)
    rejected = Stage("bad", passed=False).make(store, "2")
    assert (rejected.status, rejected.version) == ("rejected", None)
    assert rejected.checks[0].problems == (WARNING,)
    assert seen(store, "events/d1") == {"a": "good"}
    assert len(list((tmp_path / ".versions/events/d1").iterdir())) == 1
    assert list((tmp_path / ".staging").iterdir()) == []


def test_a_failed_advisory_check_is_recorded_in_the_manifest(either):
    stage = Stage(passed=False, blocking=False)
    assert stage.make(either).status == "made"
    assert not stage.make(either).checks[0].passed


def test_readers_of_any_store_keep_the_last_version_when_a_check_fails(either):
    good = Stage("good").make(either)
    assert Stage("bad", passed=False).make(either, "2").status == "rejected"
    assert either.current("events/d1").name == good.version
    assert seen(either, "events/d1") == {"a": "good"}


@pytest.mark.parametrize("where", ["build", "check"])
def test_an_error_of_a_stage_is_raised_and_nothing_is_committed(
    store, tmp_path, monkeypatch, where
):
    problem = Problem("torn", "input_log.jsonl", "ends early", line=3, demonstration="d1")
    stage = Stage()

    def give_up(_):
        raise DemonstrationError(problem)

    monkeypatch.setattr(stage, where, give_up)
    with pytest.raises(DemonstrationError) as caught:
        stage.make(store)
    assert caught.value.problems == (problem,)
    assert store.outputs() == []
    assert list((tmp_path / ".staging").iterdir()) == []
