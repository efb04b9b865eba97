"""Tests the statistics of a store: the tables, the check that they agree, and users' queries."""

import csv
import io
import json
import time
from dataclasses import asdict
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import demo_pipeline as dp
from demo_pipeline.cli.app import app
from demo_pipeline.datasets.sql_views import create_views, views_with_files
from demo_pipeline.exports.dataset_statistics import (
    STATISTICS_STAGE,
    disagreements,
    engine,
    statistics,
)
from demo_pipeline.runs import queries
from demo_pipeline.runs.failures import UnusableInputError
from demo_pipeline.runs.queries import QueryTimeoutError, current_statistics, run_query
from demo_pipeline.runs.stages import dataset_stages_by_name, store_views
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import hide
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

NAMES = ("trajectory_index", "sft_samples", "messages_dataset")


def build(workspace: Workspace, *names: str) -> None:
    for name in names:
        assert run_dataset_stage(workspace, dataset_stages_by_name()[name]).status in {
            "made",
            "unchanged",
        }


@pytest.fixture(scope="module")
def counted(made_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Returns a read-only workspace with two demonstrations and their datasets."""
    workspace = open_workspace(copy_of(made_root, tmp_path_factory.mktemp("counted") / "root"))
    build(workspace, *NAMES)
    run_dataset_stage(workspace, STATISTICS_STAGE)
    return workspace


@pytest.fixture
def own(counted: Workspace, tmp_path: Path) -> Workspace:
    """Returns a copy of `counted` that a test may change."""
    root = Path(counted.settings.store).parent
    return open_workspace(copy_of(root, tmp_path / "root"))


def test_a_dataset_that_lost_a_file_is_not_counted_as_none(own):
    """An error names the dataset. Without the error, the tables would claim that it is empty."""
    folder = own.store.open("sft")[0]
    (folder / "samples.parquet").unlink()
    with pytest.raises(UnusableInputError, match=r"^sft: .*files is missing") as raised:
        run_dataset_stage(own, STATISTICS_STAGE)
    assert "sft_samples" in str(raised.value)
    build(own, "sft_samples", "dataset_statistics")


def test_the_tables_count_what_is_in_the_index(counted):
    tables = current_statistics(counted)
    folder = counted.store.open("dataset")[0]
    index = json.loads((folder / "index.json").read_bytes())
    [overview] = tables["overview"]
    assert overview["trajectories"] == index["total_trajectories"] == 2
    assert overview["steps"] == sum(entry["steps"] for entry in index["trajectories"])
    assert sum(row["steps"] for row in tables["actions"]) == overview["steps"]
    assert {row["platform"] for row in tables["screens"]} == {"windows"}
    assert sum(row["samples"] for row in tables["sft_splits"]) > 0


def test_the_leak_rates_are_those_of_the_index(counted):
    folder = counted.store.open("dataset")[0]
    counts = json.loads((folder / "metadata.json").read_bytes())["counts"]
    together, *by_action = current_statistics(counted)["leak_rates"]
    rates = {name: counts[name] for name in together if name != "action_type"}
    assert together == {"action_type": "all", **rates}
    assert sum(row["pointer_actions"] for row in by_action) == counts["pointer_actions"] == 5
    version = counted.store.current("statistics")
    assert version is not None
    assert {name: version.manifest.summary[name] for name in rates} == rates


def test_the_committed_statistics_equal_the_current_ones(counted):
    folder, version = counted.store.open("statistics")
    assert json.loads((folder / "statistics.json").read_bytes()) == current_statistics(counted)
    assert run_dataset_stage(counted, STATISTICS_STAGE).status == "unchanged"
    again = run_dataset_stage(counted, STATISTICS_STAGE, force=True)
    assert (again.status, again.version) == ("made", version.name)
    assert again.checks[0].passed


def test_every_view_can_be_queried(counted):
    root = Path(counted.settings.store)
    assert views_with_files(store_views(), root) == {view.name for view in store_views()}
    for view in store_views():
        [row] = run_query(counted, f"SELECT count(*) AS n FROM {view.name}")  # noqa: S608
        assert row["n"] > 0 or view.name in {"rejected", "trees", "hidden_actions"}
    joined = run_query(
        counted,
        "SELECT a.action_type, s.reason_code FROM actions a"
        " JOIN steps s USING (trajectory_id, action_index)",
    )
    assert len(joined) == current_statistics(counted)["overview"][0]["steps"]


def test_the_committed_script_works_in_any_duckdb_in_the_store(counted, monkeypatch):
    monkeypatch.chdir(counted.settings.store)
    script = Path("statistics/views.sql").read_text()
    with duckdb.connect() as sql:
        sql.execute(script)
        assert sql.execute("SELECT count(*) FROM trajectories").fetchall() == [(2,)]
        assert len(sql.execute("SELECT DISTINCT trajectory_id FROM frames").fetchall()) == 2


def test_an_index_from_before_hidden_actions_is_counted(counted, tmp_path):
    folder = counted.store.open("dataset")[0]
    for name, new in (
        ("trajectories", ["complete", "hidden_actions", "hidden_reasons"]),
        ("steps", ["complete", "hidden_before"]),
    ):
        table = pq.read_table(folder / f"{name}.parquet").drop_columns(new)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with engine() as sql:
        present = create_views(sql, store_views(), {"dataset": tmp_path})
        (overview,) = statistics(sql, present)["overview"]
        assert disagreements(sql, present) == []
    assert present == {"trajectories", "steps"}
    assert (overview["trajectories"], overview["hidden_actions"]) == (2, None)


def test_hidden_actions_that_the_index_does_not_count_are_a_disagreement(counted, tmp_path):
    folder = counted.store.open("dataset")[0]
    pq.write_table(
        pq.read_table(folder / "trajectories.parquet"), tmp_path / "trajectories.parquet"
    )
    row = {"trajectory_id": "first", **asdict(hide(1))}
    table = pa.Table.from_pylist([row], schema=HIDDEN_ACTIONS_SCHEMA)
    pq.write_table(table, tmp_path / HIDDEN_ACTIONS_FILE)
    with engine() as sql:
        present = create_views(sql, store_views(), {"dataset": tmp_path})
        (problem,) = disagreements(sql, present)
    assert problem.demonstration == "first"


def test_datasets_with_different_splits_fail_the_check(own):
    for seed in range(1, 9):
        root = Path(own.settings.store).parent
        other = open_workspace(root, datasets=DatasetSettings(seed=seed))
        build(other, "messages_dataset")
        [check] = run_dataset_stage(own, STATISTICS_STAGE).checks
        if not check.passed:
            break
    assert "its split differs between sft and messages" in check.problems[0].message
    assert check.problems[0].demonstration in {"first", "second"}
    assert not check.blocking


def test_without_an_index_the_error_names_the_command(tmp_path):
    (tmp_path / "uploads").mkdir()
    with pytest.raises(UnusableInputError, match="--select trajectory_index`"):
        run_dataset_stage(open_workspace(tmp_path), STATISTICS_STAGE)


def stats(workspace: Workspace, *arguments: str) -> Result:
    """Runs `demo-pipeline stats` on a store."""
    roots = {"STORE": workspace.settings.store, "UPLOADS": workspace.settings.uploads}
    environment = {f"DEMO_PIPELINE_{name}": root for name, root in roots.items()}
    return CliRunner().invoke(app, ["stats", *arguments], env=environment)


def test_stats_prints_tables_json_views_and_answers(counted):
    output = stats(counted).stdout
    assert output.startswith("2 trajectories, ")
    assert len(output.splitlines()) < 20
    assert not [word for word in ("disabled", " 0,", "\n0 ") if word in output.partition("\n")[2]]
    assert "overview" in stats(counted, "--all").stdout
    assert json.loads(stats(counted, "--json").stdout)["overview"][0]["trajectories"] == 2
    answer = stats(counted, "SELECT count(*) AS n FROM steps", "--json").stdout
    assert json.loads(answer)["answer"][0]["n"] > 0
    files = f"'{counted.settings.store}/dataset/steps.parquet'"
    assert files in stats(counted, "--views").stdout


def test_wide_records_are_printed_one_below_the_other(counted):
    query = "SELECT * FROM steps ORDER BY trajectory_id, step_index LIMIT 2"
    lines = stats(counted, query).stdout.splitlines()
    [row, _] = run_query(counted, query)
    assert lines[0] == "answer 1 of 2"
    assert lines.count("answer 2 of 2") == 1
    values = dict(line.split(maxsplit=1) for line in lines[1 : len(row) + 1] if " " in line.strip())
    assert values["action_type"] == row["action_type"]
    assert (values["x"], values["target_name"]) == (str(row["x"]), "Agree")
    assert "┃" in stats(counted, "SELECT x, y FROM steps").stdout


def test_stats_prints_csv_that_reads_back(counted):
    query = "SELECT trajectory_id, x, text, keys FROM steps ORDER BY trajectory_id, step_index"
    answer = list(csv.DictReader(io.StringIO(stats(counted, query, "--csv").stdout)))
    rows_of_query = run_query(counted, query)
    assert [row["trajectory_id"] for row in answer] == [
        row["trajectory_id"] for row in rows_of_query
    ]
    assert [row["text"] or None for row in answer] == [row["text"] for row in rows_of_query]
    assert [json.loads(row["keys"]) for row in answer if row["keys"]] == [["ctrl", "a"]]
    assert stats(counted, "--csv").exit_code == 2


def test_stats_of_an_empty_store_and_an_invalid_query_are_reported(tmp_path):
    (tmp_path / "it's").mkdir()
    empty = open_workspace(tmp_path / "it's")
    done = stats(empty)
    assert (done.exit_code, "demo-pipeline run" in done.stderr) == (1, True)
    done = stats(empty, "SELEC")
    assert (done.exit_code, "SELEC" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '{store}/dataset/added.csv'",
        "COPY (PIVOT steps ON action_type USING count(*)) TO '{store}/dataset/added.csv'",
        "ATTACH '{store}/added.db'",
        "SELECT 1; SELECT 2",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "PRAGMA enable_object_cache",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{store}/dataset/added.csv'",
        "CREATE TABLE mine AS SELECT 1",
    ],
)
def test_a_query_reads_the_store_alone_and_writes_nothing(counted, query):
    before = sorted(Path(counted.settings.store).rglob("*"))
    with pytest.raises(duckdb.Error):
        run_query(counted, query.format(store=counted.settings.store))
    with pytest.raises(duckdb.Error):
        dp.load_store(counted.settings.store).sql(query.format(store=counted.settings.store))
    assert sorted(Path(counted.settings.store).rglob("*")) == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range = 7",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    ],
)
def test_an_endless_query_ends(counted, monkeypatch, query):
    monkeypatch.setattr(queries, "QUERY_SECONDS", 0.5)
    start = time.monotonic()
    with pytest.raises(QueryTimeoutError, match="stopped after 0 s; let it read fewer rows"):
        run_query(counted, query)
    assert time.monotonic() - start < 60
