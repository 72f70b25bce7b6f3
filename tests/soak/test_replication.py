"""Replications beside live operations: every consumer gets every operation, round after round."""

import asyncio
from pathlib import Path

from tests.bench.bench_replication import HEARTBEAT, measure, replications
from tests.kits.agents.agent import Agent
from tests.kits.store.filled import fill
from tests.soak.conftest import Rounds

CONSUMERS, RATE, SECONDS, REPLICATIONS = 10, 200, 20, 50


async def test_replications_under_load_reach_live_and_no_consumer_misses_an_operation(
    tmp_path: Path, rounds: Rounds
) -> None:
    await fill(tmp_path / "oplog.db", live=50_000, deleted=1_000_000)
    with Agent(tmp_path, "--heartbeat", str(HEARTBEAT)) as agent:
        for number in rounds():
            with replications(agent.port, REPLICATIONS) as end:
                found = await measure(agent, CONSUMERS, RATE, SECONDS, replicates=True)
                _, live = end()
            assert found.operations == CONSUMERS * RATE * SECONDS
            assert not found.trouble
            assert live == REPLICATIONS
            status = await asyncio.to_thread(agent.wait_status, clients=0)
            assert status["events_ingested"] == number * RATE * SECONDS
