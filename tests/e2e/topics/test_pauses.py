"""A writer that stops for longer than messages live loses nothing that it acknowledged."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.agents.topics import Line, Polled, Topic, ok, received
from tests.kits.clock.moved import StoreClock
from tests.kits.mongo.agents import wait_for
from tests.kits.servers.stores import StorePlace

TTL = 30
STEP = 100
# Several sweeps.
PAUSE_SECONDS = 0.5


@pytest.mark.parametrize(
    ("place", "pauses"), [("sqlite", 5), ("mongo-plain", 5)],
    indirect=["place"],
)  # fmt: skip
def test_an_agent_stopped_while_the_front_passes_its_head_loses_nothing_acknowledged(
    place: StorePlace, pauses: int, tmp_path: Path
) -> None:
    """While it stands, the messages that another agent publishes expire and are swept."""
    chance = random.Random(12)
    clock = StoreClock(place, tmp_path)
    acknowledged: list[str] = []
    seen: list[Polled] = []
    ended = Event()
    with (
        clock.agent("--topic-cleanup", "200ms") as paused,
        clock.agent("--topic-cleanup", "200ms") as other,
        ThreadPoolExecutor() as pool,
    ):
        mine, theirs = Topic(paused).create(ttl=TTL), Topic(other)

        def publish() -> None:
            with closing(Line(mine)) as line:
                for number in count():
                    if ended.is_set():
                        return
                    ok(line.publish([f"paused-{number}"]))
                    acknowledged.append(f"paused-{number}")

        def publish_beside(payload: str) -> bool:
            """Return False if the stopped agent locks the store."""
            answer = theirs.try_publish([payload])
            assert answer.status in (200, 503)
            if answer.status == 200:
                acknowledged.append(payload)
            return answer.status == 200

        def consume() -> None:
            while not seen or seen[-1].payload != "end":
                seen.extend(received(stream.take(1)))

        def all_seen() -> bool:
            return consuming.done() or set(acknowledged) <= {each.payload for each in seen}

        with theirs.stream() as stream:
            consuming, publishing = pool.submit(consume), pool.submit(publish)
            steps = 0
            try:
                for attempt in count():
                    enough = len(acknowledged) + chance.randrange(3, 10)
                    wait_for(
                        "messages",
                        lambda enough=enough: publishing.done() or len(acknowledged) >= enough,
                    )
                    paused.freeze()
                    if publish_beside(f"before-{attempt}"):
                        wait_for("the consumer", all_seen)
                        steps += 1
                        clock.move(STEP)
                        assert publish_beside(f"after-{attempt}")
                        Event().wait(PAUSE_SECONDS)
                    paused.thaw()
                    if steps == pauses:
                        break
            finally:
                ended.set()
                paused.thaw()
            publishing.result(DEADLINE)
            theirs.publish("end")
            consuming.result(DEADLINE)
    ids = [message.id for message in seen]
    assert ids == sorted(set(ids))
    payloads = [message.payload for message in seen]
    assert set(acknowledged) <= set(payloads)
    assert len(set(payloads)) == len(payloads)
