"""GET /objects: one object, and pages of all live ones: a snapshot from which to follow on."""

import asyncio
import re
from itertools import count
from typing import NamedTuple

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.datastructures import QueryParams

from oplogd.decode.media_types import JSON, NDJSON
from oplogd.errors import FilterError, MessageError, PositionError
from oplogd.model.event_id import parse_position, position_at
from oplogd.model.names import OPLOG
from oplogd.store import Store, decode_stored
from oplogd.store.objects import ObjectState
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import Framer
from oplogd.web.access.sides import ReadAuthenticator
from oplogd.web.describe.document import ERRORS, described
from oplogd.web.describe.parameters import OF_OBJECT, OF_OBJECTS, SHARD_TEXT
from oplogd.web.describe.types import ObjectAnswer
from oplogd.web.http.cursors import NEXT, cursor, key_in
from oplogd.web.http.gone import while_connected
from oplogd.web.http.headers import SHARD, shard_header
from oplogd.web.http.problem import COMMON_HEADERS, Problem
from oplogd.web.oplog.stream_request import filter_of

MAX_LIMIT = 10_000
DEFAULT_LIMIT = 1_000

# The event id from which to follow a snapshot.
POSITION = "Oplog-Position"

# States read from the store at a time, and reads at a time of all requests. Each costs the event
# loop some milliseconds.
_PAGE = 500
_IN_FLIGHT = 2
# Reads and characters of one answer. With a narrow filter it may have few objects, or none.
_MOST_READS = 40
_ENOUGH = 1_000_000

# Longer than every cursor: a key has 1,280 bytes, and six characters in JSON for each at most.
_MAX_CURSOR = 12_000

_NUMBER = re.compile(r"[0-9]{1,5}")
_HEADERS = {**COMMON_HEADERS, "Vary": "Authorization, Cookie"}

_EXAMPLE = """{"timestamp":"2014-11-06T11:04:39.041Z","parents":[],"type":"video","id":"xekw"}
"""


class _Place(NamedTuple):
    """A place in a snapshot. ``position``: an event id. ``after``: the key of the last object."""

    position: str
    after: str


