"""Rules for the config.json of a CUDAG dataset that this pipeline made.

Other generators write other keys: their config.json only has to be a JSON object.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from demo_pipeline.formats.cudag.fault import CudagFault, Scope
from demo_pipeline.formats.cudag.models import GENERATOR
from demo_pipeline.formats.cudag.tool_calls import is_int, is_number

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def is_ours(config: object) -> bool:
    """Whether this pipeline made the dataset: config.json names it as the generator."""
    return isinstance(config, dict) and config.get("generator") == GENERATOR


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name_prefix": (_is_text, "a non-empty string"),
    "user": (_is_text, "a non-empty string"),
    "seed": (is_int, "an integer"),
    "task_types": (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        "a list of names",
    ),
    "task_counts": (_is_numbers, "an object of numbers"),
    "train_split": (is_number, "a number"),
    "split_ratios": (_is_numbers, "an object of numbers"),
    "system_prompt": (_is_text, "a non-empty string"),
    "task_distributions": (_is_numbers, "an object of numbers"),
    "generated_at": (
        lambda value: isinstance(value, str) and _TIME.fullmatch(value) is not None,
        "YYYY-MM-DDTHH:MM:SSZ",
    ),
    "scroll": (_is_object, "an object"),
    "tolerance": (_is_object, "an object"),
}


def config_faults(config: Mapping[str, Any]) -> Iterator[CudagFault]:
    """Yield missing keys and wrong types of a configuration made by this pipeline."""
    for key, (accepts, wanted) in _KEYS.items():
        if key not in config:
            yield CudagFault("config_key", f"{key} is missing", scope=Scope.OURS)
        elif not accepts(config[key]):
            yield CudagFault("config_type", f"{key} must be {wanted}", scope=Scope.OURS)


def count_faults(config: Mapping[str, Any], counted: Counter[str]) -> Iterator[CudagFault]:
    """Yield where the configuration differs from the counted records."""
    if config.get("task_counts") != dict(counted):
        message = f"task_counts differs from the records: {dict(sorted(counted.items()))}"
        remedy = "count the records of train, val, held_out and test"
        yield CudagFault("config_counts", message, remedy, Scope.OURS)
    if config.get("task_types") != sorted(counted):
        message = "task_types must be the sorted task types of the records"
        yield CudagFault("config_counts", message, scope=Scope.OURS)
