"""The log line of a sender whose operations have unknown members."""

from pathlib import Path

from tests.kits.agents.agent import Agent

GIVEN = {"event": "insert", "type": "video", "id": "a", "data": {"secret": "x"}}


def test_a_sender_by_udp_and_http_has_one_line_with_names_and_no_content(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        for _ in range(3):
            agent.send_udp(GIVEN)
        agent.wait_status(events_with_ignored_members=3)
        assert agent.post(GIVEN) == 204
        assert agent.stop() == 0
    lines = [line for line in agent.log if "ignoring" in line]
    assert [line.partition("ignoring ")[2] for line in lines] == [
        "unknown members of operations from 127.0.0.1: data\n"
    ]
    assert not any("secret" in line for line in agent.log)
