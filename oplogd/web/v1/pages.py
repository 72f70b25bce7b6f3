"""Lists, whole or in pages. A page is the list past the last item of the page before.

So items coming or going in between move no others from one page to another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from fastapi import Response

from oplogd.decode.media_types import JSON
from oplogd.topics.transactions.rules import MAX_LIMIT
from oplogd.web.describe.parameters import After, PageLimit
from oplogd.web.http.cursors import NEXT, cursor
from oplogd.web.http.problem import COMMON_HEADERS

MORE = {NEXT: "There are more items: `after` of the next page."}

# Items shown and encoded in one turn of the event loop.
_PIECE = 100

_Item = TypeVar("_Item")


class Asked(NamedTuple):
    """A page as it was asked for. ``limit`` None: the whole list. ``after``: empty for none."""

    limit: int | None
    after: str


async def asked_page(limit: PageLimit = None, after: After = "") -> Asked:
    """Return the page a request asks for."""
    return Asked(limit, after)


async def listed(
    asked: Asked,
    read: Callable[[str, int], Awaitable[Sequence[_Item]]],
    key: Callable[[_Item], object],
    shown: Callable[[Sequence[_Item]], Awaitable[Sequence[Any]]],
    seen: Callable[[Sequence[_Item]], Awaitable[Sequence[_Item]]] | None = None,
) -> Response:
    """Return the answer with a page of a list, or with all of it.

    ``read`` returns up to so many items past a cursor. ``shown`` returns their members for the
    answer, and may leave out some. ``seen`` returns items as the client sees them, without those
    that it must not know of: not even a cursor tells. None: the client sees all.
    """
    if seen is not None:
        read = _reading_seen(read, key, seen)
    parts: list[bytes] = []
    headers = dict(COMMON_HEADERS)
    after = asked.after
    most = MAX_LIMIT if asked.limit is None else asked.limit
    while True:
        found = await read(after, most + 1)  # one more tells whether there are others
        page, has_more = found[:most], len(found) > most
        for first in range(0, len(page), _PIECE):
            if members := await shown(page[first : first + _PIECE]):
                parts.append(msgspec.json.encode(members)[1:-1])
            await asyncio.sleep(0)
        if has_more:
            after = cursor(key(page[-1]))
        if not has_more or asked.limit is not None:
            break
    if has_more:
        headers[NEXT] = after
    return Response(b"[" + b",".join(parts) + b"]", 200, headers, JSON)


def _reading_seen(
    read: Callable[[str, int], Awaitable[Sequence[_Item]]],
    key: Callable[[_Item], object],
    seen: Callable[[Sequence[_Item]], Awaitable[Sequence[_Item]]],
) -> Callable[[str, int], Awaitable[Sequence[_Item]]]:
    """Return a reading that goes on until it has so many items that the client sees."""

    async def reading(after: str, most: int) -> list[_Item]:
        found: list[_Item] = []
        while True:
            items = await read(after, most)
            found += await seen(items)
            if len(items) < most or len(found) >= most:
                return found[:most]
            after = cursor(key(items[-1]))

    return reading
