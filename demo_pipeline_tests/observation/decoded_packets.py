"""Counts the packets of a video that are decoded."""

from typing import Any

import pytest

from demo_pipeline.observation.frames import video_reader


def decoded_packets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that takes the PTS of each packet that is decoded from now on."""
    packets: list[int] = []
    enter = video_reader._ForwardReader._enter

    def noted(self: Any, pts: int | None) -> None:
        enter(self, pts)
        self._low, self._high = 0, -1  # asked again for every packet
        if pts is not None:
            packets.append(pts)

    monkeypatch.setattr(video_reader._ForwardReader, "_enter", noted)
    return packets
