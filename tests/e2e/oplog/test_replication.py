"""Replications are complete, consistent with concurrent operations, and can be cut anywhere."""

import http.client
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, Event, fold
from tests.kits.agents.streams import ByteStream, ms_of, offset_of, offsets, operation
from tests.kits.models.properties import rounds

FEW = 50


def test_an_object_is_in_the_replication_that_begins_right_after_its_insert_every_time(
    tmp_path: Path,
) -> None:
    headers = {"Content-Type": "application/json"}
    with Agent(tmp_path) as agent:
        producer = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE)
        for count in range(1, rounds(300, 1000) + 1):
            producer.request("POST", "/", json.dumps(operation("insert", f"n{count}")), headers)
            with producer.getresponse() as response:
                assert response.status == 204
            with ByteStream(agent, "0") as stream:
                sent = stream.read_past(b"\nevent: live\n")
            live = (count - 1) % FEW + 1
            assert sent.count(b"\nevent: insert\n") == live
            assert f'"type":"thing","id":"n{count}"}}\n\n'.encode() in sent
            if live == FEW:  # a replication of many more would only take longer
                ids = [f"n{number}" for number in range(count - FEW + 1, count + 1)]
                assert agent.post([operation("delete", id_) for id_ in ids]) == 200
        producer.close()


def test_more_than_ten_thousand_states_of_one_millisecond_replicate_completely(
    tmp_path: Path,
) -> None:
    things = [operation("insert", f"n{number}") for number in range(12_000)]
    keys = [f"thing/{thing['id']}" for thing in things]
    with Agent(tmp_path) as agent:
        assert agent.post(things) == 200
        with ByteStream(agent, "0") as stream:
            _, *states, mark = stream.until_live()
        assert [state.key for state in states] == keys
        (shared_ms,) = {state.id for state in states}
        assert (ms_of(mark.id), offset_of(mark.id)) == (int(shared_ms), 12_000)

        with ByteStream(agent, "0") as stream:
            cut = stream.take(1 + 5_000)
        assert cut[-1].id == shared_ms
        with ByteStream(agent, shared_ms) as stream:
            *again, mark_again = stream.until_live()
            assert [state.key for state in again] == keys
            assert mark_again == mark
            assert agent.post(operation("delete", "n0")) == 204
            (live,) = stream.take(1)
        assert (live.event, live.key, offset_of(live.id)) == ("delete", "thing/n0", 12_001)


def large(event: str, number: int) -> dict[str, Any]:
    return operation(
        event, f"n{number}", "thing", *(f"parent {digit}".ljust(160, ".") for digit in range(10))
    )


# This many large states, about 17 MB, exceed the buffers between an agent and a stalled consumer.
MORE_THAN_SOCKETS_HOLD = 10_000


@pytest.mark.parametrize(
    "cap",
    [256 * 1024 * 1024, 64 * 1024],
    ids=["the log holds them", "the start of the replication leaves the log"],
)
def test_operations_during_a_replication_follow_it_without_gap_or_disorder(
    tmp_path: Path, cap: int
) -> None:
    count = MORE_THAN_SOCKETS_HOLD
    with Agent(tmp_path, "--capped-collection-size", str(cap)) as agent:
        for first in range(0, count, 2000):
            assert (
                agent.post([large("insert", number) for number in range(first, first + 2000)])
                == 200
            )
        with ByteStream(agent, "0", receive_buffer=4096) as stream:
            events = stream.take(100)
            # Objects already sent, objects not yet sent, and new ones, in several milliseconds.
            for number in range(0, count, 250):
                batch = [operation("update", f"n{number}"), operation("delete", f"n{number + 1}")]
                assert agent.post([*batch, large("insert", count + number)]) == 200
            events += stream.until_live()
            assert agent.post(operation("insert", "last")) == 204
            written = count + 3 * (count // 250) + 1
            events += stream.until_offset(written)
            assert agent.stop() == 0
            assert list(stream.blocks()) == []
    at = next(index for index, event in enumerate(events) if event.event == "live")
    replicated, mark, followed = events[:at], events[at], events[at + 1 :]
    assert "live" not in {event.event for event in followed}
    assert offsets(followed) == list(range(offset_of(mark.id) + 1, written + 1))
    assert [event.event for event in events].count("reset") == 1
    if cap > count * 1600:
        assert offset_of(mark.id) == count  # the operations really came during the replication
        changed = [
            f"thing/n{first + number}" for first in range(0, count, 250) for number in range(2)
        ]
        sent = {event.key for event in replicated[1:]}
        left_to_the_log = [
            f"thing/n{number}" for number in range(count) if f"thing/n{number}" not in sent
        ]
        assert left_to_the_log
        assert set(left_to_the_log) < set(changed)
    else:
        assert offset_of(mark.id) > count
    expected = {f"thing/n{number}" for number in range(count) if number % 250 != 1}
    expected |= {f"thing/n{count + number}" for number in range(0, count, 250)} | {"thing/last"}
    state = fold(events)
    assert set(state) == expected
    assert {key for key, data in state.items() if json.loads(data)["parents"] == []} == {
        "thing/last",
        *(f"thing/n{number}" for number in range(0, count, 250)),
    }


GROUPS = 6


@pytest.mark.parametrize("cap", [1024 * 1024, 4096], ids=["whole log", "nearly no log"])
def test_a_replication_that_is_cut_after_any_number_of_events_loses_nothing_when_resumed(
    tmp_path: Path, cap: int
) -> None:
    with Agent(tmp_path, "--capped-collection-size", str(cap)) as agent:
        truth: dict[str, str] = {}
        with agent.follow() as live:

            def write(*operations: dict[str, Any]) -> None:
                assert agent.post(list(operations)) == 200
                fold(live.take(len(operations)), truth)

            for group in range(GROUPS):  # groups share their millisecond
                write(*(operation("insert", f"g{group}-{number}") for number in range(5)))
                write(operation("delete", f"g{group}-4"))
            cuts = 0
            while True:
                with ByteStream(agent, "0") as stream:
                    whole = stream.until_live()
                if cuts > len(whole):
                    break
                with ByteStream(agent, "0") as stream:
                    seen = stream.take(cuts)
                change_some(write, truth, f"first-{cuts}")
                with ByteStream(agent, last_id(seen)) as stream:
                    resumed = catch_up(stream, newest_id(agent))
                seen += resumed[: random.Random(cuts).randint(0, len(resumed))]
                change_some(write, truth, f"second-{cuts}")
                with ByteStream(agent, last_id(seen)) as stream:
                    seen += catch_up(stream, newest_id(agent))
                assert fold(seen) == truth, f"cut after {cuts} events"
                cuts += 1
        assert cuts == GROUPS * 4 + 2 + 1  # after nothing, reset, each object and live


def change_some(write: Callable[..., None], truth: dict[str, str], name: str) -> None:
    """Change the oldest object, the newest and one between; keep the number of objects."""
    ids = [key.removeprefix("thing/") for key in truth]
    write(
        operation("insert", name),
        operation("delete", ids[0]),
        operation("update", ids[len(ids) // 2]),
        operation("delete", ids[-1]),
        operation("insert", ids[-1]),
    )


def last_id(seen: list[Event]) -> str:
    return seen[-1].id if seen else "0"


def newest_id(agent: Agent) -> str:
    newest: str = agent.status()["store"]["newest_id"]
    return newest


def catch_up(stream: ByteStream, newest_id: str) -> list[Event]:
    """Read to the end of the log; nothing if the stream begins there."""
    if stream.last_id == newest_id:
        return []
    events = stream.take(1)
    while events[-1].id != newest_id:
        events += stream.take(1)
    return events
