"""The commands behind `make golden` and `make code-versions`."""

import sys

from demo_pipeline_tests.golden.code_versions import (
    committed_records,
    current_records,
    not_raised,
    write_records,
)
from demo_pipeline_tests.golden.outputs import committed_texts, fresh_texts, write_texts


def write_outputs() -> int:
    """Writes the golden outputs of the current code, and prints the files that changed."""
    before = committed_texts()
    texts = fresh_texts()
    write_texts(texts)
    changed = _changed(before, texts)
    sys.stdout.writelines(f"changed: {name}\n" for name in changed)
    sys.stdout.write(f"{len(texts)} golden outputs, {len(changed)} changed\n")
    return 0


def record_code() -> int:
    """Records the code of every stage, unless a stage needs a higher code version first."""
    texts = fresh_texts()
    if changed := _changed(committed_texts(), texts):
        sys.stderr.writelines(f"differs from the golden output: {name}\n" for name in changed)
        sys.stderr.write("Nothing is recorded. Run `make golden`, and look at `git diff`.\n")
        return 1
    before = committed_records()
    now = current_records(texts)
    refusals = [not_raised(name, before.get(name), record) for name, record in now.items()]
    if any(refusals):
        sys.stderr.writelines(f"{refusal}\n" for refusal in refusals if refusal)
        sys.stderr.write("Nothing is recorded.\n")
        return 1
    write_records(now)
    recorded = [name for name, record in now.items() if before.get(name) != record]
    sys.stdout.write(f"{len(now)} stages, recorded anew: {', '.join(recorded) or 'none'}\n")
    return 0


def _changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


if __name__ == "__main__":
    sys.exit({"outputs": write_outputs, "code-versions": record_code}[sys.argv[1]]())
