"""When the follower gets entries handed over, and when it has to read."""

import asyncio

import pytest

from oplogd.model.event_id import Mark
from oplogd.store.sqlite.log import hand_over
from oplogd.store.sqlite.log.hand_over import FEW, POLL_SECONDS, HandOver, Written
from tests.kits.models.operations import entry, numbered

LIMIT = 2000
MS = 1_000


class Follower:
    """A follower at ``offset``. ``seconds``: the time."""

    def __init__(self, pause: float = 0.0) -> None:
        self.seconds = 10.0
        self.hand_over = HandOver(lambda: self.seconds, pause=pause)
        self.offset = 0
        self.due()

    def take(self, limit: int = LIMIT) -> list[int]:
        found = self.hand_over.take(self.offset, MS, limit)
        self.offset = found[-1].offset if found else self.offset
        return [each.offset for each in found]

    def due(self, left: float = 9.0) -> int:
        return self.hand_over.to_read(self.offset, LIMIT, left)


def written(first: int, count: int, ms: int = MS, size: int = 0) -> Written:
    return Written(Mark(first - 1, MS), ms, numbered(count, first), size)


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_a_read_is_due_after_the_interval_and_reads_only_a_few(follower: Follower) -> None:
    assert follower.due() == 0
    follower.seconds += POLL_SECONDS - 0.001
    assert follower.due() == 0
    follower.seconds += 0.002
    assert follower.due() == FEW
    assert follower.due() == 0
    assert follower.due(left=0) == LIMIT
    assert POLL_SECONDS <= 0.05  # entries of others within 100 ms


def test_own_entries_put_the_next_read_off(follower: Follower) -> None:
    for offset in range(1, 100):
        follower.seconds += POLL_SECONDS - 0.001
        follower.hand_over.add([written(offset, 1)])
        assert follower.take() == [offset]
        assert follower.due() == 0


def test_found_entries_and_a_word_from_others_make_the_next_read_a_full_one(
    follower: Follower,
) -> None:
    follower.hand_over.has_read([], FEW)
    assert follower.due() == 0
    follower.hand_over.has_read([entry(1, MS, numbered(1)[0])], FEW)
    assert follower.due() == LIMIT
    follower.hand_over.add([])
    assert (follower.take(), follower.due(), follower.due()) == ([], LIMIT, 0)


@pytest.mark.parametrize(
    ("given", "due"),
    [(written(3, 3), 2), (Written(Mark(0, MS - 1), MS, numbered(1), 0), LIMIT)],
    ids=["behind others", "of another time"],
)
def test_entries_that_do_not_continue_make_the_follower_read(
    follower: Follower, given: Written, due: int
) -> None:
    follower.hand_over.add([given])
    assert (follower.take(), follower.due()) == ([], due)


def test_entries_read_meanwhile_are_dropped(follower: Follower) -> None:
    follower.hand_over.add([written(1, 3), written(4, 4)])
    follower.offset = 5
    assert follower.take() == [6, 7]
    assert (follower.take(), follower.due()) == ([], 0)
    follower.hand_over.add([written(8, 3, ms=MS + 1)])
    follower.offset = 9  # another log has an entry with its offset
    assert (follower.take(), follower.due()) == ([], LIMIT)


def test_entries_of_several_commits_are_taken_together_up_to_the_limit(follower: Follower) -> None:
    follower.hand_over.add([written(1, 3)])
    follower.hand_over.add([written(4, 3)])
    follower.hand_over.add([written(8, 1)])
    assert follower.take(limit=2) == [1, 2]
    assert follower.take(limit=3) == [3, 4, 5]
    assert follower.take() == [6]
    assert (follower.take(), follower.due()) == ([], 1)


def test_entries_wait_up_to_a_bound(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "MOST_CHARACTERS", 100)
    for first in range(1, 1001, 10):
        follower.hand_over.add([written(first, 10, size=100)])
        assert follower.take(limit=7) == [*range(first, first + 7)]
        assert follower.take() == [*range(first + 7, first + 10)]
    follower.hand_over.add([written(1001, 10, size=100)])
    follower.hand_over.add([written(1011, 1, size=1)])
    assert (follower.take(), follower.due()) == ([], LIMIT)


def test_words_from_other_workers_wait_for_the_end_of_a_pause_and_a_full_read_has_none() -> None:
    follower = Follower(pause=0.25)
    one = entry(1, MS, numbered(1)[0])
    follower.hand_over.has_read([one], FEW)
    follower.hand_over.add([])
    assert (follower.take(), follower.due()) == ([], 0)
    assert follower.due(left=0) == LIMIT  # the last look of a call
    follower.hand_over.add([])
    follower.seconds += 0.25
    assert follower.due() == LIMIT
    follower.hand_over.has_read([one] * LIMIT, LIMIT)
    assert follower.due() == LIMIT


async def test_a_follower_waits_for_the_end_of_a_pause_and_not_longer() -> None:
    follower = Follower(pause=3600.0)
    follower.hand_over.add([])
    follower.take()
    waiting = asyncio.create_task(follower.hand_over.wait(9000.0))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    follower.hand_over.add([written(1, 1)])
    await waiting
    follower.seconds += 3600.0
    await follower.hand_over.wait(9000.0)


def test_a_read_ends_before_the_entries_that_are_handed_over(follower: Follower) -> None:
    follower.hand_over.add([written(8, 3)])
    assert (follower.take(), follower.due()) == ([], 7)
    follower.offset = 7
    assert follower.take() == [8, 9, 10]
