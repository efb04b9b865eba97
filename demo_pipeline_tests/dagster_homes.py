"""A configuration of Dagster that lets tests run faster.

By default, Dagster starts four processes for every step of a run, two of which run Python. They
copy the output of the step to a file and to the terminal. Only tests of these files, of the
terminal and of the daemon need the four processes.
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
WITHOUT_OUTPUT_YAML = json.dumps(WITHOUT_OUTPUT)  # JSON is valid YAML
