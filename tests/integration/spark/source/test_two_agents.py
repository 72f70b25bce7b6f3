"""A query over two agents of one store, which are killed."""

import socket
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.spark.source.streams import StreamSink, stream_of
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.contract.wire import wait_until
from tests.kits.servers.ports import free_port
from tests.kits.spark.helpers import StorePlace, operation

# Attempts at an address while no agent is there: each closed as a broken connection is.
_ATTEMPTS = 3


@pytest.mark.parametrize("place", ["mongo-plain"], indirect=True)
def test_a_query_loses_and_doubles_nothing_while_its_agents_are_killed(
    spark: SparkSession, tmp_path: Path, place: StorePlace
) -> None:
    ports = free_port(), free_port()
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with ExitStack() as stack:

        def start(number: int) -> Agent:
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            listen = ("--listen", f"127.0.0.1:{ports[number]}")
            return stack.enter_context(place.agent(folder, *listen))

        posted = 0

        def post(agent: Agent) -> None:
            nonlocal posted
            rows = [operation("insert", "video", str(posted + n)) for n in range(100)]
            assert agent.post(rows) == 200
            posted += len(rows)

        def written() -> bool:
            return len(table.rows()) == posted

        first, second = start(0), start(1)
        post(first)
        table = StreamSink()
        options = {"agent": ",".join(urls), "start": "oldest", "maxOffsetsPerTrigger": "70"}
        query = table.start(stream_of(spark, options), tmp_path / "checkpoint")
        try:
            assert wait_until(lambda: table.has_batches and written())
            first.kill()
            post(second)
            assert wait_until(written)
            second.kill()
            _refuse(ports[0], _ATTEMPTS)
            assert query.isActive
            second = start(1)
            post(second)
            assert wait_until(written)
            assert query.isActive, query.exception()
        finally:
            query.stop()
    counts = Counter(row.key for row in table.rows())
    assert counts == {f"video/{n}": 1 for n in range(posted)}


def _refuse(port: int, times: int) -> None:
    """Wait until a client has tried an address, and close its connections."""
    with closing(socket.socket()) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        listening.settimeout(DEADLINE)
        for _ in range(times):
            listening.accept()[0].close()
