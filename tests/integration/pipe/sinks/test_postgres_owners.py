"""Rows of several owners in one table, and owners that write at the same moment."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.sinks.postgres.lanes import Build, Lanes
from oplog_pipe.sinks.postgres.rows import Statement
from oplog_pipe.sinks.postgres.sink import PostgresSink
from tests.kits.pipe.messages import message, owner, version
from tests.kits.pipe.targets import PostgresTarget
from tests.kits.servers.postgres import PostgresServer


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


@pytest.fixture
def sinks(target: PostgresTarget) -> Iterator[Callable[[str], PostgresSink]]:
    """Return open sinks of a pipe that is named."""
    with ExitStack() as stack:

        def opened(pipe: str) -> PostgresSink:
            sink = target.sink()
            sink.own(owner(pipe))
            sink.open()
            stack.callback(sink.close)
            return sink

        yield opened


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[PostgresSink, Callable[[], None]], None]:
    """Let something happen once, after a sink's write, before it looks why rows are left."""

    def arrange(sink: PostgresSink, happens: Callable[[], None]) -> None:
        plain = Lanes.write
        waiting = [happens]

        def write(
            self: Lanes, count: int, build: Build, *, keep: bool
        ) -> list[tuple[Statement, int]]:
            changed = plain(self, count, build, keep=keep)
            if self is sink._lanes and waiting:
                waiting.pop()()
            return changed

        monkeypatch.setattr(Lanes, "write", write)

    return arrange


Sinks = Callable[[str], PostgresSink]
Between = Callable[[PostgresSink, Callable[[], None]], None]


def test_a_row_is_written_if_its_other_owner_deletes_it_before_the_sink_looks(
    target: PostgresTarget, sinks: Sinks, between: Between
) -> None:
    first, second = sinks("first"), sinks("second")
    first.write([message(1, "x"), message(1, "y")])
    second.write([message(2, "z")])
    between(second, lambda: first.write([message(2, "x", "delete"), message(2, "y", "delete")]))
    second.write([message(1, "z"), message(5, "x"), message(5, "y"), message(5, "w")])
    assert target.run("SELECT id, version, oplog_owner FROM video ORDER BY id") == [
        ("w", version(5), "second/sink"),
        ("x", version(5), "second/sink"),
        ("y", version(5), "second/sink"),
        ("z", version(2), "second/sink"),
    ]


@pytest.mark.parametrize("looks", [1, 2])
def test_a_row_that_comes_back_before_it_is_written_again_is_refused(
    looks: int,
    target: PostgresTarget,
    sinks: Sinks,
    between: Between,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = sinks("first"), sinks("second")
    first.write([message(1, "x")])
    second.write([message(0, "known")])
    plain = second._session.run
    count = 0

    def run(work: Any, *, statements: int | None = 1) -> Any:
        nonlocal count
        count += 1
        if count == looks + 1:
            first.write([message(9, "x")])
        return plain(work, statements=statements)

    def look() -> None:
        first.write([message(2, "x", "delete")])
        monkeypatch.setattr(second._session, "run", run)

    between(second, look)
    with pytest.raises(SinkError, match="belongs to 'first/sink'") as caught:
        second.write([message(4, "known"), message(5, "x")])
    assert caught.value.index == 1
    assert target.run("SELECT version FROM video WHERE id = 'x'") == [(version(9),)]


@pytest.mark.parametrize("gone", ["007", "7"])
def test_a_row_that_the_batch_deletes_under_another_text_of_its_id_stays_away(
    gone: str, target: PostgresTarget, sinks: Sinks
) -> None:
    target.run(
        "CREATE TABLE video (id bigint PRIMARY KEY, version bigint, source text,"
        ' "timestamp" timestamptz, oplog_owner text, data jsonb)'
    )
    texts = [each for each in ("7", "07", "007") if each != gone]
    batch: list[Message] = [message(n, each) for n, each in enumerate(texts)]
    sinks("first").write([*batch, message(2, gone, "delete")])
    assert target.run("SELECT id FROM video") == []


def test_a_row_that_a_trigger_leaves_out_is_acknowledged(
    target: PostgresTarget, sinks: Sinks
) -> None:
    sink = sinks("first")
    sink.write([message(0, "x")])
    target.run(
        "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        " IF new.id = 'out' THEN RETURN NULL; END IF; RETURN new; END$$"
    )
    target.run("CREATE TRIGGER t BEFORE INSERT ON video FOR EACH ROW EXECUTE FUNCTION leave_out()")
    sink.write([message(1, "out"), message(2, "in")])
    assert target.run("SELECT id FROM video ORDER BY id") == [("in",), ("x",)]
