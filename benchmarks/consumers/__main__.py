"""Hand the datasets to their trainers' own code: `make consumers`.

Every library gets an environment of its own below a scratch folder; they share one PyTorch. Nothing
is downloaded from a hub: the model is a Qwen2.5-VL of random weights. The table is in
docs/guides/trainers.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reported import rows_in

from demo_pipeline.settings import DatasetSettings

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from demo_pipeline_tests.datasets.builders import make_trajectory  # noqa: E402
from demo_pipeline_tests.exports.forms import build_described  # noqa: E402

# The wheels of torchvision and torchaudio fit this PyTorch; no processor-only ones are on PyPI.
TORCH = ("torch==2.11.0", "torchvision==0.26.0", "torchaudio==2.11.0", "pillow")
EXPORTS = (
    *("sft", "messages", "cudag", "cua_lite", "agentnet", "atif"),
    *("grounding", "transitions", "step_labels"),
)
VARIANTS = {"action_line": "ACTION_LINE"}


@dataclass(frozen=True)
class Consumer:
    """A library and how it is tried.

    Attributes:
        name: of its row and its environment.
        script: what it runs.
        size: MB of its environment, without PyTorch.
        packages: what is installed with all that it requires.
        alone: what is installed without what it requires.
        model: whether it reads the model.
        torch: whether it needs PyTorch.
        matrix: whether it is tried on the made demonstrations, too.
    """

    name: str
    script: str
    size: int
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()
    model: bool = True
    torch: bool = True
    matrix: bool = True


CONSUMERS = (
    *(
        Consumer(f"datasets {version}", "hf_datasets.py", 315, packages, model=False, torch=False)
        for version in ("4.0.0", "4.8.4", "5.2.0")
        for packages in [(f"datasets=={version}", "pillow")]
    ),
    Consumer("atif 1.8.0", "atif_reader.py", 20, ("atif==1.8.0",), model=False, torch=False,
        matrix=False),
    Consumer("qwen-agent 0.0.34", "qwen_agent_parser.py", 155,
        ("qwen-agent==0.0.34", "soundfile", "python-dateutil", "tqdm"), model=False, torch=False),
    Consumer("TRL 1.16.0", "trl_training.py", 585,
        ("trl==1.16.0", "transformers==5.23.0", "qwen-vl-utils==0.0.14")),
    # The last one with a trainer of reward models.
    Consumer("TRL 1.13.0", "trl_stepwise.py", 585, ("trl==1.13.0", "transformers==5.23.0"),
        matrix=False),
    Consumer("LLaMA-Factory 0.9.5", "llama_factory.py", 1200, ("llamafactory==0.9.5",)),
    Consumer("ms-swift 4.6.0", "ms_swift.py", 990, ("ms-swift==4.6.0", "qwen-vl-utils==0.0.14")),
    Consumer("Axolotl 0.19.0", "axolotl_loader.py", 690,
        ("transformers==5.16.1", "datasets==4.8.4", "trl==1.9.0", "peft==0.20.0",
         "accelerate==1.13.0", "pydantic==2.12.5", "addict", "fire", "PyYAML", "colorama",
         "python-dotenv", "posthog", "numba<1.0"),
        alone=("axolotl==0.19.0", "axolotl-contribs-lgpl", "axolotl-contribs-mit"), matrix=False),
)  # fmt: skip


def environment(scratch: Path, name: str, packages: tuple[str, ...]) -> Path:
    """The folder of an environment; it is made unless it was made before."""
    folder = scratch / name.replace(" ", "-")
    if not (folder / ".complete").exists():
        print(f"installing {name}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(folder)])
        if packages:
            install(folder, *packages)
        (folder / ".complete").touch()
    return folder


def install(folder: Path, *arguments: str) -> None:
    """Run pip in an environment, quietly."""
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q"]
    run([*pip, "--disable-pip-version-check", *arguments])


def run(command: list[str], **variables: str) -> None:
    """Run a command to its end; an error ends the program with what the command said."""
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def prepare(scratch: Path, consumer: Consumer) -> Path:
    """The Python of a consumer's environment."""
    folder = scratch / consumer.name.replace(" ", "-")
    if (folder / ".ready").exists():
        return folder / "bin/python"
    environment(scratch, consumer.name, ())
    packages = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    if consumer.torch:
        shared = environment(scratch, "torch", TORCH) / packages.relative_to(folder)
        (packages / "shared_torch.pth").write_text(f"{shared}\n")
    if consumer.alone:
        install(folder, "--no-deps", *consumer.alone)
    install(folder, *consumer.packages)
    (folder / ".ready").touch()
    return folder / "bin/python"


