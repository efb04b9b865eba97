"""The command behind `make golden`: write the golden outputs anew."""

import sys

from demo_pipeline_tests.golden.outputs import committed_texts, fresh_texts, write_texts


def write_outputs() -> int:
    """Write what the code makes now, and name the files that changed."""
    before, texts = committed_texts(), fresh_texts()
    write_texts(texts)
    changed = [name for name in sorted({*before, *texts}) if before.get(name) != texts.get(name)]
    sys.stdout.writelines(f"changed: {name}\n" for name in changed)
    sys.stdout.write(f"{len(texts)} golden outputs, {len(changed)} changed\n")
    return 0


if __name__ == "__main__":
    sys.exit({"outputs": write_outputs}[sys.argv[1]]())
