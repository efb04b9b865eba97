"""Tests the definitions that the UI shows before anything has run."""

import runpy

import dagster as dg
import pytest

from demo_pipeline.actions.action_tables import ACTIONS_SCHEMA
from demo_pipeline.defs import build_defs
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.settings import Settings

CHAIN = [
    *("raw_recordings", "events", "actions", "screenshots", "ui_trees"),
    *("trajectories", "redactions", "annotations", "records"),
]
SHEETS, TRIAGE = "contact_sheets", "triage"  # no other asset reads these assets
DATASETS = [
    "sft_samples",
    "messages_dataset",
    "cudag_dataset",
    "trajectory_index",
    "osworld_quests",
]
STATISTICS = "dataset_statistics"
OBSERVED = ["osworld_tasks", "reviews"]
ASSETS = [*CHAIN, SHEETS, TRIAGE, *DATASETS, STATISTICS, *OBSERVED]


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    root = tmp_path_factory.mktemp("roots")
    settings = Settings(uploads=str(root / "uploads"), store=str(root / "store"))
    definitions = build_defs(settings)
    assert list(root.iterdir()) == []  # loading the definitions writes nothing
    return definitions


@pytest.fixture(scope="module")
def specs(definitions: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def test_every_asset_is_in_one_group_so_that_the_lineage_opens_with_their_names(specs):
    assert {name: spec.group_name for name, spec in specs.items()} == dict.fromkeys(
        ASSETS, "demo_pipeline"
    )


def test_the_datasets_are_selected_by_their_kind(definitions):
    graph = definitions.resolve_asset_graph()
    selected = dg.AssetSelection.from_string("kind:dataset").resolve(graph)
    assert {key.path[-1] for key in selected} == {*DATASETS, STATISTICS}


@pytest.mark.parametrize("name", sorted(ASSETS))
def test_an_asset_has_a_description_and_an_owner(specs, name):
    spec = specs[name]
    assert spec.description is not None
    assert len(spec.description) > 40
    assert spec.owners == ["team:demonstrations"]
    assert spec.code_version
    assert spec.kinds


def test_only_the_stages_of_a_demonstration_are_partitioned(specs):
    partitioned = {name for name, spec in specs.items() if spec.partitions_def is not None}
    assert partitioned == {*CHAIN, SHEETS, TRIAGE}
    assert {specs[name].partitions_def for name in partitioned} == {
        dg.DynamicPartitionsDefinition(name="demonstrations")
    }


def test_what_people_write_is_observed_so_that_materialize_all_leaves_it_out(definitions):
    graph = definitions.resolve_asset_graph()
    assert {key.path[-1] for key in graph.materializable_asset_keys} == {*ASSETS} - {*OBSERVED}
    assert {key.path[-1] for key in graph.observable_asset_keys} == {*OBSERVED}


def test_lineage_runs_from_the_recording_to_the_datasets(specs):
    parents = {
        name: {dep.asset_key.to_user_string() for dep in spec.deps} for name, spec in specs.items()
    }
    for place, name in enumerate(CHAIN):
        assert parents[name] - {"osworld_tasks"} <= set(CHAIN[:place])
        assert parents[name] or name == "raw_recordings"
    children = {
        parent: {name for name, inputs in parents.items() if parent in inputs}
        for parent in ("trajectories", "records", SHEETS, TRIAGE)
    }
    assert children["trajectories"] == {"redactions", "annotations", "records", SHEETS, TRIAGE}
    assert children["records"] == {*DATASETS}
    assert children[SHEETS] == children[TRIAGE] == set()
    assert {name for name, inputs in parents.items() if "osworld_tasks" in inputs} == {
        "trajectories"
    }
    assert parents["osworld_tasks"] == set()
    assert parents[STATISTICS] == {"trajectory_index", "sft_samples", "messages_dataset"}


def test_parquet_assets_show_their_columns_with_types_and_meaning(specs):
    with_columns = {
        name for name, spec in specs.items() if "dagster/column_schema" in spec.metadata
    }
    without = {"raw_recordings", "records"}
    assert with_columns == set(CHAIN) - without | {TRIAGE, "osworld_tasks"}
    columns = specs["actions"].metadata["dagster/column_schema"].columns
    assert [column.name for column in columns] == ACTIONS_SCHEMA.names
    assert all(column.description and column.type for column in columns)
    constraints = {column.name: column.constraints.other for column in columns}
    assert constraints["direction"] == ["up, down, left, right; with action_type scroll"]


def test_every_stage_and_dataset_has_a_blocking_check(definitions):
    graph = definitions.resolve_asset_graph()
    checks = {key: graph.get_check_spec(key) for key in graph.asset_check_keys}
    assert all(spec.description for spec in checks.values())
    blocking = {key.asset_key.path[-1] for key, spec in checks.items() if spec.blocking}
    datasets = {*DATASETS, "osworld_tasks"}
    # Only people read the outputs of the two subtracted stages, so their checks block nothing.
    stages = {stage.name for stage in STAGES} - {SHEETS, TRIAGE}
    assert blocking == stages | datasets


def test_jobs_cover_the_chain_the_datasets_and_the_catalog(definitions):
    steps = {
        name: set(definitions.resolve_job_def(name).graph.node_dict)
        for name in (
            "process_demonstration",
            "build_datasets",
            "read_osworld_tasks",
        )
    }
    assert steps == {
        "process_demonstration": {*CHAIN, SHEETS, TRIAGE},
        "build_datasets": {*DATASETS, STATISTICS},
        "read_osworld_tasks": {"osworld_tasks"},
    }


def test_the_sensors_are_on_and_the_schedule_is_off(definitions):
    sensors = {sensor.name: sensor for sensor in definitions.sensors or ()}
    assert set(sensors) == {"tasks_changed", "new_uploads", "rebuild_datasets"}
    for sensor in sensors.values():
        assert isinstance(sensor, dg.SensorDefinition)
        assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    launched = [job.name for job in definitions.resolve_sensor_def("new_uploads").jobs]
    assert launched == ["process_demonstration", "process_many"]
    assert definitions.resolve_sensor_def("rebuild_datasets").job_name == "build_datasets"
    schedule = definitions.resolve_schedule_def("prune_history_weekly")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED


def test_a_custom_sensor_can_be_added(tmp_path):
    @dg.run_failure_sensor
    def tell(context: dg.RunFailureSensorContext) -> None:
        """Stands for a sensor that notifies a user of failures."""

    settings = Settings(uploads=str(tmp_path / "uploads"), store=str(tmp_path / "store"))
    definitions = build_defs(settings, [tell])
    assert definitions.resolve_sensor_def("tell").name == "tell"


def test_definitions_validate_as_a_whole(definitions):
    dg.Definitions.validate_loadable(definitions)


def test_the_code_location_takes_its_roots_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("DEMO_PIPELINE_UPLOADS", str(tmp_path / "in"))
    monkeypatch.setenv("DEMO_PIPELINE_STORE", str(tmp_path / "made"))
    defs = runpy.run_module("demo_pipeline.definitions")["defs"]
    with dg.build_resources({"roots": defs.resources["roots"]}) as resources:
        workspace = resources.roots.workspace
    assert (workspace.uploads.url, workspace.store.url) == (
        str(tmp_path / "in"),
        str(tmp_path / "made"),
    )
