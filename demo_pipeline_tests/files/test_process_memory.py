"""Tests that Arrow uses the allocator of the system, which keeps no freed memory."""

import os
import subprocess
import sys

_ARROW = """
import demo_pipeline.definitions
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""


def _printed(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    environment = {key: text for key, text in os.environ.items() if not key.startswith("ARROW_")}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout.strip()


def test_arrow_keeps_no_freed_memory_in_what_dagster_loads():
    assert _printed(_ARROW) == "system"
