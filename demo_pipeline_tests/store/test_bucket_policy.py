"""Tests that the bucket policy in docs/guides/operations.md grants exactly what is needed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.session import get_session
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.authorization import enable_iam_authentication
from moto.s3.models import s3_backends

from demo_pipeline.annotations.annotate import annotate_all
from demo_pipeline.annotations.annotation_sources import rule_provider
from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.review.review_data import ReviewData
from demo_pipeline.runs.dataset_outputs import DatasetOutput, failed_before
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.health import HealthLevel, examine_workspace
from demo_pipeline.runs.quarantine import list_quarantine, quarantine_demonstration, release
from demo_pipeline.runs.stages import STAGES, dataset_stages, training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.simulator.s3_server import S3Server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "operations.md"
UPLOADS = "s3://my-uploads/recordings"
STORE = "s3://my-datasets/demo"


def documented(first_key: str) -> Any:
    """Returns the JSON block of the page whose first key is `first_key`."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    values = map(json.loads, blocks)
    [value] = [value for value in values if next(iter(value)) == first_key]
    return value


@pytest.fixture
def workspace(
    moto: S3Server, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    """Yields a workspace with one upload, whose user has only the permissions of the policy."""
    with moto.connected():
        for url in (UPLOADS, STORE):
            moto.make_bucket(url.split("/")[2])
        for file in RECORDING_FILES:
            Bucket(UPLOADS, tmp_path).put(f"one/{file}", recording / file)
        # Removes the objects of other tests, because the server is shared.
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[STORE.split("/")[2]].keys.clear()
        iam = get_session().create_client("iam")
        user = tmp_path.name
        iam.create_user(UserName=user)
        policy = json.dumps(documented("Version"))
        iam.put_user_policy(UserName=user, PolicyName="page", PolicyDocument=policy)
        key = iam.create_access_key(UserName=user)["AccessKey"]
        with enable_iam_authentication(), monkeypatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
            patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
            places: dict[str, Any] = {
                "cache": str(tmp_path / "cache"),
                "osworld_tasks": str(tmp_path / "tasks"),
            }
            yield Workspace.open(Settings(uploads=UPLOADS, store=STORE, **places))


def test_the_documented_policy_is_enough_and_gives_no_more(workspace):
    levels = {finding.check: finding.level for finding in examine_workspace(workspace)}
    assert levels["roots"] is levels["outputs"] is levels["quarantine"] is HealthLevel.OK
    assert [upload.id for upload in workspace.uploads.list_demonstrations()] == ["one"]
    for _ in range(2):
        result = build_stage(workspace, STAGES[0], "one", force=True)
        assert result.status == "made"
    output = STAGES[0].output("one")
    assert workspace.store.verify(output) == []
    quarantine_demonstration(workspace.store, "one", "events", None, [])
    assert len(list_quarantine(workspace.store)) == 1
    assert release(workspace.store, "one")
    workspace.store.remove(output)
    workspace.store.prune(-5)
    assert workspace.store.outputs() == []
    for key in ("one/meta.json", "two/meta.json"):
        with pytest.raises(StorageError, match="access denied"):
            workspace.uploads.objects.put(key, b"x")
        with pytest.raises(StorageError, match="access denied"):
            workspace.uploads.objects.delete(key)


def test_every_dataset_is_built_with_the_policy(workspace, tmp_path):
    commit_trajectories(workspace, [make_trajectory(tmp_path, "one", [CLICK])])
    failed, *_ = (export.stage for export in training_exports().values())
    DatasetOutput(Graph(workspace), failed).remember_failure(ValueError())
    assert failed_before(workspace.store, failed) == "ValueError"
    for stage in dataset_stages():
        assert run_dataset_stage(workspace, stage).status == "made", stage.name
    assert failed_before(workspace.store, failed) == ""
    assert INDEX_STAGE.folder in workspace.store.outputs()


def test_people_judge_and_correct_with_the_policy(workspace, tmp_path):
    trajectory = make_trajectory(tmp_path, "one", [CLICK] * 2)
    commit_trajectories(workspace, [trajectory])
    data = ReviewData(workspace.store, workspace.uploads)
    reviewed = data.opened("one")
    assert reviewed is not None
    for kind, value in (("reject", {"reason": "other"}), ("bad_step", {"step": 1})):
        data.reviews.make(reviewed.subject, reviewed.folder, "ann", kind, value)
    assert len(data.judged(reviewed.subject)["decisions"]) == 2
    assert build_stage(workspace, RECORDS_STAGE, "one").status == "made"
    assert workspace.store.delete_documents("reviews/one") == 2


def test_steps_are_annotated_with_the_policy(workspace, tmp_path):
    commit_trajectories(workspace, [make_trajectory(tmp_path, "one", [CLICK] * 2)])
    for written in (2, 0):
        assert (
            annotate_all(workspace.store, ["one"], [rule_provider(lambda _: ())]).written == written
        )
    result = build_stage(workspace, ANNOTATIONS_STAGE, "one")
    assert result.summary["effective"] == 2
    assert workspace.store.delete_documents("annotations/one") == 2


def test_s3_accepts_the_documented_lifecycle_rule(moto):
    with moto.connected():
        bucket = moto.make_bucket().removeprefix("s3://")
        rules = documented("Rules")
        s3 = get_session().create_client("s3")
        s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=rules)
        [kept] = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        assert kept["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
