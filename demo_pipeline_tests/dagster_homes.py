"""A configuration of Dagster that lets tests run faster.

By default Dagster starts four processes for every step of a run, two of them Pythons, to show on
the terminal what the step prints while it is kept in a file. Tests of what is kept, of the console
and of the daemon run with that; the others need not pay for it.
"""

import json
from typing import Any

WITHOUT_OUTPUT: dict[str, Any] = {
    "telemetry": {"enabled": False},
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    },
}
WITHOUT_OUTPUT_YAML = json.dumps(WITHOUT_OUTPUT)  # which is YAML, too
