"""Two agents serve one topic: all readers get one sequence, without a gap or a double."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE
from tests.kits.agents.topics import Line, Polled, Topic, ok, received, tail
from tests.kits.models.properties import rounds
from tests.kits.servers.stores import StorePlace

PUBLISHERS = 4


@pytest.mark.parametrize(
    ("place", "each"),
    [("sqlite", rounds(80, 400)), ("mongo-plain", rounds(50, 150))],
    indirect=["place"],
)
def test_two_agents_that_publish_under_polls_and_streams_give_all_readers_one_sequence(
    place: StorePlace, each: int, tmp_path: Path
) -> None:
    """Every fifth request carries two messages."""
    total = PUBLISHERS * (each + each // 5)
    with (
        place.agent(tmp_path) as one,
        place.agent(tmp_path) as two,
        ThreadPoolExecutor(PUBLISHERS + 5) as pool,
    ):
        topics = [Topic(one).create(), Topic(two)]

        def publish(number: int) -> None:
            with closing(Line(topics[number % 2])) as line:
                for count in range(each):
                    messages = [f"{number}-{count}"]
                    if count % 5 == 4:
                        messages.append(f"{number}-{count}b")
                    ok(line.publish(messages))

        def stream(topic: Topic) -> Callable[[], list[Polled]]:
            made = topic.stream()  # before the first message is published

            def read() -> list[Polled]:
                with made:
                    return received(made.take(total))

            return read

        reads = [stream(topic) for topic in topics]
        readers = [pool.submit(read) for read in reads]
        readers += [
            pool.submit(tail, total, *each_) for each_ in ([topics[0]], [topics[1]], topics)
        ]
        writers = [pool.submit(publish, number) for number in range(PUBLISHERS)]
        for writer in writers:
            writer.result(2 * DEADLINE)
        sequences = [reader.result(2 * DEADLINE) for reader in readers]
        sequence = sequences[0]
        assert len({message.id for message in sequence}) == total
        assert [message.id for message in sequence] == sorted(message.id for message in sequence)
        assert all(other == sequence for other in sequences)
        for number in range(PUBLISHERS):
            own = [each_.payload for each_ in sequence if each_.payload.startswith(f"{number}-")]
            assert own == [
                payload
                for count in range(each)
                for payload in ([f"{number}-{count}"] + [f"{number}-{count}b"] * (count % 5 == 4))
            ]
        for topic in topics:
            assert topic.poll_all() == sequence
            with topic.stream("0") as late:
                assert received(late.take(total)) == sequence
    with place.agent(tmp_path) as agent:
        assert Topic(agent).poll_all() == sequence


@pytest.mark.parametrize(
    ("place", "count"),
    [("sqlite", rounds(100, 500)), ("mongo-plain", rounds(40, 200))],
    indirect=["place"],
)
def test_a_poll_right_after_a_publish_has_the_message(
    place: StorePlace, count: int, tmp_path: Path
) -> None:
    """A stream keeps the topic in memory. Another agent publishes in between."""
    with place.agent(tmp_path) as one, place.agent(tmp_path) as two:
        topic, other = Topic(one).create(), Topic(two)
        with topic.stream() as stream, closing(Line(topic)) as line:
            last = None
            for number in range(count):
                if number % 5 == 0:
                    other.publish(f"other {number}")
                ok(line.publish([f"{number}"]))
                polled = [Polled(**each) for each in ok(line.poll_after(last)).json]
                assert [each.payload for each in polled] == ["other " + f"{number}"] * (
                    number % 5 == 0
                ) + [f"{number}"]
                last = polled[-1].id
            assert received(stream.take(count + count // 5)) == topic.poll_all()
