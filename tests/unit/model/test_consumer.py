"""The rules for positions and terms of named consumers: each case."""

import pytest

from oplogd.errors import StaleTermError
from oplogd.model.consumer import (
    Acknowledgement,
    ConsumerSettings,
    ShardKey,
    ShardPosition,
    acknowledged,
    is_time,
    require_term,
    sought,
    taken,
)
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation

KEY = ShardKey("billing", 3)
NOW_MS = 7

# Ids of the oplog, of topics, and times.
A, B, C = (letter * 24 for letter in "abc")
MESSAGE_A, MESSAGE_B = (letter * 40 for letter in "ab")
TIME, EARLIER = "1700000000000", "9"
EVERYTHING = "0"

_SAME = object()


@pytest.mark.parametrize(
    ("position", "place", "id_", "instead_of", "after"),
    [
        # The first id of the log.
        (EVERYTHING, None, A, None, (A, None)),
        (EVERYTHING, None, A, EVERYTHING, (A, None)),
        (TIME, None, A, None, (A, None)),
        # A time is no id of the log, even if it sorts behind it.
        (TIME, None, "0" * 24, None, ("0" * 24, None)),
        ("9999999999999", None, MESSAGE_A, None, (MESSAGE_A, None)),
        # Forward only.
        (A, None, B, None, (B, None)),
        (A, None, A, None, _SAME),
        (B, None, A, None, _SAME),
        (MESSAGE_A, None, MESSAGE_B, None, (MESSAGE_B, None)),
        (MESSAGE_B, None, MESSAGE_A, None, _SAME),
        # Within a replication.
        (EVERYTHING, None, TIME, None, (EVERYTHING, TIME)),
        (TIME, None, EVERYTHING, None, (TIME, EVERYTHING)),
        (A, None, TIME, None, (A, TIME)),
        (A, TIME, TIME, None, (A, TIME)),
        (A, TIME, EARLIER, None, (A, EARLIER)),
        (A, EARLIER, TIME, None, (A, TIME)),
        (A, None, TIME, A, (A, TIME)),
        # The end of a replication.
        (EVERYTHING, TIME, A, None, (A, None)),
        (A, TIME, B, None, (B, None)),
        (A, TIME, A, None, (A, None)),
        # A position of another history.
        (B, None, A, B, (A, None)),
        (B, None, A, C, _SAME),
        (B, None, C, A, (C, None)),
        (B, TIME, A, B, (A, None)),
        (B, None, B, B, (B, None)),
    ],
)
def test_an_acknowledgement_moves_a_shard_or_leaves_it_as_it_is(
    position: str, place: str | None, id_: str, instead_of: str | None, after: object
) -> None:
    before = ShardPosition(position, place, 2, "r", 1)
    found = acknowledged(before, Acknowledgement(KEY, 2, id_, instead_of), NOW_MS)
    if after is _SAME:
        assert found is before
    else:
        assert (found.position, found.place) == after
        assert found[2:] == (2, "r", NOW_MS)
        assert found is not before


@pytest.mark.parametrize("id_", [A, C, TIME])
@pytest.mark.parametrize("term", [0, 1, 3])
@pytest.mark.parametrize("instead_of", [None, B])
def test_an_acknowledgement_of_another_term_is_refused(
    id_: str, term: int, instead_of: str | None
) -> None:
    with pytest.raises(StaleTermError, match=rf"shard 3 .* billing has term 2, not {term}"):
        acknowledged(
            ShardPosition(B, None, 2, "r", 1), Acknowledgement(KEY, term, id_, instead_of), NOW_MS
        )


@pytest.mark.parametrize(
    ("before", "term", "after"),
    [
        (ShardPosition(A), None, ShardPosition(A, None, 1, "new")),
        (ShardPosition(A, None, 5, "old", 1), None, ShardPosition(A, None, 6, "new", 1)),
        (ShardPosition(A, TIME, 5, "old", 1), None, ShardPosition(A, None, 6, "new", 1)),
        (ShardPosition(A, TIME, 5, "old", 1), 5, ShardPosition(A, TIME, 5, "new", 1)),
        (ShardPosition(A, TIME, 5, "new", 1), 5, ShardPosition(A, TIME, 5, "new", 1)),
    ],
)
def test_a_new_reader_gets_the_next_term_and_a_present_one_keeps_its_place(
    before: ShardPosition, term: int | None, after: ShardPosition
) -> None:
    assert taken(before, KEY, "new", term) == after


@pytest.mark.parametrize("term", [0, 4, 6])
def test_a_take_with_another_term_is_refused(term: int) -> None:
    with pytest.raises(StaleTermError, match=f"has term 5, not {term}"):
        taken(ShardPosition(A, None, 5, "old"), KEY, "old", term)


@pytest.mark.parametrize("before", [ShardPosition(B, None, 4, "r", 1), ShardPosition(A, TIME, 4)])
@pytest.mark.parametrize("position", [A, B, TIME, EVERYTHING])
def test_a_seek_moves_a_shard_and_ends_its_term(before: ShardPosition, position: str) -> None:
    after = sought(before, position)
    assert after == ShardPosition(position, None, 5, "", before.acknowledged_ms)
    with pytest.raises(StaleTermError):
        require_term(after, KEY, 4)


def test_a_reader_continues_at_the_place_of_its_term() -> None:
    assert ShardPosition(A).start == A
    assert ShardPosition(A, TIME).start == TIME
    assert ShardPosition(A, EVERYTHING).start == EVERYTHING


@pytest.mark.parametrize(
    ("id_", "expected"),
    [(EVERYTHING, True), (EARLIER, True), (TIME, True), (A, False), (MESSAGE_A, False)],
)
def test_times_are_told_from_ids_of_entries(id_: str, expected: bool) -> None:
    assert is_time(id_) == expected


def test_settings_tell_the_log_and_its_shards() -> None:
    topic = ConsumerSettings(TopicName("shop", "orders"))
    assert (topic.is_of_oplog, topic.is_committed, topic.shard(0)) == (False, True, None)
    oplog = ConsumerSettings(OPLOG, isolation=Isolation.READ_UNCOMMITTED, shards=4)
    assert (oplog.is_of_oplog, oplog.is_committed, oplog.shard(3)) == (True, False, Shard(3, 4))
