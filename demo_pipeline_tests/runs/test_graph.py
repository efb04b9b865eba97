"""Tests when a single output is built, how errors end a build, and what readers see meanwhile."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.problems import DemonstrationError, Problem, Severity
from demo_pipeline.runs.failures import (
    DefectError,
    RefusedError,
    TransientError,
    UnusableInputError,
)
from demo_pipeline.runs.graph import (
    Absent,
    BuildPlan,
    Cause,
    Current,
    Graph,
    Output,
    Refused,
    Stale,
    is_of_present_inputs,
)
from demo_pipeline.settings import Settings
from demo_pipeline.stage import Check, Inputs, Stage, Summary
from demo_pipeline.store.errors import ChangedOutput
from demo_pipeline_tests.sample_workspace import open_workspace
from demo_pipeline_tests.store.making_outputs import put, recipe, seen

WARNING = Problem("odd", "a", "is odd", severity=Severity.WARNING)
ERROR = Problem("odd", "a", "is odd")


class Letter(Output[Inputs]):
    """An output with a single file. It counts its builds, and its check has a given result."""

    def __init__(
        self,
        graph: Graph,
        text: str = "alpha",
        problem: Problem = WARNING,
        *,
        code_version: str = "1",
        blocking: bool = True,
        key: str = "d1",
    ) -> None:
        check = Check[Inputs]("valid", "It is.", lambda _, _out: [problem], blocking=blocking)
        stage = Stage(
            name="letters",
            folder="letters",
            description="",
            kinds=frozenset(),
            code_version=code_version,
            build=self.write,
            checks=(check,),
        )
        super().__init__(graph, stage, key)
        self.text = text
        self.builds = 0
        self.needs: list[Output[Any]] = []
        self.reason_of_refusal = ""
        self.error: Exception | None = None
        self.remembered: list[Exception] = []

    def write(self, _inputs: Inputs, out: Path) -> Summary:
        self.builds += 1
        if self.error is not None:
            raise self.error
        (out / "a").write_text(self.text)
        return {"length": len(self.text), "parts": [1, 2]}

    def inputs(self) -> list[Output[Any]]:
        return self.needs

    def plan(self) -> BuildPlan[Inputs]:
        inputs = nullcontext(Inputs(settings=Settings()))
        return BuildPlan(
            recipe=recipe(self.stage.code_version, log="x"), open_inputs=lambda _: inputs
        )

    def refusal(self) -> str:
        return self.reason_of_refusal

    def remember_refusal(self, error: RefusedError) -> None:
        self.remembered.append(error)

    def remember_failure(self, error: Exception) -> None:
        self.remembered.append(error)


@pytest.fixture
def graph(either, tmp_path):
    """Returns the graph of an empty store, which is in a folder or in a bucket."""
    return Graph(replace(open_workspace(tmp_path), store=either))


@pytest.fixture
def local_graph(tmp_path):
    return Graph(open_workspace(tmp_path))


def test_an_unchanged_recipe_returns_the_committed_result(graph):
    letter = Letter(graph)
    first = graph.build(letter)
    second = graph.build(letter)
    assert (first.status, second.status, letter.builds) == ("made", "unchanged", 1)
    assert first.version == second.version == graph.published("letters/d1").name
    assert first.summary == second.summary == {"length": 5, "parts": [1, 2]}
    assert first.checks == second.checks
    assert second.checks[0].problems == (replace(WARNING, demonstration="d1"),)


def test_a_new_code_version_or_force_builds_again(graph):
    first = graph.build(Letter(graph))
    forced = graph.build(Letter(graph), force=True)
    changed = graph.build(Letter(graph, code_version="2"))
    assert [forced.status, changed.status] == ["made", "made"]
    assert forced.version == first.version
    assert changed.version != first.version
    assert changed.content == first.content


def test_a_lost_file_is_built_again_with_the_same_bytes(local_graph, tmp_path):
    first = local_graph.build(Letter(local_graph))
    (tmp_path / "store/letters/d1/a").unlink()
    graph = Graph(local_graph.workspace)
    state = graph.state(Letter(graph))
    assert isinstance(state, Stale)
    assert state.causes == {Cause.FILES}
    assert graph.build(Letter(graph)) == first
    assert seen(graph.workspace.store, "letters/d1") == {"a": "alpha"}


def test_readers_keep_the_last_version_when_a_check_fails(graph):
    good = graph.build(Letter(graph, "good"))
    bad = Letter(graph, "bad", ERROR, code_version="2")
    with pytest.raises(RefusedError, match="d1: a: is odd") as caught:
        graph.build(bad)
    assert not caught.value.checks[0].passed
    assert bad.remembered == [caught.value]
    assert graph.published("letters/d1").name == good.version
    assert seen(graph.workspace.store, "letters/d1") == {"a": "good"}


def test_nothing_of_a_rejected_build_is_left(local_graph, tmp_path):
    with pytest.raises(RefusedError):
        local_graph.build(Letter(local_graph, problem=ERROR))
    assert local_graph.workspace.store.outputs() == []
    assert list((tmp_path / "store/.staging").iterdir()) == []


def test_a_failed_advisory_check_is_recorded_in_the_manifest(graph):
    letter = Letter(graph, problem=ERROR, blocking=False)
    assert graph.build(letter).status == "made"
    assert not graph.build(letter).checks[0].passed


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (DemonstrationError(ERROR), RefusedError),
        (OSError(28, "full"), TransientError),
        (ZeroDivisionError("typed text"), DefectError),
        (ChangedOutput("events/d0", "a"), UnusableInputError),
    ],
)
def test_errors_are_distinguished_and_nothing_is_committed(local_graph, raised, expected):
    letter = Letter(local_graph)
    letter.error = raised
    with pytest.raises(expected) as caught:
        local_graph.build(letter)
    assert "typed text" not in str(caught.value)
    assert len(letter.remembered) == 1
    assert local_graph.workspace.store.outputs() == []


@pytest.mark.parametrize("raised", [DemonstrationError(ERROR), ZeroDivisionError()])
def test_a_damaged_input_is_blamed_before_the_recording_and_the_code(local_graph, tmp_path, raised):
    needed = Letter(local_graph, key="needed")
    local_graph.build(needed)
    (tmp_path / "store/letters/needed/a").write_text("omega")
    letter = Letter(local_graph)
    letter.needs = [needed]
    letter.error = raised
    with pytest.raises(UnusableInputError, match="letters/needed/a was changed after its commit"):
        local_graph.build(letter)


def test_an_output_has_one_of_four_states(graph):
    assert graph.state(Letter(graph)) == Absent()
    version = graph.build(Letter(graph)).version
    current = graph.state(Letter(graph))
    assert isinstance(current, Current)
    assert current.version.name == version
    graph = Graph(graph.workspace)
    stale = graph.state(Letter(graph, code_version="2"))
    assert isinstance(stale, Stale)
    assert stale.why == "the code version was 1 and is 2"
    assert is_of_present_inputs(stale)
    graph = Graph(graph.workspace)
    refused = Letter(graph, code_version="2")
    refused.reason_of_refusal = "it is odd"
    assert graph.state(refused) == Refused(current.version, "it is odd")


def test_an_output_inherits_every_cause_of_its_inputs(graph):
    store = graph.workspace.store
    put(store, "letters/code", {"a": "x"})
    put(store, "letters/inputs", {"a": "x"})
    put(store, "letters/d1", {"a": "x"})
    by_code = Letter(graph, key="code", code_version="2")
    letter = Letter(graph)
    letter.needs = [by_code, Letter(graph, key="absent")]
    state = graph.state(letter)
    assert isinstance(state, Stale)
    assert state.causes >= {Cause.CODE, Cause.INPUTS}
    assert not is_of_present_inputs(state)


def test_a_new_version_that_another_process_published_is_seen_by_the_next_build(graph):
    letter = Letter(graph)
    graph.build(letter)
    graph.workspace.store.remove("letters/d1")
    assert graph.build(letter).status == "made"
