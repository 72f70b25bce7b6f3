"""A topic that is deleted and created again is empty, for every agent and every position."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.agents.topics import RESET, Line, Topic, numbered, received
from tests.kits.mongo.agents import wait_for
from tests.kits.servers.stores import StorePlace


@pytest.mark.parametrize(
    ("place", "rounds"), [("sqlite", 20), ("mongo-plain", 10)],
    indirect=["place"],
)  # fmt: skip
def test_an_agent_that_publishes_while_another_deletes_and_creates_revives_no_old_message(
    place: StorePlace, rounds: int, tmp_path: Path
) -> None:
    """Each message tells how often the topic had been deleted when its request began."""
    with (
        place.agent(tmp_path) as one,
        place.agent(tmp_path) as two,
        ThreadPoolExecutor() as pool,
    ):
        publishing, changing = Topic(one), Topic(two).create()
        # Rounds whose deletion was answered; rounds whose creation was answered.
        deleted, created = 0, 0
        stopped = Event()
        # (payload, creations answered at its begin) of each acknowledged message.
        acknowledged: list[tuple[str, int]] = []

        def publish() -> Iterator[int]:
            with closing(Line(publishing)) as line:
                for number in count():
                    if stopped.is_set():
                        return
                    payload, known = f"{deleted} {number}", created
                    status = line.publish([payload]).status
                    assert status in (200, 404), status
                    if status == 200:
                        acknowledged.append((payload, known))
                    yield status

        statuses = pool.submit(lambda: set(publish()))

        def are_messages_there() -> bool:
            if statuses.done():
                statuses.result()  # raises what has ended it
            return len(changing.poll(limit=3)) == 3

        def last_acknowledged() -> list[str]:
            """Return the messages whose requests began after the last creation was answered."""
            return [payload for payload, known in acknowledged if known == rounds]

        newest = ""
        try:
            for number in range(1, rounds + 1):
                wait_for("messages", are_messages_there)
                newest = changing.poll_all()[-1].id
                changing.delete()
                deleted = number
                changing.create()
                created = number
                wait_for("messages", are_messages_there)
                messages = changing.poll_all()
                assert messages[0].id > newest
                # One request may have begun before the deletion and ended after the creation.
                assert {message.payload.split()[0] for message in messages[1:]} == {str(number)}
            wait_for(
                "messages after the last creation",
                lambda: statuses.done() or len(last_acknowledged()) >= 2,
            )
        finally:
            stopped.set()
        assert 200 in statuses.result(DEADLINE)
        # Only the agent that has acknowledged the last message shows it at once.
        stored = publishing.poll_all()
        payloads = [message.payload for message in stored]
        assert changing.wait_for_payloads(*payloads) == stored
        assert len(set(payloads)) == len(payloads)
        kept = last_acknowledged()
        assert kept == [payload for payload in payloads if payload in set(kept)]


def test_streams_of_a_deleted_topic_end_and_old_positions_bring_reset_when_it_is_back(
    place: StorePlace, tmp_path: Path
) -> None:
    with place.agent(tmp_path) as one, place.agent(tmp_path) as two:
        topics = [Topic(one).create(ttl=100), Topic(two)]
        streams = [topic.stream("0") for topic in topics]
        topics[0].publish(*numbered(5))
        old = [received(stream.take(5)) for stream in streams]
        assert old[0] == old[1] == topics[1].poll_all()
        topics[1].delete()
        for stream in streams:
            with stream:
                assert list(stream.blocks()) == []
        for topic in topics:
            assert topic.try_stream(old[0][-1].id).status == 404
            assert topic.try_stream("0").status == 404
            assert topic.try_poll().status == 404
            assert topic.try_publish(["lost"]).status == 404
        topics[1].create()
        for topic in topics:
            assert topic.properties() == {"ttl": "604800"}
            assert topic.poll_all() == []
            assert [topic.has_gap(message.id) for message in old[0]] == [True] * 5
        # The topic is empty: reset comes alone, then what is published.
        resumed = [topic.stream(message.id) for topic in topics for message in old[0][::4]]
        resumed += [topic.stream("0") for topic in topics]
        topics[0].publish("new")
        new = topics[1].wait_for_payloads("new")
        assert new[0].id > old[0][-1].id
        for number, stream in enumerate(resumed):
            with stream:
                if number < 4:
                    assert stream.take(1) == [RESET]
                assert received(stream.take(1)) == new
        for topic in topics:
            with topic.stream(old[0][-1].id) as stream:
                reset, *rest = stream.take(2)
                assert (reset, received(rest)) == (RESET, new)
            answer = topic.try_poll(old[0][2].id)
            assert (answer.headers.get("oplog-gap"), len(answer.json)) == ("1", 1)
