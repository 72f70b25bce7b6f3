"""Many replications leave others alone, even while the store answers none of their reads."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.kits.agents.agent import Agent
from tests.kits.agents.streams import ByteStream, operation
from tests.kits.contract.wire import Target, event_of
from tests.kits.store.filled import fill

REPLICATIONS = 60
LIVE = 500

HELD = """
import sys, threading
from oplogd.cli import main
from oplogd.store.sqlite.log import log

states = log.states
goes_on = threading.Event()

def held(*args, **options):
    print("a page begins", file=sys.stderr, flush=True)
    goes_on.wait()
    return states(*args, **options)

def wait():
    sys.stdin.read()
    goes_on.set()

log.states = held
threading.Thread(target=wait, daemon=True).start()
sys.exit(main())
"""


class HeldAgent(Agent):
    """Reads no page of states until its standard input ends."""

    program = ("-c", HELD)

    def read_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


async def test_replications_past_many_tombstones_delay_neither_status_nor_connects_nor_heartbeats(
    tmp_path: Path,
) -> None:
    await fill(tmp_path / "oplog.db", live=LIVE, deleted=20_000)
    with (
        HeldAgent(tmp_path, "--heartbeat", "1s", stdin=subprocess.PIPE) as agent,
        Target.of(agent).follow(types="never") as idle,
        Target.of(agent).follow("0", types="never") as busy,
        ExitStack() as stack,
    ):
        replications = [stack.enter_context(ByteStream(agent, "0")) for _ in range(REPLICATIONS)]
        agent.wait_log("a page begins")
        assert agent.status()["status"] == "OK"
        assert agent.request("GET", "/ready").status == 200
        live = [stack.enter_context(agent.follow()) for _ in range(3)]
        assert agent.post(operation("insert", "new")) == 204
        assert [stream.take(1)[0].operation["id"] for stream in live] == ["new"] * 3
        # More heartbeats than were sent before the first page.
        for stream in (idle, busy) * 3:
            stream.next_heartbeat()
        agent.read_on()
        for copy in replications:
            inserted = [event for event in copy.until_live() if event.event == "insert"]
            assert len(inserted) == LIVE
            assert [event.operation["id"] for event in copy.take(1)] == ["new"]
        assert [event_of(block) for block in busy.until("live")] == ["live"]
