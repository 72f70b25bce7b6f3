"""Named consumers: create, show, seek, delete; their streams and acknowledgements."""

import re
from collections.abc import Sequence

from fastapi import Depends, FastAPI, Request, Response
from starlette.datastructures import QueryParams

from oplogd.decode.media_types import EVENT_STREAM
from oplogd.model.consumer import ConsumerSettings, ShardKey
from oplogd.model.lease import MAX_TERM
from oplogd.model.names import OPLOG
from oplogd.store.consumers import ConsumerRow
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.ring.filters import Filter
from oplogd.topics.consumers import rules
from oplogd.topics.consumers.lags import filter_of
from oplogd.topics.consumers.service import NamedConsumers
from oplogd.web.access.caller import Caller, missing
from oplogd.web.describe.document import BODY_ERRORS, ERRORS, READ, described
from oplogd.web.describe.parameters import ConsumerName, ShardNumber, TermQuery
from oplogd.web.http.cursors import key_in
from oplogd.web.http.headers import TERM
from oplogd.web.http.problem import Problem
from oplogd.web.oplog.stream import Streams
from oplogd.web.oplog.stream_request import (
    FILTER_SLIPS,
    SHARD_SLIPS,
    normalised,
    refuse_slips,
)
from oplogd.web.v1.pages import MORE, Asked, asked_page, listed
from oplogd.web.v1.requests import HEADERS, Api, answer, json_body, shown

CONSUMERS = "/v1/consumers"
CONSUMER = f"{CONSUMERS}/{{name}}"

_MAX_SETTINGS_BYTES = 256 * 1024
# Bytes of an acknowledgement, or of a seek.
MAX_BYTES = 4 * 1024
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")

# Parameters of streams that a named consumer has in its settings, or in its position.
_OWN = {
    *FILTER_SLIPS,
    *("ids", "events", "isolation", "since", "start"),
    *("last_event_id", "lasteventid", "last_event", "lastevent"),
}
# Its own parameters by the names that are easily mistaken for theirs.
_SLIPS = {**SHARD_SLIPS, "term": "term", "terms": "term"}
_OWN_TEXT = "the settings and the position of a named consumer tell this"

_EXAMPLE = """id: 0000018bcfe56800000000000000000000000000
event: message
data: {"payload":"one"}

"""


