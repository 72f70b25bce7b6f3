"""Event streams of an agent, and the ids in them."""

from collections.abc import Mapping
from typing import Any

from tests.kits.agents.agent import Agent
from tests.kits.sse.stream import Event, Stream


class ByteStream(Stream):
    """A stream of an agent, for tests that read many streams, long ones, or slowly."""

    def __init__(
        self,
        agent: Agent,
        last_event_id: str | None = None,
        query: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(agent.url, last_event_id, query, **options)

    def until_live(self) -> list[Event]:
        return self.until("live")

    def until_offset(self, offset: int) -> list[Event]:
        """Return the blocks up to and with the operation at ``offset``."""
        events = []
        for event in self.blocks():
            events.append(event)
            if event.event != "live" and offset_of(event.id) == offset:
                return events
        raise AssertionError(f"the stream ended after {len(events)} events: {events[-3:]}")


def parse(stream: bytes) -> list[Event]:
    """Return whole blocks, without comments, as events."""
    return [Event.parse(block + b"\n\n") for block in stream.split(b"\n\n")[:-1]]


def offset_of(event_id: str) -> int:
    """Return the offset in an event id; 0 for a replication id."""
    return int(event_id[12:], 16) if len(event_id) == 24 else 0


def ms_of(event_id: str) -> int:
    return (
        int(event_id[:8], 16) * 1000 + int(event_id[8:12], 16)
        if len(event_id) == 24
        else int(event_id)
    )


def offsets(events: list[Event]) -> list[int]:
    """Return the offsets of operations; fail on any other block."""
    assert all(
        len(event.id) == 24 and event.event in ("insert", "update", "delete") for event in events
    )
    return [offset_of(event.id) for event in events]


def operation(event: str, id_: str, type_: str = "thing", *parents: str) -> dict[str, Any]:
    return {"event": event, "type": type_, "id": id_, "parents": list(parents)}
