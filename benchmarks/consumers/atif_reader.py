"""The models of ATIF: every trajectory, read and written again."""

import json

from atif import Trajectory
from reported import places, row


def main() -> None:
    """Read all of them; one that comes back changed is lost."""
    export, _ = places()
    files = sorted((export / "atif").rglob("trajectory.json"))
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    same = [Trajectory.model_validate(one).to_json_dict() == one for one in documents]
    row("atif", len(files), sum(same))


if __name__ == "__main__":
    main()
