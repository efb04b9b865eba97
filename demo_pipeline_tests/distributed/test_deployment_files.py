"""Tests that the files below deploy/ fit the code, Dagster and the pages about them.

Nothing is started.
"""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from dagster._config import validate_config
from dagster._core.instance.config import dagster_instance_config_schema

from demo_pipeline.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
GUIDES = ROOT / "docs" / "guides"
PAGES = {
    "ray": (GUIDES / "scaling.md").read_text(),
    "kubernetes": (GUIDES / "postgres-and-kubernetes.md").read_text(),
}
DISTRIBUTED_ONLY = {"storage", "run_launcher", "compute_logs"}


def parsed(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text())


def variables(node: object) -> set[str]:
    """Returns the names of all environment variables that a dagster.yaml refers to."""
    if isinstance(node, list):
        return set().union(*map(variables, node))
    if not isinstance(node, dict):
        return set()
    if set(node) == {"env"}:
        return {node["env"]}
    return set().union(*map(variables, node.values()))


def module_of_the_code_location() -> str:
    [location] = parsed("workspace.yaml")["load_from"]
    return location["python_module"]["module_name"]


def same_limits(single: list[dict], distributed: list[dict], *, most: int) -> bool:
    """Returns whether a deployment limits the same runs as one machine, and leaves a slot free.

    Args:
        single: the limits of the deployment on one machine.
        distributed: the limits of the distributed deployment.
        most: the maximum number of simultaneous runs. Each limit must be below it, so that one kind
            of runs never takes all slots.
    """
    kinds = [[{**limit, "limit": 0} for limit in limits] for limits in (single, distributed)]
    assert kinds[0] == kinds[1]
    limits = {limit["key"]: limit["limit"] for limit in distributed}
    assert limits.pop("dagster/partition") == 1
    return all(limit < most for limit in limits.values())


class TestRay:
    def test_dagster_takes_its_configuration(self):
        config = parsed("deploy/ray/dagster.yaml")
        result = validate_config(dagster_instance_config_schema(), config)
        assert result.success, result.errors

    def test_it_differs_from_one_machine_in_where_runs_and_events_are(self):
        single = parsed("dagster.yaml")
        distributed = parsed("deploy/ray/dagster.yaml")
        # On a cluster, runs are checked more often, because nodes are lost more often.
        single["run_monitoring"]["poll_interval_seconds"] = 20
        queues = [config.pop("concurrency") for config in (single, distributed)]
        assert set(distributed) >= DISTRIBUTED_ONLY
        shared = {name: distributed[name] for name in distributed if name not in DISTRIBUTED_ONLY}
        assert shared == single
        assert queues[0]["pools"] == queues[1]["pools"]
        limits = [queue["runs"]["tag_concurrency_limits"] for queue in queues]
        assert same_limits(*limits, most=queues[1]["runs"]["max_concurrent_runs"])

    def test_secrets_come_from_variables_that_the_page_names(self):
        config = parsed("deploy/ray/dagster.yaml")
        names = variables(config)
        assert names == {"DAGSTER_POSTGRES_URL", "RAY_API_SERVER_ADDRESS"}
        assert [name for name in names if name not in PAGES["ray"]] == []
        # Ray would show the values of these variables.
        assert "env_vars" not in config["run_launcher"]["config"]["ray"]


class TestKubernetes:
    def test_the_variables_are_settings(self):
        [deployment] = parsed("deploy/kubernetes/values.yaml")["dagster-user-deployments"][
            "deployments"
        ]
        ours = {name for name in deployment["env"] if name.startswith(PREFIX)}
        ours |= set(re.findall(rf"{PREFIX}\w+", (KUBERNETES / "Dockerfile").read_text()))
        for name in ours:
            node: object = Settings()
            for part in name.removeprefix(PREFIX).lower().split("__"):
                assert hasattr(node, part), name
                node = getattr(node, part)
        assert all(isinstance(value, str) for value in deployment["env"].values())

    def test_the_secrets_are_those_that_the_page_creates(self):
        values = parsed("deploy/kubernetes/values.yaml")
        [deployment] = values["dagster-user-deployments"]["deployments"]
        named = {entry["name"] for entry in deployment["envSecrets"]}
        named.add(values["global"]["postgresqlSecretName"])
        assert named == set(re.findall(r"create secret generic ([\w-]+)", PAGES["kubernetes"]))
        assert "postgresqlPassword" not in values["postgresql"]

    def test_its_runs_are_watched_and_limited_as_on_one_machine(self):
        daemon = parsed("deploy/kubernetes/values.yaml")["dagsterDaemon"]
        single = parsed("dagster.yaml")
        assert snake(daemon["runMonitoring"]) == single["run_monitoring"]
        assert snake(daemon["runRetries"]) == single["run_retries"]
        queue = daemon["runCoordinator"]["config"]["queuedRunCoordinator"]
        limits = single["concurrency"]["runs"]["tag_concurrency_limits"]
        assert same_limits(limits, queue["tagConcurrencyLimits"], most=queue["maxConcurrentRuns"])

    def test_the_image_has_what_its_commands_need(self):
        text = (KUBERNETES / "Dockerfile").read_text()
        ignored = (KUBERNETES / "Dockerfile.dockerignore").read_text().splitlines()
        lines = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
        copied = " ".join(lines).split()
        assert copied
        assert [name for name in copied if not (ROOT / name).exists()] == []
        assert {name for name in copied if f"!{name}" not in ignored} == set()
        assert set(re.findall(r'"\.\[(\w+)\]"', text)) <= set(EXTRAS)

    @pytest.mark.parametrize("file", ["Dockerfile", "values.yaml"])
    def test_it_serves_the_code_location_of_the_workspace(self, file):
        assert f'"-m", "{module_of_the_code_location()}"' in (KUBERNETES / file).read_text()


def snake(values: dict) -> dict:
    """`maxRetries` → `max_retries`."""
    return {re.sub(r"([A-Z])", lambda m: f"_{m[1].lower()}", name): v for name, v in values.items()}
