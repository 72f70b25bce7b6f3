"""Ids of messages ascend: within one ms, with clocks that go back, over restarts and deletions."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.kits.agents.topics import Topic, numbered
from tests.kits.clock.moved import MovedAgent, MovedClock, StoreClock
from tests.kits.servers.stores import StorePlace

# Ids that fit into a ms.
PER_MS = 65_536
TOTAL = 70_000
HOUR = 3_600


# contract/store shows it for each store.
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_70_000_messages_within_one_ms_have_ascending_ids(
    place: StorePlace, tmp_path: Path
) -> None:
    clock = StoreClock(place, tmp_path)
    clock.stop(0)
    sent = numbered(TOTAL)
    with clock.agent() as agent:
        topic = Topic(agent).create()
        clock.stop(1)
        for first in range(0, TOTAL, 2_000):
            topic.publish(*sent[first : first + 2_000])
        messages = topic.poll_all()
        assert [message.payload for message in messages] == sent
        ms = messages[0].ms
        assert [(message.ms, message.sequence) for message in messages] == [
            (ms + number // PER_MS, number % PER_MS) for number in range(TOTAL)
        ]
        assert len({message.id[20:] for message in messages}) == 1
        # A time skips or begins with all of its messages; an id is exact.
        assert topic.poll(ms, limit=1) == messages[:1]
        assert topic.poll(ms, limit=1, inclusive=False) == messages[PER_MS : PER_MS + 1]
        assert topic.poll(ms + 2) == []
        for at in (0, 1, PER_MS - 1, PER_MS, TOTAL - 2):
            after = topic.poll(messages[at].id, inclusive=False, limit=1)
            assert after == messages[at + 1 : at + 2]
            with topic.stream(messages[at].id) as stream:
                assert stream.take(1)[0].id == messages[at + 1].id


def test_ids_ascend_while_the_clock_goes_back_over_restarts_and_deletions(
    place: StorePlace, tmp_path: Path
) -> None:
    clock = StoreClock(place, tmp_path)
    ids: list[str] = []
    with clock.agent() as agent:
        topic = Topic(agent).create(ttl=10 * HOUR)
        topic.publish(*numbered(20, "before"))
        clock.set(-HOUR)
        topic.publish(*numbered(20, "back"))
        ids += [message.id for message in topic.poll_all()]
        assert len(ids) == 40
        agent.kill()
    clock.set(-2 * HOUR)
    with clock.agent() as agent:
        topic = Topic(agent)
        topic.publish(*numbered(20, "restarted"))
        messages = topic.poll_all()
        assert [message.id for message in messages[:40]] == ids
        ids = [message.id for message in messages]
        assert len(ids) == 60
        topic.delete()
        topic.create(ttl=10 * HOUR)
        assert topic.poll_all() == []
        agent.kill()
    # Deleted while no agent knew its ids.
    with clock.agent() as agent:
        topic = Topic(agent)
        topic.publish(*numbered(20, "again"))
        topic.delete()
        topic.create(ttl=10 * HOUR)
        topic.publish("last")
        messages = topic.poll_all()
        assert [message.payload for message in messages] == ["last"]
        assert messages[0].id > ids[-1]
        assert all(one < two for one, two in pairwise(ids))
        for id_ in (ids[0], ids[39], ids[-1]):
            assert topic.has_gap(id_)


def test_ids_of_two_agents_with_different_clocks_ascend(place: StorePlace, tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    clock.set(HOUR)
    with (
        place.agent(tmp_path, make=MovedAgent, environ=clock.environ) as ahead,
        place.agent(tmp_path) as behind,
    ):
        topics = [Topic(ahead).create(ttl=10 * HOUR), Topic(behind)]
        sent = numbered(60)
        with topics[1].stream() as stream:
            for number, payload in enumerate(sent):
                topics[number % 2].publish(payload)
            ids = [event.id for event in stream.take(len(sent))]
        assert all(one < two for one, two in pairwise(ids))
        for topic in topics:
            assert [message.id for message in topic.wait_for_payloads(*sent)] == ids