class Objects:
    """Answers requests for objects."""

    def __init__(
        self, store: Store, framer: Framer, readers: ReadAuthenticator, max_filter_values: int
    ) -> None:
        self._store = store
        self._framer = framer
        self._readers = readers
        self._max_filter_values = max_filter_values
        self._slots = asyncio.Semaphore(_IN_FLIGHT)

    async def find(self, request: Request) -> Response:
        """Answer with one object."""
        filter_, _ = await self._reader(request, QueryParams())
        type_, id_ = request.path_params["type"].lower(), request.path_params["id"]
        mark = await self._store.checkpoint()  # the states may lag behind the log
        bounds = await self._store.locate(mark.offset)
        state = await self._store.objects.find(type_, id_)
        data = None if state is None else decode_stored(state.data)
        if state is None or data is None or not filter_.concerns(data):
            raise Problem(404, "there is no such object")
        members = {
            "type": data.type,
            "id": data.id,
            "parents": data.parents,
            "timestamp": data.timestamp,
            "deleted": state.deleted,
            "position": position_at(state.mark, bounds.first_offset),
        }
        if self._framer.object_url:
            members["ref"] = self._framer.ref(data)
        return Response(msgspec.json.encode(members), 200, _HEADERS, JSON)

    async def page(self, request: Request) -> Response:
        """Answer with a page of live objects."""
        query = request.query_params
        filter_, is_narrow = await self._reader(request, query)
        limit = _limit_of(query)
        place = _place_of(query) or _Place(await self._position(), "")
        reading = self._read(place.after, limit, filter_, is_narrow=is_narrow)
        states, after = await (while_connected(request, reading) if is_narrow else reading)
        headers = {**_HEADERS, POSITION: place.position, **shard_header(filter_.shard)}
        if after is not None:
            headers[NEXT] = cursor(place._replace(after=after))
        return Response("".join(map(self._line, states)), 200, headers, NDJSON)

    async def _reader(self, request: Request, query: QueryParams) -> tuple[Filter, bool]:
        """Return the filter of a request, and whether its client may not see all objects.

        ``query``: where a filter is asked for. Raises Problem.
        """
        caller = await self._readers.caller(request)
        caller.require_read(OPLOG)
        try:
            filter_ = caller.right.narrow(filter_of(query, self._max_filter_values))
        except FilterError as error:
            raise Problem(400, str(error)) from None
        return filter_, caller.right.is_narrow

    async def _position(self) -> str:
        """Return the position of a snapshot that is read from now on."""
        mark = await self._store.checkpoint()
        return position_at(mark, (await self._store.locate(mark.offset)).first_offset)

    async def _read(
        self, after: str, limit: int, filter_: Filter, *, is_narrow: bool
    ) -> tuple[list[ObjectState], str | None]:
        """Return objects past a key, and the key behind which more may follow.

        ``is_narrow``: this key must be of an object that is shown. So a page of such a client may
        take a look at all objects, as its replication does.
        """
        found: list[ObjectState] = []
        size = 0
        for reads in count(1):
            left = limit - len(found)
            async with self._slots:
                page = await self._store.objects.page(
                    after, _PAGE if any(filter_) else min(_PAGE, left), filter_
                )
            found += page.states[:left]
            if len(page.states) > left:
                return found, found[-1].key
            if page.next is None:
                return found, None
            after = page.next
            size += sum(len(state.data) for state in page.states)
            if len(found) == limit or size >= _ENOUGH:
                return found, found[-1].key
            if reads == _MOST_READS and not is_narrow:
                return found, after
        raise AssertionError  # the loop has no end of its own

    def _line(self, state: ObjectState) -> str:
        if self._framer.object_url:
            return f"{self._framer.with_ref(state.data, decode_stored(state.data))}\n"
        return f"{state.data}\n"


def _limit_of(query: QueryParams) -> int:
    """Return the most objects of a page. Raises Problem 400."""
    given = query.get("limit")
    if given is None:
        return DEFAULT_LIMIT
    if _NUMBER.fullmatch(given) and 1 <= int(given) <= MAX_LIMIT:
        return int(given)
    raise Problem(400, f"limit: must be a whole number from 1 to {MAX_LIMIT:,}")


def _place_of(query: QueryParams) -> _Place | None:
    """Return the place where a page begins, None for the first page. Raises MessageError."""
    place = key_in(query.get("after", ""), _Place, _MAX_CURSOR)
    if place is not None:
        try:
            parse_position(place.position)
        except PositionError:
            raise MessageError("after", f"must be what {NEXT} of a page says") from None
    return place


def add_objects(app: FastAPI, objects: Objects) -> None:
    @app.get("/objects")
    @described(
        "operations",
        *ERRORS,
        answer={NDJSON: _EXAMPLE},
        headers={
            NEXT: "There may be more objects: `after` of the next page.",
            SHARD: SHARD_TEXT,
            POSITION: "The event id from which to follow this snapshot. All its pages repeat it.",
        },
        asks=OF_OBJECTS,
    )
    async def list_objects(request: Request) -> Response:
        """List the objects that exist.

        Returns a page: one object per line, in the order of type and id, and about 1 MB at most. A
        page may be short or empty although more follow: go on while there is `Oplog-Next`. The
        pages are a snapshot. After the last one follow `/ops` with the `Oplog-Position` of the
        first one as Last-Event-ID, and apply the operations in their order.
        """
        return await objects.page(request)

    @app.get("/objects/{type}/{id:path}")
    @described("operations", *(*ERRORS, 404), answer=ObjectAnswer, asks=OF_OBJECT)
    async def show_object(request: Request) -> Response:
        """Show an object.

        Also one that was deleted. Its last operation tells its parents and the time. The id may
        contain `/`.
        """
        return await objects.find(request)
