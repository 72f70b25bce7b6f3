"""Messages are gone when their time to live is over, before any sweep, and do not come back."""

import time
from pathlib import Path

from tests.kits.agents.agent import DEADLINE
from tests.kits.agents.topics import RESET, Topic, received
from tests.kits.clock.moved import StoreClock
from tests.kits.servers.stores import StorePlace

HOUR = 3_600


def test_messages_are_gone_a_second_after_their_time_to_live_before_any_sweep(
    place: StorePlace, tmp_path: Path
) -> None:
    clock = StoreClock(place, tmp_path)
    clock.stop(0)
    with clock.agent() as agent:
        topic = Topic(agent).create(ttl=5)
        with topic.stream() as live:
            clock.stop(HOUR)
            topic.publish("a", "b", "c")
            clock.stop(HOUR + 3)
            topic.publish("d")
            seen = received(live.take(4))
            assert topic.poll_all() == seen
            clock.stop(HOUR + 6)
            assert topic.poll_all() == seen[3:]
            assert topic.poll(seen[1].id) == seen[3:]
            assert topic.poll(seen[1].ms) == seen[3:]
            assert [topic.has_gap(message.id) for message in seen] == [True, True, False, False]
            with topic.stream("0") as stream:
                assert received(stream.take(1)) == seen[3:]
            with topic.stream(seen[0].id) as stream:
                reset, *rest = stream.take(2)
                assert (reset, received(rest)) == (RESET, seen[3:])
            with topic.stream(seen[2].id) as stream:
                assert received(stream.take(1)) == seen[3:]
            clock.stop(HOUR + 9)
            assert topic.poll_all() == []
            assert topic.has_gap(seen[2].id)
            assert not topic.has_gap(seen[3].id)
            topic.publish("e")
            with topic.stream(seen[2].id) as stream:
                reset, *rest = stream.take(2)
                assert (reset, received(rest)) == (RESET, topic.poll_all())
            # A live stream learns nothing of expiry: it has all messages already.
            assert received(live.take(1)) == topic.poll_all()


def test_expired_messages_do_not_come_back_when_the_time_to_live_is_raised(
    place: StorePlace, tmp_path: Path
) -> None:
    clock = StoreClock(place, tmp_path)
    clock.stop(0)
    with (
        clock.agent() as agent,
        clock.agent() as other,
    ):
        topic = Topic(agent).create(ttl=5)
        topic.publish("old 1", "old 2")
        old = Topic(other).wait_for_payloads("old 1", "old 2")
        clock.stop(4)
        topic.publish("kept")
        clock.stop(6)
        topic.change(ttl=10 * HOUR)
        for each in (topic, Topic(other)):
            each.wait_for_payloads("kept")
            assert each.has_gap(old[0].id)
        topic.change()  # the default, seven days
        assert topic.properties() == {"ttl": "604800"}
        assert topic.payloads() == ["kept"]
        clock.stop(HOUR)
        assert topic.payloads() == ["kept"]
        topic.change(ttl=5)
        assert topic.payloads() == []
        topic.change(ttl=20 * HOUR)
        assert topic.payloads() == []
    with clock.agent() as agent:
        topic = Topic(agent)
        assert topic.properties() == {"ttl": str(20 * HOUR)}
        assert topic.payloads() == []
        topic.publish("new")
        with topic.stream(old[1].id) as stream:
            reset, *rest = stream.take(2)
        assert (reset, received(rest)) == (RESET, topic.poll_all())


def test_a_message_has_its_own_time_to_live_at_most_the_topics(
    place: StorePlace, tmp_path: Path
) -> None:
    clock = StoreClock(place, tmp_path)
    clock.stop(0)
    with clock.agent() as agent:
        topic = Topic(agent).create(ttl=100)
        short = {"payload": "short", "ttl": 5}
        topic.publish("a", short, "b", {"payload": "long", "ttl": 1_000}, "c", short)
        ids = [message.id for message in topic.poll_all()]
        assert len(ids) == 6
        clock.stop(6)
        assert topic.payloads() == ["a", "b", "long", "c"]
        # Their sender chose that: the others are no gap.
        assert not topic.has_gap(ids[0])
        with topic.stream(ids[0]) as stream:
            assert [message.payload for message in received(stream.take(3))] == ["b", "long", "c"]
        assert topic.poll(ids[1], limit=1)[0].payload == "b"
        assert topic.poll(ids[4], inclusive=False) == []
        topic.publish("d")
        with topic.stream(ids[4]) as stream:
            assert [message.payload for message in received(stream.take(1))] == ["d"]
        clock.stop(101)
        assert topic.payloads() == ["d"]


def test_the_default_time_to_live_stays_with_the_store_until_the_flag_changes_it(
    place: StorePlace, tmp_path: Path
) -> None:
    clock = StoreClock(place, tmp_path)
    clock.stop(0)
    names = ("tests/default", "tests/own")
    with clock.agent("--topic-ttl", "5s") as agent:
        default, own = (Topic(agent, name) for name in names)
        default.create()
        own.create(ttl=HOUR)
        default.publish("a")
        own.publish("a")
        assert (default.payloads(), own.payloads()) == (["a"], ["a"])
    with clock.agent() as agent:
        default, own = (Topic(agent, name) for name in names)
        assert (default.properties(), own.properties()) == ({"ttl": "5"}, {"ttl": str(HOUR)})
        clock.stop(6)
        assert (default.payloads(), own.payloads()) == ([], ["a"])
        default.publish("b")
    with clock.agent("--topic-ttl", "2h") as agent:
        default, own = (Topic(agent, name) for name in names)
        assert (default.properties(), own.properties()) == (
            {"ttl": str(2 * HOUR)}, {"ttl": str(HOUR)},
        )  # fmt: skip
        assert (default.payloads(), own.payloads()) == (["b"], ["a"])
        clock.stop(HOUR + 1)
        assert (default.payloads(), own.payloads()) == (["b"], [])
        own.change()
        assert (own.properties(), own.payloads()) == ({"ttl": str(2 * HOUR)}, [])


def test_a_message_is_gone_by_the_machines_own_clock(place: StorePlace, tmp_path: Path) -> None:
    with place.agent(tmp_path) as agent:
        topic = Topic(agent).create(ttl=1)
        topic.publish("a")
        deadline = time.monotonic() + DEADLINE
        while topic.poll_all():
            assert time.monotonic() < deadline, "still there"
            time.sleep(0.02)
