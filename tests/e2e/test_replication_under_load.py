"""Many replications leave others alone: ``bench_replication.py`` with small numbers."""

from pathlib import Path

from tests.bench.bench_replication import HEARTBEAT, fill, measure, replications
from tests.kits.agents.agent import Agent

GENEROUS = 20

# Shorter durations mean nothing on a busy machine.
FLOOR_MS = 50.0


async def test_replications_past_many_tombstones_delay_neither_status_nor_connects_nor_heartbeats(
    tmp_path: Path,
) -> None:
    await fill(tmp_path / "oplog.db", live=5_000, deleted=1_000_000)
    with Agent(tmp_path, "--heartbeat", str(HEARTBEAT)) as agent:
        alone = await measure(agent, consumers=3, rate=100, seconds=1.5)
        with replications(agent.port, 60) as end:
            beside = await measure(agent, consumers=3, rate=100, seconds=3, replicates=True)
            _, live = end()
    assert alone.operations == 3 * 150
    assert beside.operations == 3 * 300
    assert not beside.trouble
    assert beside.silence < 3
    assert beside.status_ms < GENEROUS * max(alone.status_ms, FLOOR_MS)
    assert beside.connect_ms < GENEROUS * max(alone.connect_ms, FLOOR_MS)
    assert beside.p99_ms < GENEROUS * max(alone.p99_ms, FLOOR_MS)
    assert live == 60
