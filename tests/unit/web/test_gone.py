"""A long read ends with its client."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from oplogd.web.http import gone
from oplogd.web.http.gone import while_connected


class Client:
    """A request whose client has gone after some looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    async def is_disconnected(self) -> bool:
        self.looks -= 1
        return self.looks < 0


async def test_a_read_whose_client_has_gone_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "_LOOK_SECONDS", 0.001)
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    client: Any = Client(looks=2)
    with pytest.raises(ClientDisconnect):
        await while_connected(client, endless())
    await ended.wait()


async def test_a_read_of_a_client_that_stays_gives_its_result() -> None:
    client: Any = Client(looks=0)
    assert await while_connected(client, asyncio.sleep(0, "result")) == "result"
