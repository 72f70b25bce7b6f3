"""The table of starts in the wire contract, row by row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import EventId, Mark, Millis, Position, format_id, parse_position
from oplogd.store import LogBounds
from oplogd.stream.phases.start import (
    FULL_REPLICATION,
    After,
    Since,
    Start,
    is_of_history,
    resolve,
    resolve_mark,
    states_cover,
)
from tests.kits.models.properties import examples

CREATED = 1_700_000_000_000
NOW = CREATED + 1_000_000

# A log that began at 1, has lost the entries up to 10, and ends at 20.
FIRST, OLDEST, HEAD = 1, 11, 20


def ms_of(offset: int) -> int:
    """Return the time of an entry of that log."""
    return CREATED + 700 * offset


def log(
    *,
    at: int = 0,
    at_ms: int | None = None,
    oldest: int | None = OLDEST,
    head: int = HEAD,
    created: int = CREATED,
    first: int = FIRST,
    purged: int = 0,
    adopted: int = 0,
    unwritten: tuple[tuple[int, int], ...] = (),
    set_aside: tuple[tuple[int, int], ...] = (),
) -> LogBounds:
    if at_ms is None and oldest is not None and oldest <= at <= head:
        at_ms = ms_of(at)
    return LogBounds(
        head=Mark(head, ms_of(head)),
        oldest=Mark(oldest, ms_of(oldest)) if oldest else None,
        at_ms=at_ms,
        created_ms=created,
        first_offset=first,
        purged_ms=purged,
        adopted_ms=adopted,
        unwritten=unwritten,
        set_aside=set_aside,
    )


EMPTY = log(oldest=None, head=0)


def event_id(offset: int, ms: int | None = None) -> EventId:
    position = parse_position(format_id(Mark(offset, ms_of(offset) if ms is None else ms)))
    assert isinstance(position, EventId)
    return position


def second(ms: int) -> int:
    return ms // 1000 * 1000


def test_without_a_position_the_stream_starts_behind_the_head() -> None:
    assert resolve(None, log(), NOW) == After(Mark(HEAD, ms_of(HEAD)))
    assert resolve(None, EMPTY, NOW) == After(Mark(0, CREATED))


@pytest.mark.parametrize("offset", [OLDEST, 15, HEAD])
def test_an_id_in_the_log_continues_behind_it(offset: int) -> None:
    assert resolve(event_id(offset), log(at=offset), NOW) == After(Mark(offset, ms_of(offset)))


@pytest.mark.parametrize("offset", [1, OLDEST - 1])
def test_an_id_that_has_left_the_log_is_bridged_from_its_second(offset: int) -> None:
    assert resolve(event_id(offset), log(at=offset), NOW) == Since(
        max(second(ms_of(offset)), CREATED)
    )


@pytest.mark.parametrize(
    ("position", "bounds"),
    [
        (event_id(HEAD + 1), log(at=HEAD + 1)),
        (event_id(HEAD, ms_of(HEAD) + 1), log(at=HEAD)),
        (event_id(15, ms_of(15) - 1), log(at=15)),
        (event_id(5, ms_of(OLDEST) + 1), log(at=5)),
        (event_id(0), log()),
        (event_id(1), EMPTY),
        (event_id(5, 4_070_908_800_000), log(at=5)),
        (parse_position("545b55c7f095528dd0f3863c"), log(at=0x528DD0F3863C)),
    ],
    ids=[
        "beyond the head",
        "the head's offset with another time",
        "another time",
        "gone, and later than the oldest entry",
        "no entry",
        "an empty log",
        "of 2099",
        "an ObjectId",
    ],
)
def test_an_id_of_another_history_is_reset(position: Position, bounds: LogBounds) -> None:
    assert resolve(position, bounds, NOW) == FULL_REPLICATION


@pytest.mark.parametrize("text", ["0", "00", "0000000000000"])
def test_zero_is_a_full_replication(text: str) -> None:
    assert resolve(parse_position(text), log(), NOW) == FULL_REPLICATION
    assert resolve(parse_position(text), EMPTY, NOW) == FULL_REPLICATION


@pytest.mark.parametrize("ms", [CREATED, ms_of(5), ms_of(15), ms_of(HEAD)])
def test_other_digits_start_with_the_states_changed_at_or_after_them(ms: int) -> None:
    assert resolve(Millis(ms), log(), NOW) == Since(ms)


def test_a_time_after_the_head_up_to_the_present_is_no_gap() -> None:
    assert resolve(Millis(NOW), log(), NOW) == Since(NOW)


def test_one_is_bridged_by_any_states() -> None:
    assert resolve(Millis(1), log(), NOW) == Since(1)
    assert resolve(Millis(1), log(purged=NOW), NOW) == Since(1)
    assert resolve(Millis(1), EMPTY, NOW) == Since(1)


# --- Gaps that states cannot bridge ---


@pytest.mark.parametrize("ms", [2, 1000, CREATED - 1])
def test_a_time_before_the_store_is_reset(ms: int) -> None:
    assert resolve(Millis(ms), log(), NOW) == FULL_REPLICATION


def test_a_time_before_the_purge_is_reset_and_at_it_is_not() -> None:
    purged = ms_of(5)
    assert resolve(Millis(purged - 1), log(purged=purged), NOW) == FULL_REPLICATION
    assert resolve(Millis(purged), log(purged=purged), NOW) == Since(purged)


def test_an_id_that_has_left_the_log_before_the_purge_is_reset() -> None:
    assert resolve(event_id(4), log(at=4, purged=ms_of(5)), NOW) == FULL_REPLICATION


@pytest.mark.parametrize(
    ("offset", "bounds"),
    [
        (15, log(at=15)),
        (4, log(at=4)),
        (4, log(at=4, purged=ms_of(9))),
        (4, log(at=4, oldest=None)),
    ],
    ids=["there", "gone", "gone before the purge", "gone, and the log is empty"],
)
def test_an_id_that_the_log_had_is_of_its_history(offset: int, bounds: LogBounds) -> None:
    assert is_of_history(Mark(offset, ms_of(offset)), bounds)


@pytest.mark.parametrize(
    ("mark", "bounds"),
    [
        (Mark(HEAD + 1, ms_of(HEAD)), log(at=HEAD + 1)),
        (Mark(15, ms_of(15) + 1), log(at=15)),
        (Mark(4, ms_of(15)), log(at=4)),
        (Mark(4, ms_of(4)), log(at=4, first=5)),
        (Mark(4, ms_of(4)), log(at=4, unwritten=((ms_of(3), ms_of(5)),))),
    ],
    ids=["beyond the head", "another time", "too late", "an earlier epoch", "an older copy"],
)
def test_an_id_that_the_log_never_had_is_not(mark: Mark, bounds: LogBounds) -> None:
    assert not is_of_history(mark, bounds)


def test_an_id_in_the_second_of_the_purge_is_bridged_from_the_purge() -> None:
    purged = ms_of(5)
    assert second(purged) < purged
    assert resolve(event_id(5), log(at=5, purged=purged), NOW) == Since(purged)


def test_an_id_in_the_second_of_the_stores_creation_is_bridged_from_there() -> None:
    created = CREATED + 300
    assert resolve(event_id(1), log(at=1, created=created), NOW) == Since(created)


def test_an_id_in_the_log_needs_no_states_so_no_purge_matters() -> None:
    assert resolve(event_id(15), log(at=15, purged=NOW), NOW) == After(Mark(15, ms_of(15)))


def test_an_id_older_than_the_store_is_reset() -> None:
    assert resolve(event_id(5, CREATED - 1), log(at=5), NOW) == FULL_REPLICATION


@pytest.mark.parametrize("offset", [1, 10])
def test_an_id_of_the_epoch_before_is_reset(offset: int) -> None:
    bounds = log(at=offset, first=11)
    assert resolve(event_id(offset), bounds, NOW) == FULL_REPLICATION


def test_the_last_id_of_the_epoch_before_is_reset_while_the_new_log_is_empty() -> None:
    assert resolve(event_id(HEAD), log(oldest=None, first=HEAD + 1), NOW) == FULL_REPLICATION


def test_a_time_far_in_the_future_is_reset() -> None:
    ahead = ms_of(HEAD) + 3_600_000
    assert resolve(Millis(NOW + 60_000), log(), NOW) == Since(NOW + 60_000)
    assert resolve(Millis(NOW + 60_001), log(), NOW) == FULL_REPLICATION
    assert resolve(Millis(ahead), log(), ms_of(HEAD)) == FULL_REPLICATION


def test_a_time_up_to_the_head_is_known_even_if_the_head_is_ahead_of_the_clock() -> None:
    behind = ms_of(HEAD) - 10**9
    assert resolve(Millis(ms_of(HEAD)), log(), behind) == Since(ms_of(HEAD))


# --- Times in which this history wrote nothing ---

SPAN = ((ms_of(4), ms_of(6)),)


@pytest.mark.parametrize(
    "position", [Millis(ms_of(5)), event_id(5)], ids=["replication id", "event id"]
)
def test_an_id_of_a_time_at_which_the_store_was_closed_is_reset(position: Position) -> None:
    closed = log(at=5, unwritten=SPAN)
    assert resolve(position, closed, NOW) == FULL_REPLICATION


@pytest.mark.parametrize("offset", [4, 6])
def test_an_id_at_either_end_of_the_time_at_which_the_store_was_closed_is_known(
    offset: int,
) -> None:
    closed = log(at=offset, unwritten=SPAN)
    assert resolve(event_id(offset), closed, NOW) not in (FULL_REPLICATION, After(closed.head))
    assert resolve(Millis(ms_of(offset)), closed, NOW) == Since(ms_of(offset))


def test_a_time_that_a_person_asks_for_may_be_one_at_which_the_store_was_closed() -> None:
    closed = log(unwritten=SPAN, set_aside=SPAN)
    assert resolve(Millis(ms_of(5), chosen=True), closed, NOW) == Since(ms_of(5))


def test_a_time_of_a_log_that_was_set_aside_is_reset_and_an_event_id_is_not() -> None:
    aside = log(at=5, set_aside=SPAN)
    assert resolve(Millis(ms_of(5)), aside, NOW) == FULL_REPLICATION
    assert resolve(event_id(5), aside, NOW) not in (
        FULL_REPLICATION,
        After(aside.head),
    )  # its offset tells the log


# --- Ids of the first server, taken over ---

OBJECT_ID = parse_position("6553f2e0f095528dd0f3863c")


def test_an_object_id_of_before_the_take_over_is_bridged_from_its_second() -> None:
    assert isinstance(OBJECT_ID, EventId)
    when = OBJECT_ID.seconds * 1000
    for adopted in (when, when + 999):
        bounds = log(at=OBJECT_ID.offset, created=0, adopted=adopted)
        assert resolve(OBJECT_ID, bounds, NOW) == Since(when)


def test_an_object_id_of_after_the_take_over_is_reset() -> None:
    assert isinstance(OBJECT_ID, EventId)
    bounds = log(at=OBJECT_ID.offset, created=0, adopted=OBJECT_ID.seconds * 1000 - 1)
    assert resolve(OBJECT_ID, bounds, NOW) == FULL_REPLICATION


def test_an_object_id_that_looks_like_ours_beyond_the_head_is_bridged() -> None:
    looks_like = EventId(CREATED // 1000, 999, 1 << 40)
    assert resolve(looks_like, log(at=1 << 40, created=0, adopted=CREATED), NOW) == Since(
        second(CREATED)
    )


def test_an_object_id_whose_second_is_before_the_purge_is_reset() -> None:
    assert isinstance(OBJECT_ID, EventId)
    when = OBJECT_ID.seconds * 1000
    bounds = log(at=OBJECT_ID.offset, created=0, adopted=when, purged=when + 1)
    assert resolve(OBJECT_ID, bounds, NOW) == FULL_REPLICATION


def test_an_id_with_impossible_milliseconds_is_not_ours_even_at_an_offset_of_the_log() -> None:
    foreign = EventId(ms_of(15) // 1000, 1000, 15)
    assert resolve(foreign, log(at=15), NOW) == FULL_REPLICATION


def test_states_bridge_times_from_creation_and_purge_on() -> None:
    bounds = log(created=CREATED, purged=CREATED + 5)
    assert states_cover(1, bounds)
    assert not states_cover(CREATED + 4, bounds)
    assert states_cover(CREATED + 5, bounds)


@examples(5)
@given(
    mark=st.builds(Mark, st.integers(0, 30), st.integers(CREATED - 1000, ms_of(30))),
    oldest=st.none() | st.integers(1, HEAD),
)
def test_a_mark_starts_as_its_event_id_does(mark: Mark, oldest: int | None) -> None:
    bounds = log(at=mark.offset, oldest=oldest)
    position = event_id(mark.offset, mark.ms)
    assert resolve_mark(mark, bounds, NOW) == resolve(position, bounds, NOW)


@examples(5)
@given(
    position=st.none()
    | st.builds(Millis, st.integers(0, 10**13 - 1) | st.integers(CREATED - 10_000, NOW + 100_000))
    | st.builds(
        EventId, st.integers(0, 2**32 - 1), st.integers(0, 65535), st.integers(0, 2**48 - 1)
    )
    | st.builds(event_id, st.integers(0, 30), st.integers(CREATED - 1000, ms_of(30))),
    oldest=st.none() | st.integers(1, HEAD),
    first=st.integers(1, HEAD + 1),
    purged=st.sampled_from([0, CREATED + 1, ms_of(5), ms_of(HEAD), NOW]),
    adopted=st.sampled_from([0, CREATED]),
)
def test_a_start_never_asks_the_states_for_times_that_they_do_not_bridge(
    position: Position | None, oldest: int | None, first: int, purged: int, adopted: int
) -> None:
    offset = position.offset if isinstance(position, EventId) else 0
    bounds = log(
        at=offset,
        oldest=oldest,
        first=min(first, oldest or HEAD + 1),
        purged=purged,
        adopted=adopted,
    )
    start: Start = resolve(position, bounds, NOW)
    if isinstance(start, Since) and start.ms is not None:
        assert states_cover(start.ms, bounds)
    if isinstance(start, After):
        assert start.mark == bounds.head or bounds.at_ms == start.mark.ms
    if isinstance(position, Millis):
        assert not isinstance(start, After)
