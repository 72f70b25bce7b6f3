"""The state file of a topic's reader tells its isolation, so that another one skips no record."""

from pathlib import Path

import pytest

from oplogc import StateFileError
from oplogc.topics import Isolation, ReceivedMessage, TopicConsumer, Topics
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.contract.wire import wait_until

ID = "0000019aa0a36b00000000000000000000000000"
OPERATION = "545b55c7f095528dd0f3863c"


async def test_the_state_file_of_a_committed_reader_is_refused_to_others(tmp_path: Path) -> None:
    """A record that was written before the position, and is not committed, would be skipped."""
    state = tmp_path / "state"
    with Agent(tmp_path) as agent, Topics(agent.url) as topics:
        topics.create("t")
        with topics.transaction() as transaction:
            transaction.write("t", "record")
            assert wait_until(lambda: bool(topics.poll("t", isolation="read_uncommitted").messages))
            topics.publish("t", "plain").result(DEADLINE)
            async with topics.stream(
                "t", start="0", isolation="read_committed", state_file=state
            ) as consumer:
                event = await anext(consumer)
                assert isinstance(event, ReceivedMessage)
                assert event.text == "plain"
                consumer.ack(event)
            kept = f"{event.event_id} read_committed"
            assert state.read_text() == kept
            with pytest.raises(StateFileError, match="with isolation read_committed, which this"):
                topics.stream("t", isolation="read_uncommitted", state_file=state)
            assert state.read_text() == kept
        async with topics.stream("t", isolation="read_committed", state_file=state) as consumer:
            event = await anext(consumer)
            assert isinstance(event, ReceivedMessage)
            assert event.text == "record"


@pytest.mark.parametrize(
    ("topic", "isolation", "content", "is_accepted"),
    [
        ("t", "read_committed", ID, True),
        ("t", "read_committed", f"{ID} read_committed", True),
        ("t", "read_committed", f"{ID} read_committed\n", True),
        ("t", "read_uncommitted", ID, True),
        ("t", "read_uncommitted", f"{ID} read_committed", False),
        ("t", "read_committed", f"{ID} repeatable_read", False),
        ("t", "read_committed", " read_committed", False),
        ("system/oplog", "read_committed", OPERATION, True),
        ("system/oplog", "read_committed", f"{OPERATION} read_committed", False),
    ],
)
def test_a_state_file_without_an_isolation_is_of_anybody(
    tmp_path: Path, topic: str, isolation: Isolation, content: str, is_accepted: bool
) -> None:
    """It is of an uncommitted reader, or of an older version of the client."""
    path = tmp_path / "state"
    path.write_text(content)
    if is_accepted:
        with TopicConsumer(
            "http://127.0.0.1:9", topic, isolation=isolation, state_file=path
        ) as consumer:
            assert consumer.position == content.split()[0]
    else:
        with pytest.raises(StateFileError, match="Move it away"):
            TopicConsumer("http://127.0.0.1:9", topic, isolation=isolation, state_file=path)
        assert path.read_text() == content
