"""What a task hands to the sink: which messages together, in which order, and after refusals."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.settings import BatchLimits, SinkSettings
from oplog_pipe.sinks.base import Sink
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.spark.tasks.refusals import Refusals
from oplog_pipe.spark.tasks.rows import LETTER, Row
from oplog_pipe.spark.tasks.writing import Writing

BASE = 1_790_000_000_000 << 20


class History(Sink):
    """Keeps what it gets. ``refused``: ids that it refuses."""

    def __init__(self, *refused: str) -> None:
        self.batches: list[list[Message]] = []
        self._refused = refused

    def write(self, messages: Sequence[Message]) -> None:
        for index, each in enumerate(messages):
            if each.id in self._refused:
                raise SinkError("refused", index=index)
        self.batches.append(list(messages))

    @property
    def written(self) -> list[tuple[str, int]]:
        return [(each.id, each.version - BASE) for batch in self.batches for each in batch]


class Mirror(History):
    def own(self, owner: Owner) -> None: ...

    def adopt(self, former: str) -> int:
        return 0


def settings(messages: int = 3, **others: object) -> SinkSettings:
    limits = BatchLimits(messages, others.pop("bytes", 1 << 20))  # type: ignore[arg-type]
    return SinkSettings("s", "m:C", CustomOptions("m:C"), batch=limits, retry_for=0.0, **others)  # type: ignore[arg-type]


def writing(sink: Sink, own: SinkSettings) -> tuple[Writing, Refusals]:
    refusals = Refusals(own, RetryClock())
    return Writing(own, sink, refusals), refusals


def row(
    id: str, version: int, op: str = "update", data: str = "1", at: int = 0, place: int = 0
) -> Row:
    return Row(op, "oplog", BASE + version, at, place, "video", id, 5, data)


def test_a_mirror_gets_the_last_message_of_each_object_in_one_write() -> None:
    sink = Mirror()
    found, _ = writing(sink, settings())
    for each in [row("a", n) for n in range(10)] + [row("b", 3), row("c", 1), row("d", 2)]:
        found.add(each)
    found.flush()
    assert [[each.id for each in batch] for batch in sink.batches] == [["c", "b", "a"], ["d"]]
    assert sink.written == [("c", 1), ("b", 3), ("a", 9), ("d", 2)]
    assert found.written == 13


def test_a_history_gets_every_message() -> None:
    sink = History()
    found, _ = writing(sink, settings())
    for each in [row("a", 0), row("b", 1), row("a", 2), row("a", 3)]:
        found.add(each)
    found.flush()
    found.flush()
    assert sink.written == [("a", 0), ("b", 1), ("a", 2), ("a", 3)]
    assert [len(each) for each in sink.batches] == [3, 1]


def test_messages_of_one_version_are_in_the_order_of_their_entries() -> None:
    sink = Mirror()
    found, _ = writing(sink, settings())
    for each in [row("a", 7, at=2, place=9), row("b", 7, at=2, place=8), row("c", 7, at=1)]:
        found.add(each)
    found.flush()
    assert [each.id for each in sink.batches[0]] == ["c", "b", "a"]
    assert [each.offset for each in sink.batches[0]] == [0, 1, 2]


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 5), st.integers(1, 40))
def test_each_object_of_a_mirror_is_written_once_and_last_whatever_the_limits(
    names: list[int], messages: int, size: int
) -> None:
    chance = Random(len(names))
    rows = sorted(
        (
            row(str(name), n, chance.choice(["update", "delete"]), "1" * (n % 7 + 1))
            for n, name in enumerate(names)
        ),
        key=lambda each: (each.id, each.version),
    )
    sink = Mirror()
    found, _ = writing(sink, settings(messages, bytes=size))
    for each in rows:
        found.add(each)
    found.flush()
    last = {str(name): n for n, name in enumerate(names)}
    assert sorted(sink.written) == sorted(last.items())
    assert found.written == len(names)
    assert all(len(batch) <= messages for batch in sink.batches)


def test_a_refused_message_becomes_a_letter_and_the_others_are_written() -> None:
    sink = Mirror("b")
    found, refusals = writing(sink, settings(dead_letter="dead.jsonl"))
    for each in [row("a", 1), row("b", 2)._replace(letter='{"id":"original"}'), row("c", 3)]:
        found.add(each)
    found.flush()
    assert sink.written == [("a", 1), ("c", 3)]
    assert refusals.take() == [Row(LETTER, "oplog", data='{"id":"original","error":"refused"}')]
    assert refusals.take() == []
    assert found.written == 2


def test_without_a_file_a_refusal_is_a_failure() -> None:
    found, _ = writing(Mirror("b"), settings())
    found.add(row("b", 1))
    with pytest.raises(SinkError, match="refused"):
        found.flush()


def test_a_target_that_refuses_all_gets_no_letters() -> None:
    class Away(Mirror):
        def write(self, messages: Sequence[Message]) -> None:
            raise TargetError("no table")

    found, refusals = writing(Away(), settings(dead_letter="dead.jsonl"))
    found.add(row("b", 1))
    with pytest.raises(TargetError):
        found.flush()
    assert refusals.take() == []


def test_many_refusals_in_a_row_are_a_failure() -> None:
    found, _ = writing(Mirror(*"abcd"), settings(dead_letter="d", dead_letter_limit=3))
    for each in "ab":
        found.add(row(each, 1))
        found.flush()
    found.add(row("c", 1))
    with pytest.raises(SinkError, match="the target seems to be ill"):
        found.flush()
