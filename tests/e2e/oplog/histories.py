"""Writes histories, and checks an agent's answers to their ids."""

from collections.abc import Iterable

from tests.kits.agents.agent import Agent, Event
from tests.kits.agents.streams import ByteStream, operation


def write(agent: Agent, *ids: str) -> list[Event]:
    """Insert objects, each in its own commit. Return the events that a consumer gets."""
    with ByteStream(agent) as stream:
        for id_ in ids:
            assert agent.post(operation("insert", id_)) == 204
        return stream.take(len(ids))


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def replication_ids(agent: Agent) -> set[str]:
    return {state.id for state in agent.replicate().values()}


def assert_resumes(agent: Agent, log: list[Event]) -> None:
    """Assert that each id of this log resumes at its place."""
    for index, event in enumerate(log[:-1]):
        with ByteStream(agent, event.id) as stream:
            assert stream.take(len(log) - index - 1) == log[index + 1 :]


def assert_reset(agent: Agent, foreign_ids: Iterable[str], objects: list[str]) -> None:
    """Assert that each id brings ``reset``, exactly these objects, and ``live``."""
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
    """Assert that each id is known: it brings no ``reset``."""
    asked = 0
    for id_ in ids:
        with ByteStream(agent, id_) as stream:
            first = stream.take(1)[0]
        assert first.event != "reset", id_
        asked += 1
    assert asked > 0
