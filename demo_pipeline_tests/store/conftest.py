"""What makes the tests of the store quick: no test cuts the power, and no server needs a rest."""

import asyncio
import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that sync are made and do nothing; pauses before a repeated call are short."""
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        await sleep(min(seconds, 0.01))

    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(asyncio, "sleep", rest)
