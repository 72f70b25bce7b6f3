"""The history of a real project arrives unchanged by every way of sending."""

import asyncio
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oplogd.clock import now_ms
from oplogd.store.sqlite import SqliteStore
from tests.e2e.oplog.append_process import decode_operations
from tests.kits.agents.agent import Agent, Event, fold
from tests.kits.agents.streams import ByteStream, ms_of, offset_of, offsets
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.agents import wait_for

OPERATIONS = 7354
UDP_IN_FLIGHT = 500
BATCH = 1000


class History(NamedTuple):
    """``lines``: as producers send them. ``live``: the objects that remain, by key."""

    lines: list[bytes]
    operations: list[dict[str, Any]]
    live: dict[str, dict[str, Any]]


def objects_by_key(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    by_key = {f"{one['type']}/{one['id']}": one for one in objects}
    assert len(by_key) == len(objects)
    return by_key


@pytest.fixture(scope="module")
def history(shared_data: Path) -> History:
    lines = gzip.decompress((shared_data / "flask/ops.jsonl.gz").read_bytes()).splitlines()
    dump = gzip.decompress((shared_data / "flask/dump.jsonl.gz").read_bytes()).splitlines()
    live = objects_by_key([json.loads(line) for line in dump])
    assert (len(lines), len(live)) == (OPERATIONS, 236)
    return History(lines, [json.loads(line) for line in lines], live)


def by_udp(agent: Agent, lines: list[bytes]) -> None:
    sent = 0
    for first in range(0, len(lines), UDP_IN_FLIGHT):
        datagrams = lines[first : first + UDP_IN_FLIGHT]
        agent.send_udp(*datagrams)
        sent += len(datagrams)
        agent.wait_status(events_received=sent)


def as_arrays(agent: Agent, lines: list[bytes]) -> None:
    for first in range(0, len(lines), BATCH):
        batch = lines[first : first + BATCH]
        answer = agent.request("POST", "/", b"[" + b",".join(batch) + b"]")
        assert (answer.status, answer.json) == (200, {"ingested": len(batch)})


def as_ndjson(agent: Agent, lines: list[bytes]) -> None:
    for first in range(0, len(lines), BATCH):
        batch = lines[first : first + BATCH]
        answer = agent.request(
            "POST", "/ops", b"\n".join(batch), {"Content-Type": "application/x-ndjson"}
        )
        assert (answer.status, answer.json) == (200, {"ingested": len(batch)})


def as_sent(events: list[Event]) -> list[dict[str, Any]]:
    return [{"event": event.event, **event.operation} for event in events]


@pytest.mark.parametrize("send", [by_udp, as_arrays, as_ndjson])
def test_the_whole_history_arrives_in_order_and_its_replication_equals_the_dump(
    tmp_path: Path, history: History, send: Callable[[Agent, list[bytes]], None]
) -> None:
    with Agent(tmp_path) as agent, ByteStream(agent) as live:
        send(agent, history.lines)
        status = agent.wait_status(events_ingested=OPERATIONS, queue_size=0)
        received = (
            "events_received",
            "events_error",
            "events_discarded",
            "events_dropped_kernel",
            "queue_bytes",
        )
        assert [status[name] for name in received] == [OPERATIONS, 0, 0, 0, 0]

        followed = live.until_offset(OPERATIONS)
        assert as_sent(followed) == history.operations
        assert offsets(followed) == list(range(1, OPERATIONS + 1))

        with ByteStream(agent, "0") as stream:
            reset, *states, mark = stream.until_live()
        assert (reset.event, reset.id, mark.event, mark.id) == (
            "reset",
            "1",
            "live",
            followed[-1].id,
        )
        assert {state.event for state in states} == {"insert"}
        assert objects_by_key([state.operation for state in states]) == history.live

        # The status counts objects from time to time.
        wait_for("all objects", lambda: agent.status()["store"]["states"] == 592)
        status = agent.status()
        assert status["events_sent"] == OPERATIONS + len(history.live)
        assert status["store"]["ops"] == OPERATIONS
        assert status["store"]["newest_id"] == followed[-1].id


def test_invalid_operations_and_ones_beyond_the_queue_are_counted_exactly(
    tmp_path: Path, history: History
) -> None:
    room = 1000
    with Agent(tmp_path, "--max-queued-events", str(room)) as agent:
        as_arrays(agent, history.lines[:room])
        agent.send_udp(*history.lines[room : room + 200], *[b"{}"] * 30)
        agent.wait_status(events_received=room + 230)
        too_many = agent.request("POST", "/", b"[" + b",".join(history.lines[: room + 1]) + b"]")
        invalid = agent.request("POST", "/", b"[" + b",".join([*history.lines[:49], b"{}"]) + b"]")
        assert (too_many.status, invalid.status) == (413, 400)
        assert [bad["line"] for bad in invalid.json["errors"]] == [50]
        status = agent.wait_status(queue_size=0, events_ingested=room + 200)
        assert status["events_error"] == 30 + 50
        assert status["events_discarded"] == room + 1
        assert status["events_received"] == (room + 200) + (30 + 50) + (room + 1)
        assert status["store"]["ops"] == room + 200


@pytest.mark.parametrize("ring_size", [65536, 16], ids=["from the ring", "from the store"])
def test_resuming_at_any_of_40_ids_gives_exactly_the_operations_after_it(
    tmp_path: Path, history: History, ring_size: int
) -> None:
    with Agent(tmp_path, "--ring-size", str(ring_size)) as agent:
        with ByteStream(agent) as live:
            as_arrays(agent, history.lines)
            whole = live.read_past(history_end(history))
        frames = whole.split(b"\n\n")[:-1]
        assert len(frames) == OPERATIONS
        starts = [0]
        for frame in frames:
            starts.append(starts[-1] + len(frame) + 2)

        resumed = random.Random(20100406).sample(range(1, OPERATIONS + 1), 40)
        streams = []
        for offset in resumed:
            stream = ByteStream(agent, frames[offset - 1][4:28].decode())
            streams.append(stream)
            assert stream.read(len(whole) - starts[offset]) == whole[starts[offset] :], offset
        assert agent.post({"event": "insert", "type": "end", "id": "of all"}) == 204
        for stream, offset in zip(streams, resumed, strict=True):
            (end,) = stream.take(1)  # and nothing else before it
            assert (end.key, offset_of(end.id)) == ("end/of all", OPERATIONS + 1), offset
            stream.close()


def history_end(history: History) -> bytes:
    """Return the bytes of the last operation on the wire, which no other operation has."""
    *_, last = history.operations
    end = json.dumps(
        {name: last[name] for name in ("timestamp", "parents", "type", "id")}, separators=(",", ":")
    )
    assert sum(operation == last for operation in history.operations) == 1
    return f"event: {last['event']}\ndata: {end}".encode()


def test_ids_that_left_the_log_are_bridged_by_the_states_since_their_second(
    tmp_path: Path, history: History
) -> None:
    """The history spans ten minutes; the log then holds half of it."""
    stored, held = 7000, 3500
    began = now_ms() - 700_000
    asyncio.run(write_slowly(tmp_path / "oplog.db", history.lines[:stored], began, 900))
    with Agent(tmp_path) as agent:
        first_id = agent.status()["store"]["oldest_id"]
        with ByteStream(agent, first_id) as stream:
            log = stream.until_offset(stored)
        first = Event(first_id, "insert", "")
        assert offsets([first, *log]) == list(range(1, stored + 1))
        assert agent.stop() == 0

    cap = sum(len(event.key.encode()) + len(event.data.encode()) + 32 for event in log[-held:])
    with Agent(tmp_path, "--capped-collection-size", str(cap)) as agent:
        status = agent.status()["store"]
        assert (status["ops"], offset_of(status["oldest_id"])) == (held, stored - held + 1)

        streams = []
        chosen = random.Random(7).sample(range(3, stored - held), 15)
        for offset in (*chosen, 2, stored - held):
            seen = [event for event in log if offset_of(event.id) <= offset]
            stream = ByteStream(agent, seen[-1].id)
            *states, mark = stream.until_live()
            second = ms_of(seen[-1].id) // 1000 * 1000
            assert [(s.id, s.event, s.data) for s in states] == states_since(log, second), offset
            assert mark.id == log[-1].id
            streams.append((stream, fold(states, fold([first_event(history, first_id), *seen]))))

        as_arrays(agent, history.lines[stored:])
        for stream, state in streams:
            rest = stream.until_offset(OPERATIONS)
            stream.close()
            assert as_sent(rest) == history.operations[stored:]
            final = fold(rest, state)
            assert {key: json.loads(data) for key, data in final.items()} == history.live
        assert {key: event.operation for key, event in agent.replicate().items()} == history.live


async def write_slowly(path: Path, lines: list[bytes], began: int, step: int) -> None:
    """Append ten operations per step of the clock. Times are in ms."""
    clock = VirtualClock(began)
    store = SqliteStore(path, clock=clock.dates)
    await store.open()
    for at in range(0, len(lines), 10):
        clock.ms = began + at // 10 * step
        await store.append(decode_operations(b"[" + b",".join(lines[at : at + 10]) + b"]"))
    await store.close()


def first_event(history: History, first_id: str) -> Event:
    operation = history.operations[0]
    return Event(first_id, operation["event"], json.dumps(operation))


def states_since(log: list[Event], ms: int) -> list[tuple[str, str, str]]:
    """Return the expected states: the last operation of each object since ``ms``, oldest first."""
    last = {event.key: event for event in log}
    changed = sorted(
        (event for event in last.values() if ms_of(event.id) >= ms), key=lambda event: event.id
    )
    return [
        (str(ms_of(event.id)), "delete" if event.event == "delete" else "insert", event.data)
        for event in changed
    ]
