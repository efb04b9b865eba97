"""What a worker process of a test does instead of a demonstration; imports nothing heavy."""

import os
from typing import Any

from demo_pipeline.pipeline.outcomes import DemonstrationOutcome


def work(_values: dict[str, Any], demonstration: str, *, force: bool) -> DemonstrationOutcome:
    """Exit as a killed process does, or return the arguments."""
    if demonstration == "dies":
        os._exit(9)
    return DemonstrationOutcome(demonstration, "done", {"force": force})
