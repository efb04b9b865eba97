"""Starts local S3 servers for tests: moto in this process, and SeaweedFS in its own process.

Both servers listen only on the loopback interface, and stop when their context ends.
"""

import logging
import os
import secrets
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler
from moto.server import ThreadedMotoServer

from demo_pipeline.store.bucket import Bucket

ACCESS_KEY = "test-access-key"
SECRET_KEY = "canary-secret-4f1c9e"  # noqa: S105 - tests search messages for it
# The gRPC port is 10,000 higher. Both stay below 32,768, where Linux assigns ports to clients.
_PORTS = range(12_000, 22_000)
_START_TIMEOUT_S = 30.0
# Every bucket needs a volume, and volumes grow as they are filled. Without this number, SeaweedFS
# allows one volume for each GB of free disk space.
_MAX_VOLUMES = 10_000


@dataclass(frozen=True)
class S3Server:
    """A running server. `name` is `moto` or `seaweedfs`."""

    name: str
    endpoint: str
    access_key: str = ACCESS_KEY
    secret_key: str = field(default=SECRET_KEY, repr=False)

    def environment(self) -> dict[str, str]:
        """Returns the environment variables with which a client uses the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }

    @contextmanager
    def connected(self) -> Iterator["S3Server"]:
        """Sets the AWS environment variables of this process for the server.

        All other AWS variables are removed until the context ends.
        """
        with pytest.MonkeyPatch.context() as patch:
            for name in list(os.environ):
                if name.startswith("AWS_"):
                    patch.delenv(name)
            for name, value in self.environment().items():
                patch.setenv(name, value)
            yield self

    def make_bucket(self, name: str = "") -> str:
        """Creates a bucket, by default with a random name, and returns its URL.

        This works only inside `connected`.
        """
        name = name or f"bucket-{secrets.token_hex(6)}"
        Bucket(f"s3://{name}", Path(tempfile.gettempdir())).call("create_bucket")
        return f"s3://{name}"


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """Runs moto in a thread, on a free port."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # werkzeug logs every request
    handle = MotoRequestHandler.handle

    def handle_untraced(handler: Any) -> None:
        sys.settrace(None)  # coverage measures nothing that this thread runs
        handle(handler)

    with pytest.MonkeyPatch.context() as patch:
        # Without the cache, moto searches its folder of services at every request.
        cached_lookup = cache(DomainDispatcherApplication.get_backend_for_host)
        patch.setattr(DomainDispatcherApplication, "get_backend_for_host", cached_lookup)
        patch.setattr(MotoRequestHandler, "handle", handle_untraced)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield S3Server("moto", f"http://{host}:{port}")
        finally:
            server.stop()


@contextmanager
def seaweed_server(
    folder: Path, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY
) -> Iterator[S3Server]:
    """Runs SeaweedFS in its own process, with its data in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("master.port", "volume.port", "filer.port", "s3.port", "admin.port", "metricsPort")
    ports = free_ports(len(names))
    command = [
        f"{sysconfig.get_path('scripts')}/weed",
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
    ]
    command += [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    command += ["-master.telemetry=false", "-webdav=false", "-admin.ui=false"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-volume.max={_MAX_VOLUMES}"]
    server = S3Server("seaweedfs", f"http://127.0.0.1:{ports[3]}", access_key, secret_key)
    home = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "TMPDIR": str(folder)}
    with ExitStack() as stack:
        log = stack.enter_context((folder / "weed.log").open("wb"))
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=home | server.environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C must not stop the server before its clients
        )
        stack.callback(_remove_sockets, ports)
        stack.callback(process.wait)
        stack.callback(process.kill)
        _wait_until_ready(server, process, folder / "weed.log")
        yield server


def _wait_until_ready(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        if _answers(server):
            return
        time.sleep(0.1)
    raise RuntimeError(f"SeaweedFS did not start; see {log}")


def _answers(server: S3Server) -> bool:
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        direct.open(server.endpoint, timeout=2).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def _remove_sockets(ports: list[int]) -> None:
    """Removes the sockets that SeaweedFS leaves in the temporary folder."""
    for port in (*ports, *(port + 10_000 for port in ports)):
        for path in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port}.sock"):
            path.unlink(missing_ok=True)


def free_ports(count: int) -> list[int]:
    """Returns ports that are free now, and whose gRPC ports (10,000 higher) are also free."""
    ports: list[int] = []
    candidates = iter(_PORTS[secrets.randbelow(len(_PORTS) - 1000) :])
    while len(ports) < count:
        port = next(candidates)
        if all(map(is_free, (port, port + 10_000))):
            ports.append(port)
    return ports


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