def add_consumers(
    app: FastAPI,
    api: Api,
    consumers: NamedConsumers,
    streams: Streams,
    max_filter_values: int,
) -> None:
    async def found(request: Request, name: str = Depends(name_of)) -> ConsumerRow:
        """Return a consumer that the client may read. Raises Problem."""
        caller = await api.reader(request)
        row = await consumers.find(name)
        require_all(caller, row.consumer.settings)
        return row

    async def managed(
        caller: Caller = Depends(api.writer), name: str = Depends(name_of)
    ) -> ConsumerRow:
        """Return a consumer that the client may move and delete. Raises Problem."""
        row = await consumers.find(name)
        if row.consumer.settings.log not in caller.right.manage:
            raise missing("manage the log of this consumer")
        return row

    @app.put(CONSUMER)
    @described(
        "consumers",
        *(*BODY_ERRORS, 404, 409, 507),
        body=rules.ConsumerBody,
        needs_body=True,
        answer=rules.ConsumerShown,
        text="A consumer with these settings exists already. Its positions stay.",
        also={201: ("The consumer was created.", rules.ConsumerShown)},
    )
    async def create_consumer(
        caller: Caller = Depends(api.writer),
        name: str = Depends(name_of),
        asked: rules.ConsumerBody = json_body(api.bodies, rules.parse_body, _MAX_SETTINGS_BYTES),
    ) -> Response:
        """Create a named consumer.

        The agent keeps a position for each of its shards. The name is free to choose, one for all
        logs. The settings never change: with other settings the answer is 409. Repeat it as you
        like: with the same settings nothing changes.
        """
        api.require_still(caller)
        settings = rules.settings_of(asked, max_filter_values)
        caller.require_manage(settings.log)
        row, is_new = await consumers.create(name, settings, asked.start)
        return answer(await consumers.show(row), status=201 if is_new else 200)

    @app.get(CONSUMER)
    @described("consumers", *(*ERRORS, 404), answer=rules.ConsumerShown)
    async def show_consumer(row: ConsumerRow = Depends(found)) -> Response:
        """Show a named consumer.

        With the position, the term and the lag of each of its shards. Entries behind an
        acknowledged position count as lag, whether they were sent or not.
        """
        return shown(await consumers.show(row))

    @app.get(CONSUMERS)
    @described("consumers", *ERRORS, answer=list[rules.ConsumerListed], headers=MORE)
    async def list_consumers(
        caller: Caller = Depends(api.reader), asked: Asked = Depends(asked_page)
    ) -> Response:
        """List the named consumers, sorted by name.

        Only consumers of logs that the client may read are shown.
        """

        async def seen(rows: Sequence[ConsumerRow]) -> list[ConsumerRow]:
            return [row for row in rows if covers(caller, row.consumer.settings)]

        return await listed(asked, read_page, lambda row: row.consumer.name, show_page, seen)

    async def read_page(after: str, limit: int) -> list[ConsumerRow]:
        return await consumers.select(key_in(after, str) or "", limit)

    async def show_page(rows: Sequence[ConsumerRow]) -> list[rules.ConsumerListed]:
        return [rules.listed(row.consumer) for row in rows]

    @app.delete(CONSUMER)
    @described("consumers", *(*ERRORS, 404), status=204, text="The consumer is gone.")
    async def delete_consumer(row: ConsumerRow = Depends(managed)) -> Response:
        """Delete a named consumer.

        Its streams end.
        """
        await consumers.delete(row.consumer.name)
        return Response(status_code=204, headers=HEADERS)

    @app.post(f"{CONSUMER}/seek")
    @described(
        "consumers",
        *(*BODY_ERRORS, 404),
        body=rules.SeekBody,
        needs_body=True,
        answer=rules.ConsumerShown,
    )
    async def seek_consumer(
        caller: Caller = Depends(api.writer),
        row: ConsumerRow = Depends(managed),
        asked: rules.SeekBody = json_body(api.bodies, rules.parse_seek, MAX_BYTES),
    ) -> Response:
        """Move a named consumer to a position.

        All its shards, or one. Their terms end, and their streams.
        """
        api.require_still(caller)
        return answer(await consumers.show(await consumers.seek(row, asked)))

    @app.post(f"{CONSUMER}/position")
    @described(
        "consumers",
        *(*BODY_ERRORS, 404, 412),
        body=rules.AcknowledgementBody,
        needs_body=True,
        status=204,
        text="The position is durable.",
        rights=READ,
    )
    async def acknowledge(
        caller: Caller = Depends(api.mover),
        name: str = Depends(name_of),
        asked: rules.AcknowledgementBody = json_body(
            api.bodies, rules.parse_acknowledgement, MAX_BYTES
        ),
    ) -> Response:
        """Acknowledge everything up to an id.

        The next reader of the shard begins behind it. An older id changes nothing. If another
        reader has taken the shard, the answer is 412.
        """
        api.require_still_reading(caller)
        key = ShardKey(name, asked.shard)
        require_all(caller, await consumers.settings_of(key, asked.term))
        await consumers.acknowledge(key, asked.term, asked.id)
        return Response(status_code=204, headers=HEADERS)

    @app.get(f"{CONSUMER}/stream")
    @described(
        "consumers",
        *(*ERRORS, 404, 406, 412),
        answer={EVENT_STREAM: _EXAMPLE},
        headers={TERM: "The term of this reader. Acknowledge with it, and reconnect with `term`."},
        asks={"name": ConsumerName, "shard": ShardNumber, "term": TermQuery},
    )
    async def follow_consumer(request: Request) -> Response:
        """Follow a shard of a named consumer.

        Requires `Accept: text/event-stream`. The stream continues at the acknowledged position, as
        that of the log would with this position as Last-Event-ID. It carries checkpoints, which may
        be acknowledged. Without `term` the reader takes the shard over with the next term, and the
        stream of the reader before ends. With `term` it goes on, or gets 412 if another reader has
        taken the shard.
        """
        streams.require_accepted(request, "events")
        name = rules.consumer_name(request.path_params["name"])
        with streams.hub.refusing("bad_request", Problem):
            shard, term = _number(request.query_params, "shard"), _term(request.query_params)
            _refuse_own(request.query_params)
        caller = await streams.caller_of(request, moves=True)
        row = await consumers.find(name)
        settings = row.consumer.settings
        require_all(caller, settings)
        if shard is None and settings.shards > 1:
            raise Problem(400, f"shard: is required, 0 to {settings.shards - 1}")
        number = shard or 0
        rules.require_shard(settings, number)

        async def connect(address: str) -> StreamConsumer:
            return await consumers.connect(row, number, term, address=address, pass_=caller.pass_)

        return await streams.answer(request, caller, connect, settings.shard(number))


def covers(caller: Caller, settings: ConsumerSettings) -> bool:
    """Return whether a client may read everything that a consumer gets."""
    if settings.log not in caller.right.read:
        return False
    wanted: Filter = filter_of(settings, 0)
    return settings.log != OPLOG or caller.right.narrow(wanted) == wanted


def require_all(caller: Caller, settings: ConsumerSettings) -> None:
    """Raise Problem 403 unless a client may read everything that a consumer gets.

    The name of a log is not told to clients that may not read it.
    """
    if settings.log not in caller.right.read:
        raise missing("read the log of this consumer")
    if not covers(caller, settings):
        raise missing("read all types and parents of this consumer")


async def name_of(name: ConsumerName) -> str:
    """Return the consumer in a request's path. Raises ConsumerError."""
    return rules.consumer_name(name)


def _number(query: QueryParams, name: str) -> int | None:
    """Return the number in a parameter, None without one. Raises Problem 400."""
    given = query.get(name, "")
    if not given:
        return None
    if not _NUMBER.fullmatch(given):
        raise Problem(400, f"{name}: must be a whole number")
    return int(given)


def _term(query: QueryParams) -> int | None:
    term = _number(query, "term")
    if term is not None and not 1 <= term <= MAX_TERM:
        raise Problem(400, "term: must be a whole number, at least 1")
    return term


def _refuse_own(query: QueryParams) -> None:
    refuse_slips(query, _SLIPS)
    for name in query:
        if normalised(name) in _OWN:
            raise Problem(400, f"{name}: {_OWN_TEXT}")
