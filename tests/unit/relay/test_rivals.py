"""What a relay that waits for the lead says about the outbox of the leader."""

import asyncio
import json
from typing import Any, cast

import pytest

from oplog_relay.leader.rivals import Rivals
from oplog_relay.model.bindings import Bindings
from oplog_relay.model.settings import DatabaseSettings, Limits, RelaySettings


class Files:
    """An outbox whose file is another one from the second question on."""

    def __init__(self, asked: int) -> None:
        self._left = asked
        self._identities = ["sqlite 1 outbox"]
        self.is_asked = asyncio.Event()

    async def identity(self) -> str:
        self._left -= 1
        if not self._left:
            self.is_asked.set()
        return self._identities.pop() if self._identities else "sqlite 2 outbox"


class Lease:
    """A lease whose leader moves an outbox."""

    def __init__(self, identity: str) -> None:
        self._note = json.dumps({"outbox": identity})

    async def look_at_note(self, seconds: float) -> str:
        return self._note


@pytest.mark.parametrize("leader", ["sqlite 1 outbox", "sqlite 2 outbox"])
async def test_a_replaced_file_is_no_rival_while_the_leader_may_not_have_said_so(
    leader: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = RelaySettings(
        "orders", DatabaseSettings("sqlite:///a.db"), limits=Limits(meter=0.01)
    )
    rivals, files = Rivals(settings, lambda: False), Files(9)
    bindings = Bindings(cast(Any, files), cast(Any, Lease(leader)), cast(Any, None))
    running = asyncio.create_task(rivals.run(bindings))
    await files.is_asked.wait()
    running.cancel()
    assert rivals.place.identity == "sqlite 2 outbox"
    assert caplog.messages == []
