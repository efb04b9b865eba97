"""Memory of a process of its own: what was freed goes back to the system."""

import os
import subprocess
import sys

import pytest

_BLOCKS = """
import os, sys
from pathlib import Path
import numpy as np
from demo_pipeline.files.processes import save_memory
if sys.argv[1] == "saved":
    save_memory()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

np.ones(30 * 2**20, np.uint8)  # freed: from now on such blocks are kept
before, small = resident(), []
for _ in range(8):
    large = np.ones(4 * 2**20, np.uint8)
    small.append(np.ones(100_000, np.uint8))  # behind each large block
    small.append(np.ones(4 * 2**20, np.uint8))
small = [one for one in small if one.size < 2**20]
print((resident() - before) // 2**20)
"""
_FREE = """
import os
from pathlib import Path
from demo_pipeline.files.processes import return_free_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

blocks = [bytes(50_000) for _ in range(1000)]
del blocks[1:-1]  # the first and the last keep the heap from shrinking
left = resident()
return_free_memory()
print((left - resident()) // 2**20)
"""
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and glibc is what is set")
def test_large_blocks_between_small_ones_go_back_to_the_system():
    assert int(_printed(_BLOCKS, "saved")) < 10 < int(_printed(_BLOCKS, "as it comes"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and glibc is what is asked")
def test_free_memory_between_blocks_goes_back_to_the_system():
    assert int(_printed(_FREE)) > 20


def test_arrow_keeps_no_freed_memory_in_what_dagster_loads():
    assert _printed(_ARROW) == "system"
