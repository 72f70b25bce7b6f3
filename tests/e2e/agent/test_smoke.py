"""The shortest path through the agent: in by UDP and HTTP, out live, resumed and replicated."""

from pathlib import Path

from tests.kits.agents.agent import Agent, fold


def test_an_operation_travels_from_producer_to_consumer(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        with agent.follow() as live:
            assert (
                agent.post({"event": "insert", "type": "Video", "id": "a", "parents": ["user/1"]})
                == 204
            )
            agent.send_udp({"event": "UPDATE", "type": "video", "id": "a"})
            insert, update = live.take(2)
        assert (insert.event, insert.key, insert.operation["parents"]) == (
            "insert",
            "video/a",
            ["user/1"],
        )
        assert (update.event, update.key, update.operation["parents"]) == ("update", "video/a", [])
        with agent.follow(insert.id) as resumed:
            assert resumed.take(1) == [update]
        assert fold(agent.replicate().values()) == {"video/a": update.data}
        status = agent.status()
        assert (status["events_received"], status["events_ingested"], status["queue_size"]) == (
            2,
            2,
            0,
        )
        assert agent.stop() == 0