def make_exports(scratch: Path) -> Path:
    """The datasets of the sample recordings, `messages` also with each of its two settings on."""
    export = scratch / "export"
    shutil.rmtree(export, ignore_errors=True)
    program = [sys.executable, "-m", "demo_pipeline.cli.app"]
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        own = {"DEMO_PIPELINE_STORE": f"{work}/store", "DEMO_PIPELINE_CACHE": f"{work}/cache"}
        own |= {"DEMO_PIPELINE_UPLOADS": str(HERE.parents[1] / "data" / "samples")}
        own |= {"DAGSTER_HOME": work, "DEMO_PIPELINE_DATASETS__EXPORTS": json.dumps(EXPORTS)}
        shutil.copyfile(HERE.parents[1] / "dagster.yaml", f"{work}/dagster.yaml")
        run([*program, "run"], **own)
        run([*program, "export", str(export)], **own)
        named = {
            "DEMO_PIPELINE_DATASETS__LICENSE": "other",
            "DEMO_PIPELINE_HUB__LANGUAGE": '["en"]',
        }
        run([*program, "export", "--hub-layout", str(export / "hub")], **own, **named)
        for name, setting in VARIANTS.items():
            chosen = own | {f"DEMO_PIPELINE_DATASETS__{setting}": "true"}
            run([*program, "run"], **chosen)
            run([*program, "export", f"{work}/{name}"], **chosen)
            shutil.move(f"{work}/{name}/messages", export / name)
    return export


CLICK = ("click", {"x": 960, "y": 540, "button": "left"})
DOWN = [("hotkey", {"keys": ["down"], "presses": times}) for times in (364, 8)]
# Steps of a made demonstration, and how many of the first ones have no tree: SFT's lines before the
# first tree are more than the 10 MB from which `datasets` guesses types.
CASES = {
    "one demonstration": ((CLICK,) * 5, 0),
    "300 steps, no tree in the first 10 MB": ((CLICK,) * 380, 375),
    "a held key": ((CLICK, DOWN[0], CLICK, DOWN[1]), 0),
}


def make_case(folder: Path, steps: Sequence[tuple[str, dict]], without_tree: int) -> None:
    """The datasets of one made demonstration, all of it training data, with their cards."""
    rows = {index: {"tree_agreement": "differs"} for index in range(without_tree)}
    demo = make_trajectory(folder / "made", "demo", steps, rows=rows)
    settings = DatasetSettings(train_ratio=1, val_ratio=0)
    for name, place in {
        "sft": "sft",
        "messages": "messages",
        "cudag": "datasets/demonstrations--made--20260101_000000",
    }.items():
        build_described(name, [demo], folder / place, settings)


def rows_of(consumer: Consumer, scratch: Path, export: Path) -> list[list]:
    """What a consumer made of the datasets; a row with the reason when its script failed."""
    python = prepare(scratch, consumer)
    model = scratch / f"model-{consumer.script}"
    home = scratch / "home" / export.name
    offline = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "AXOLOTL_DO_NOT_TRACK": "1"}
    homes = {"HF_HOME": f"{home}/{consumer.name}", "MODELSCOPE_CACHE": f"{home}/modelscope"}
    variables = os.environ | offline | homes
    if consumer.model and not model.exists():
        chats = str(export / "messages/train.jsonl")
        run([str(python), str(HERE / "tiny_qwen.py"), str(model), chats], **offline)
    with tempfile.TemporaryDirectory(dir=scratch) as elsewhere:
        done = subprocess.run(
            [str(python), str(HERE / consumer.script), str(export), str(model)],
            cwd=elsewhere,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    log = scratch / f"{consumer.name} {export.name}.log"
    log.write_text(f"{done.stdout}\n{done.stderr}", encoding="utf-8")
    for line in done.stdout.splitlines():
        if line.startswith("first labels:"):
            print(f"  {line[:300]}", flush=True)
    rows = list(rows_in(done.stdout))
    return rows if done.returncode == 0 else [*rows, [f"failed, see {log}", 0, 0, None]]


def main() -> int:
    """Print the table; exits 1 when a consumer failed or lost a sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "consumers")
    parser.add_argument("--case", default="", help="cases whose name begins with this")
    parser.add_argument("--only", default="", help="consumers whose name contains this")
    options = parser.parse_args()
    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in CONSUMERS if options.only.lower() in one.name.lower()]
    size = sum(one.size for one in chosen) + 5400 * any(one.torch for one in chosen)
    print(f"environments in {scratch}: about {size / 1000:.1f} GB when complete", flush=True)
    cases = {"samples": make_exports(scratch)} if "samples".startswith(options.case) else {}
    for name, case in CASES.items():
        if name.startswith(options.case):
            cases[name] = scratch / "cases" / name.partition(",")[0].replace(" ", "-")
            shutil.rmtree(cases[name], ignore_errors=True)
            make_case(cases[name], *case)
    lines = []
    lost = False
    for one in chosen:
        for name, export in cases.items():
            if name != "samples" and not one.matrix:
                continue
            print(f"{one.name}: {name}", flush=True)
            for data, before, after, labels in rows_of(one, scratch, export):
                lost |= not before == after > 0
                shown = "-" if labels is None else f"{labels:,}"
                lines.append(f"| {one.name} | {name} | {data} | {before} | {after} | {shown} |")
                print(lines[-1], flush=True)
    print("\n| consumer | case | data | samples in | samples after | label tokens |")
    print("\n".join(["| --- | --- | --- | --- | --- | --- |", *lines]))
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
