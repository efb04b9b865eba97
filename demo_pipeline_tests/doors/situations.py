"""Prepares what a page assumes: samples in the inbox, buckets, a Postgres server, a model.

`make doors` prepares the situation of a page before it types the lines of the page.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.store.bucket import Bucket
from demo_pipeline_tests.distributed.services import postgres_server
from demo_pipeline_tests.doors.checkout import INBOX, SERVER, Checkout
from demo_pipeline_tests.evaluation.fake_server import fake_server
from demo_pipeline_tests.simulator.s3_server import S3Server, seaweed_server

PERSON = "Anna Weber"  # docs/guides/drop-a-persons-data.md removes her recordings
PERSONS_RECORDINGS = ("20261121_212358", "20261121_212801")
POSTGRES_LINES = """\
# storage:
#   postgres:
#     postgres_url:
#       env: DAGSTER_POSTGRES_URL
"""
RUN = ".venv/bin/demo-pipeline run"


def situation(page: str, checkout: Checkout) -> AbstractContextManager[None]:
    """Returns a context in which the lines of `page` can be typed in `checkout`.

    The checkout must have its environment, because some situations run commands of the project.
    """
    prepare = _SITUATIONS.get(page)
    return prepare(checkout) if prepare else nullcontext()


@contextmanager
def _own_bucket_and_services(checkout: Checkout) -> Iterator[None]:
    checkout.variables["DAGSTER_HOME"] = str(checkout.root)
    with _s3_server(checkout) as server:
        keys = f"AWS_ACCESS_KEY_ID={server.access_key} AWS_SECRET_ACCESS_KEY={server.secret_key}"
        checkout.placeholders |= {
            "AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… AWS_DEFAULT_REGION=…": (
                f"{keys} AWS_DEFAULT_REGION=us-east-1"
            ),
            "AWS_ENDPOINT_URL=https://…": f"AWS_ENDPOINT_URL={server.endpoint}",
        }
        yield


@contextmanager
def _move_to_bucket_and_postgres(checkout: Checkout) -> Iterator[None]:
    _put_samples_into_inbox(checkout)
    _require(checkout, RUN)
    with ExitStack() as stack:
        server = stack.enter_context(_s3_server(checkout))
        url = urlsplit(stack.enter_context(postgres_server()))
        checkout.variables |= server.environment()
        checkout.variables |= {
            "DAGSTER_HOME": str(checkout.root),
            "PGHOST": str(url.hostname),
            "PGPORT": str(url.port),
            "PGUSER": str(url.username),
            "PGPASSWORD": str(url.password),
        }
        user = f"{url.username}:{url.password}@{url.hostname}:{url.port}"
        checkout.placeholders["USER:PASSWORD@HOST:5432"] = user

        def use_postgres() -> None:
            config = checkout.root / "dagster.yaml"
            text = config.read_text(encoding="utf-8")
            assert POSTGRES_LINES in text
            lines = POSTGRES_LINES.replace("# ", "")
            config.write_text(text.replace(POSTGRES_LINES, lines), encoding="utf-8")
            stack.enter_context(checkout.serving(SERVER))

        checkout.by_hand[".venv/bin/demo-pipeline register"] = use_postgres
        yield


@contextmanager
def _shared_store(checkout: Checkout) -> Iterator[None]:
    with _s3_server(checkout) as server:
        folders = {
            "DEMO_PIPELINE_UPLOADS": "s3://my-uploads/recordings",
            "DEMO_PIPELINE_STORE": "s3://my-datasets/demo",
        }
        builder = Checkout(checkout.root, checkout.variables | server.environment() | folders)
        _require(builder, RUN)
        profile = checkout.root / "data" / "aws-config"
        profile.write_text(
            "[profile review]\n"
            f"aws_access_key_id = {server.access_key}\n"
            f"aws_secret_access_key = {server.secret_key}\n"
            f"endpoint_url = {server.endpoint}\n"
            "region = us-east-1\n"
        )
        checkout.variables["AWS_CONFIG_FILE"] = str(profile)
        yield


@contextmanager
def _recordings_of_a_person(checkout: Checkout) -> Iterator[None]:
    inbox = _put_samples_into_inbox(checkout)
    for name in PERSONS_RECORDINGS:
        meta = inbox / name / "meta.json"
        fields = json.loads(meta.read_text(encoding="utf-8"))
        meta.write_text(json.dumps(fields | {"user": PERSON}), encoding="utf-8")
    _require(checkout, RUN)
    yield
    left = [path for path in (checkout.root / "data").rglob("*") if _names_the_person(path)]
    assert left == [], f"these files still contain {PERSON}: {left}"


@contextmanager
def _model_server(checkout: Checkout) -> Iterator[None]:
    _require(checkout, "make demo")
    _require(checkout, ".venv/bin/demo-pipeline eval requests data/requests.jsonl --split any")
    with fake_server() as server:
        checkout.placeholders["http://127.0.0.1:8000/v1"] = server.url
        yield


@contextmanager
def _task_of_osworld(checkout: Checkout) -> Iterator[None]:
    _put_samples_into_inbox(checkout)
    checkout.placeholders["/tmp/replayed"] = str(checkout.root / "replayed")  # noqa: S108
    yield
    assert (checkout.root / "replayed/agentnet/train.jsonl").is_file()


@contextmanager
def _samples_in_the_inbox(checkout: Checkout) -> Iterator[None]:
    _put_samples_into_inbox(checkout)
    yield


_SITUATIONS: dict[str, Callable[[Checkout], AbstractContextManager[None]]] = {
    "docs/guides/drop-a-persons-data.md": _recordings_of_a_person,
    "docs/guides/evaluation.md": _model_server,
    "docs/guides/operations.md": _own_bucket_and_services,
    "docs/guides/postgres-and-kubernetes.md": _move_to_bucket_and_postgres,
    "docs/guides/privacy.md": _samples_in_the_inbox,
    "docs/guides/replaying.md": _task_of_osworld,
    "docs/guides/several-reviewers.md": _shared_store,
}


@contextmanager
def _s3_server(checkout: Checkout) -> Iterator[S3Server]:
    """Runs an S3 server with the buckets that the pages name, and uploads the samples."""
    with tempfile.TemporaryDirectory(prefix="doors-s3-") as folder, ExitStack() as stack:
        server = stack.enter_context(seaweed_server(Path(folder)))
        with server.connected():
            server.make_bucket("my-datasets")
            uploads = Bucket(server.make_bucket("my-uploads"), Path(folder) / "cache")
            for sample in _samples(checkout):
                for file in RECORDING_FILES:
                    uploads.put(f"recordings/{sample.name}/{file}", sample / file)
        yield server


def _put_samples_into_inbox(checkout: Checkout) -> Path:
    inbox = checkout.root / INBOX
    for sample in _samples(checkout):
        shutil.copytree(sample, inbox / sample.name)
    return inbox


def _samples(checkout: Checkout) -> list[Path]:
    return [path.parent for path in (checkout.root / "data/samples").glob("2*/meta.json")]


def _require(checkout: Checkout, line: str) -> None:
    answer = checkout.type(line)
    assert answer.code == 0, f"$ {line}\n{answer.output[-3000:]}"


def _names_the_person(path: Path) -> bool:
    return path.is_file() and PERSON.encode() in path.read_bytes()
