"""The Dagster code location: the definitions for the settings of this environment."""

import logging
import os
from pathlib import Path

from demo_pipeline.files.processes import save_memory
from demo_pipeline.settings import Settings, project_home

save_memory()  # before anything imports Arrow
from demo_pipeline.defs import build_defs  # noqa: E402 - therefore

_MADE_BY_DEV = ".tmp_dagster_home"  # what `dagster dev` begins the name of its own folder with

if Path(os.environ.get("DAGSTER_HOME") or _MADE_BY_DEV).name.startswith(_MADE_BY_DEV):
    logging.getLogger(__name__).warning(
        "DAGSTER_HOME is not set: Dagster shows no earlier runs, and partitions only once its "
        "sensor has seen the uploads. `demo-pipeline ui` opens the project; or first type: "
        'export DAGSTER_HOME="%s"',
        project_home(),
    )
defs = build_defs(Settings())
