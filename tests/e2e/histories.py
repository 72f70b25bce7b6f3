"""Writing histories, and how an agent answers the ids of each."""

from collections.abc import Iterable

from tests.agents import Agent, Event
from tests.e2e.streams import ByteStream, operation


def write(agent: Agent, *ids: str) -> list[Event]:
    """Insert objects, each with its own commit; what a consumer sees of them."""
    with ByteStream(agent) as stream:
        for id_ in ids:
            assert agent.post(operation("insert", id_)) == 204
        return stream.take(len(ids))


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def replication_ids(agent: Agent) -> set[str]:
    return {state.id for state in agent.replicate().values()}


def assert_resumes(agent: Agent, log: list[Event]) -> None:
    """Each id of this log still stands for its place in it."""
    for index, event in enumerate(log[:-1]):
        with ByteStream(agent, event.id) as stream:
            assert stream.take(len(log) - index - 1) == log[index + 1 :]


def assert_reset(agent: Agent, foreign_ids: Iterable[str], objects: list[str]) -> None:
    """Each id brings ``reset``, every object there is, and ``live``."""
    asked = 0
    for id_ in foreign_ids:
        with ByteStream(agent, id_) as stream:
            reset, *states, _ = stream.until_live()
        assert (reset.event, reset.id) == ("reset", "1"), id_
        assert [(state.event, state.operation["id"]) for state in states] == [
            ("insert", name) for name in objects
        ], id_
        asked += 1
    assert asked > 0


def ids_of(events: list[Event]) -> list[str]:
    return [event.id for event in events]


def assert_accepted(agent: Agent, ids: Iterable[str]) -> None:
    """Each id is known: what follows it comes without ``reset``."""
    asked = 0
    for id_ in ids:
        with ByteStream(agent, id_) as stream:
            first = stream.take(1)[0]
        assert first.event != "reset", id_
        asked += 1
    assert asked > 0
