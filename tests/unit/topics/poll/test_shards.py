"""Polls of one shard: the position that they tell, large messages, and what polls remember."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import MessageId
from oplogd.model.shard import Shard, hash_of
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic, TopicEntry
from oplogd.stream.topic_feed import Peeked
from oplogd.topics.gathering import NO_VOIDS, Gathering
from oplogd.topics.poll import MAX_ANSWER_BYTES, PASSING_ENTRIES, PollAnswer, PollBegin
from oplogd.topics.shards import peek_shard

OURS = Shard(0, 2)
KEY, OTHER = "d", "a"
TOPIC = cast(Topic, None)
# At most so many messages of an answer of the memory.
PART = 3


def test_the_keys_are_of_both_shards() -> None:
    assert (OURS.has(hash_of(KEY)), OURS.has(hash_of(OTHER))) == (True, False)


def data(key: str, size: int = 1) -> str:
    return f'{{"payload":"{"x" * size}","key":"{key}"}}'


def id_of(number: int) -> str:
    return str(MessageId(1_000, number))


class PartsOfMemory:
    """The newest messages, at most PART of them at a time."""

    def __init__(self, given: Sequence[str]) -> None:
        self._messages = [(MessageId(1_000, number), text) for number, text in enumerate(given, 1)]

    async def peek_soon(
        self, topic: Topic, after: MessageId | None, limit: int, max_bytes: int, *_: Any
    ) -> Peeked | None:
        rest = [each for each in self._messages if after is None or each[0] > after]
        return Peeked(rest[: min(PART, limit)], None)

    def acknowledged(self, log: int, offset: int, /) -> None: ...


def gathered(given: Sequence[str], limit: int) -> PollAnswer:
    """Return the answer from the store."""
    gathering = Gathering(
        PollBegin(0, gap=False), limit, Isolation.READ_UNCOMMITTED, from_oldest=True, shard=OURS
    )
    entries = [
        TopicEntry(number, 1_000, EntryKind.MESSAGE, text, number, 0)
        for number, text in enumerate(given, 1)
    ]
    while gathering.is_open:
        assert not list(gathering.take(entries[gathering.after :][:PART]))
    return PollAnswer(gathering.messages, gathering.gap, None, gathering.reached)


LARGE = MAX_ANSWER_BYTES + 1


@pytest.mark.parametrize(
    ("given", "limit", "found", "reached"),
    [
        ([], 9, [], None),
        ([data(OTHER)], 9, [], 1),
        ([data(OTHER)] * 7, 9, [], 7),
        ([data(KEY), data(OTHER)], 9, [1], 2),
        ([data(KEY)] + [data(OTHER)] * 6 + [data(KEY), data(OTHER)], 9, [1, 8], 9),
        ([data(KEY), data(KEY), data(OTHER)], 2, [1, 2], 2),
        ([data(OTHER), data(KEY), data(OTHER), data(KEY)], 1, [2], 2),
        ([data(KEY, LARGE), data(OTHER), data(KEY)], 9, [1], 2),
        ([data(OTHER), data(KEY, LARGE), data(KEY, LARGE)], 9, [2], 2),
        ([data(KEY), data(OTHER), data(KEY, LARGE)], 9, [1], 2),
        ([data(OTHER, LARGE), data(KEY), data(OTHER, LARGE), data(KEY)], 9, [2, 4], 4),
    ],
)
async def test_an_answer_tells_up_to_where_it_has_all_of_the_shard(
    given: list[str], limit: int, found: list[int], reached: int | None
) -> None:
    memory = PartsOfMemory(given)
    isolation = Isolation.READ_UNCOMMITTED
    for answer in (
        await peek_shard(memory, TOPIC, None, limit, isolation, OURS),
        gathered(given, limit),
    ):
        assert answer is not None
        assert [each.id for each in answer.messages] == [id_of(number) for number in found]
        assert [each.data for each in answer.messages] == [given[number - 1] for number in found]
        assert answer.reached == (None if reached is None else id_of(reached))
        assert not answer.gap


async def test_other_requests_run_between_the_parts_of_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("oplogd.topics.shards.asyncio.sleep", sleep)
    memory = PartsOfMemory([data(OTHER)] * 2 * PART)
    await peek_shard(memory, TOPIC, None, 9, Isolation.READ_UNCOMMITTED, OURS)
    assert slept == [0, 0]


@pytest.mark.parametrize("kind", [EntryKind.DIRECT, EntryKind.MESSAGE])
@pytest.mark.parametrize("key", [KEY, OTHER])
def test_a_long_row_of_messages_of_other_shards_is_not_remembered(
    kind: EntryKind, key: str
) -> None:
    """Other readers get them. The messages of an open pointer do not hold this reader."""
    pointer = 7 if kind == EntryKind.DIRECT else None
    row = [
        TopicEntry(number, 1_000, kind, data(OTHER), number, 0, pointer)
        for number in range(1, PASSING_ENTRIES + 1)
    ]
    last = TopicEntry(PASSING_ENTRIES + 1, 1_000, EntryKind.MESSAGE, data(key), 2_000, 0)
    gathering = Gathering(
        PollBegin(0, gap=False), 9, Isolation.READ_COMMITTED, from_oldest=True, shard=OURS
    )
    for page in (row, [last]):
        assert not list(gathering.take(page))
    assert [each.data for each in gathering.messages] == [data(key)] * (key == KEY)
    assert gathering.held_by is None
    assert gathering.voids == NO_VOIDS


def test_a_poll_of_a_shard_reads_long_pages_from_the_begin() -> None:
    def wanted(shard: Shard | None) -> int:
        isolation = Isolation.READ_UNCOMMITTED
        begin = PollBegin(0, gap=False)
        return Gathering(begin, 9, isolation, from_oldest=True, shard=shard).wanted

    assert (wanted(None), wanted(OURS)) == (9, PASSING_ENTRIES)
