"""The small files beside the records of a CUDAG dataset, for trainers and for people.

Belongs here: the tool and the system prompt as files, LLaMA-Factory's `dataset_info.json`, and the
split report. CUDAG itself does not require them.
"""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.datasets.cudag_config import split_ratios
from demo_pipeline.datasets.export_loop import ExportSummary
from demo_pipeline.datasets.prompts import system_prompt, tool_schema
from demo_pipeline.datasets.splits import Split, SplitPlan
from demo_pipeline.formats.cudag.sidecars import RECORD_FILES

_TAGS = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"}


def write_sidecars(out: Path, splits: Collection[Split], settings: DatasetSettings) -> None:
    """Write `system_prompt.txt`, `tools.json` and `dataset_info.json`.

    Args:
        out: the dataset's directory.
        splits: the splits that have a file.
        settings: the settings that the dataset is made with.
    """
    (out / "system_prompt.txt").write_text(system_prompt(settings) + "\n", encoding="utf-8")
    dump_json(out / "tools.json", [tool_schema(settings)])
    dump_json(out / "dataset_info.json", dataset_info(splits, settings))


def dataset_info(splits: Collection[Split], settings: DatasetSettings) -> dict[str, Any]:
    """LLaMA-Factory's entry for every split, named `<name_prefix>_<split>`.

    The entry of the test split reads the tests as conversations. LLaMA-Factory's `dataset_dir` and
    `media_dir` must be the dataset's directory. The file has no system prompt: set `default_system`
    to the text of `system_prompt.txt`.
    """
    return {
        f"{settings.name_prefix}_{split.value}": {
            "file_name": RECORD_FILES[split.value],
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "images": "image"},
            "tags": dict(_TAGS),
        }
        for split in Split
        if split in splits
    }


def split_report(
    plan: SplitPlan, settings: DatasetSettings, summary: ExportSummary
) -> dict[str, Any]:
    """The content of `splits.json`: every trajectory's split, moved groups, and what was left out.

    Args:
        plan: the split of every chosen trajectory.
        settings: for the wanted ratios, which are shown beside the shares of groups.
        summary: for the records written and what was left out.
    """
    groups, trajectories = Counter(plan.groups.values()), Counter(plan.splits.values())
    by_hash = groups.total() - groups[Split.HELD_OUT]
    splits: dict[str, dict[str, Any]] = {
        split.value: {
            "groups": groups[split],
            "trajectories": trajectories[split],
            "records": summary.records[split],
        }
        for split in Split
    }
    for name, ratio in split_ratios(settings).items():
        share = round(splits[name]["groups"] / by_hash, 6) if by_hash else 0
        splits[name] |= {"ratio": ratio, "share": share}
    return {
        "splits": splits,
        "filled": [{"group": group, "split": split.value} for group, split in plan.filled],
        "empty": [split.value for split in plan.empty],
        "held_out_applications_absent": list(plan.absent),
        "excluded": {
            "trajectories": dict(sorted(summary.excluded_trajectories.items())),
            "records": dict(sorted(summary.excluded_records.items())),
            "actions": summary.hidden_actions,
        },
        "trajectories": {
            key: {"group": plan.members[key], "split": split.value}
            for key, split in plan.splits.items()
        },
    }
