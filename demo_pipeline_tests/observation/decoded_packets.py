"""Counts the packets of a video that are decoded."""

from typing import Any

import pytest

from demo_pipeline.observation.frames import video_reader


def decoded_packets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which the PTS of each packet decoded from now on is appended."""
    packets: list[int] = []
    enter = video_reader._ForwardReader._enter

    def noted(self: Any, pts: int | None) -> None:
        enter(self, pts)
        # This range is empty, so that `_enter` is called for every packet.
        self._low = 0
        self._high = -1
        if pts is not None:
            packets.append(pts)

    monkeypatch.setattr(video_reader._ForwardReader, "_enter", noted)
    return packets
