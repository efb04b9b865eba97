"""Defines the code location that Dagster loads, built from the current settings."""

import logging
import os
from pathlib import Path

from demo_pipeline.files.processes import save_memory
from demo_pipeline.settings import Settings, project_home

save_memory()  # must run before the next import, which imports Arrow
from demo_pipeline.defs import build_defs  # noqa: E402 - see above

_MADE_BY_DEV = ".tmp_dagster_home"  # prefix of the temporary home that `dagster dev` creates

if Path(os.environ.get("DAGSTER_HOME") or _MADE_BY_DEV).name.startswith(_MADE_BY_DEV):
    logging.getLogger(__name__).warning(
        "DAGSTER_HOME is not set: Dagster shows no earlier runs, and no partitions until its "
        "sensor has read the uploads. Use `demo-pipeline ui`, or first type: "
        'export DAGSTER_HOME="%s"',
        project_home(),
    )
defs = build_defs(Settings())
