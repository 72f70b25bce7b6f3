"""Lists in pages: cursors, and the sizes in which they are read and shown."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from oplogd.errors import MessageError
from oplogd.store.pointers import PointerKey
from oplogd.web.http.cursors import NEXT, cursor, key_in
from oplogd.web.v1.pages import Asked, asked_page, listed


class Numbers:
    """A list of numbers from 1. It notes how much was read and shown at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads: list[int] = []
        self.shows: list[int] = []

    async def read(self, after: str, limit: int) -> list[int]:
        past = key_in(after, int) or 0
        found = list(range(past + 1, min(past + limit, self.count) + 1))
        self.reads.append(len(found))
        return found

    async def show(self, found: Sequence[int]) -> list[dict[str, Any]]:
        """Leave out each seventh number."""
        self.shows.append(len(found))
        return [{"n": number} for number in found if number % 7]

    async def asked(self, limit: int | None, after: str = "") -> tuple[list[int], str | None]:
        response = await listed(Asked(limit, after), self.read, int, self.show)
        shown = [each["n"] for each in msgspec.json.decode(response.body)]
        return shown, response.headers.get(NEXT)


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
async def test_a_whole_list_is_read_and_shown_in_parts(count: int) -> None:
    numbers = Numbers(count)
    shown, following = await numbers.asked(None)
    assert shown == [number for number in range(1, count + 1) if number % 7]
    assert following is None
    assert max(numbers.reads) <= 1001
    assert max(numbers.shows, default=0) <= 100
    assert sum(numbers.shows) == count


async def test_a_page_tells_where_the_next_one_begins_unless_it_is_the_last() -> None:
    numbers = Numbers(10)
    assert await numbers.asked(10) == ([1, 2, 3, 4, 5, 6, 8, 9, 10], None)
    first, following = await numbers.asked(7)
    assert (first, following) == ([1, 2, 3, 4, 5, 6], cursor(7))
    assert await numbers.asked(7, cursor(7)) == ([8, 9, 10], None)
    assert await numbers.asked(None, cursor(9)) == ([10], None)
    numbers.count = 14
    assert await numbers.asked(1, cursor(13)) == ([], None)


def test_a_cursor_is_the_key_that_was_encoded() -> None:
    for key in ("", "a-b.c_D", "x" * 249):
        assert key_in(cursor(key), str) == key
    place = PointerKey(1_700_000_000_000, (1 << 62) - 1, (1 << 23) - 1)
    assert key_in(cursor(place), PointerKey) == place
    large = (cursor([0, 1 << 63, 0]), cursor([-(1 << 63) - 1, 0, 0]))
    for wrong in (cursor(5), cursor([1, 2]), cursor(["a", 1, 2]), "é", "!", "A" * 700, *large):
        with pytest.raises(MessageError, match="after: must be what"):
            key_in(wrong, PointerKey)
    assert key_in("", PointerKey) is None
    with pytest.raises(MessageError, match="after: must be what"):
        key_in(cursor(10**30), int)


async def test_a_list_is_whole_unless_a_page_is_asked_for() -> None:
    assert await asked_page() == Asked(None, "")
    assert await asked_page(1000) == Asked(1000, "")
    assert await asked_page(after=cursor("a")) == Asked(None, cursor("a"))


def test_a_cursor_longer_than_those_of_all_names_is_refused() -> None:
    assert key_in(cursor("x" * 440), str) == "x" * 440
    with pytest.raises(MessageError):
        key_in(cursor("x" * 460), str)
