"""Fixtures that make the tests of the store quick."""

import asyncio
import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces `fsync` by a function that does nothing, and shortens pauses between retries.

    No test cuts the power, and no server needs time to recover.
    """
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        await sleep(min(seconds, 0.01))

    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(asyncio, "sleep", rest)
