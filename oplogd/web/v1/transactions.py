"""Transactions: begin, write records, commit, abort, show, list."""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.decode.buffers import Buffer
from oplogd.decode.media_types import JSON
from oplogd.ingest.appends import Appends
from oplogd.ingest.ignored import Ignored, IgnoredMembers
from oplogd.model.names import SYSTEM
from oplogd.model.operation import format_ms
from oplogd.model.transaction import parse_id
from oplogd.store.transactions import Transaction
from oplogd.topics.rights import Right, Rights
from oplogd.topics.transactions import answers, rules
from oplogd.topics.transactions.service import TransactionService
from oplogd.web.describe import transactions as describe
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.fence import fence_of
from oplogd.web.http.ignored import told
from oplogd.web.http.problem import COMMON_HEADERS
from oplogd.web.v1.pages import Asked, key_in, listed
from oplogd.web.v1.requests import (
    HEADERS,
    continuing,
    problems,
    read_json,
    refuse_stopping,
    require_json,
)

TXNS = "/v1/txns"
TXN = f"{TXNS}/{{txn}}"

# No body of a begin, commit or abort is longer.
_MAX_BYTES = 16 * 1024


def add_transactions(
    app: FastAPI,
    rights: Rights[Request],
    service: TransactionService,
    ignored: IgnoredMembers,
    bodies: BodyReader,
    appends: Appends,
    is_stopping: Callable[[], bool],
) -> None:
    @app.post(TXNS, **describe.BEGIN)
    async def begin(request: Request) -> Response:
        require_write(request)
        with continuing():
            asked = rules.parse_begin(await read(request))._replace(fence=fence_of(request))
            if asked.topic is not None:
                rights.require(request, Right.WRITE, *asked.topic)
            transaction = await appends.confirmed(service.begin(asked))
        id_ = str(transaction.id)
        body = {"txn": id_, "expires_at": format_ms(transaction.expires_ms)}
        return _json(body, {**HEADERS, "Location": f"{TXNS}/{id_}"}, 201)

    @app.post(f"{TXN}/records", **describe.RECORDS)
    async def write(request: Request) -> Response:
        require_write(request)
        with continuing():
            id_ = id_of(request)
            await service.require_fence(id_, fence_of(request))
            found = Ignored()
            writing = await read_records(request, found)
            for name in writing.topics:
                rights.require(request, Right.WRITE, *name)
            written = await appends.confirmed(service.write(id_, writing))
            return await show(written, HEADERS | told(request, found, ignored))

    @app.post(f"{TXN}/commit", **describe.COMMIT)
    async def commit(request: Request) -> Response:
        require_write(request)
        with continuing():
            id_ = id_of(request)
            await service.require_fence(id_, fence_of(request))
            count = rules.parse_commit(await read(request))
            done = await appends.confirmed(service.commit(id_, count))
        return Response(await bodies.work(answers.encoding_commit(done)), 200, HEADERS, JSON)

    @app.post(f"{TXN}/abort", **describe.ABORT)
    async def abort(request: Request) -> Response:
        require_write(request)
        with continuing():
            id_ = id_of(request)
            await service.require_fence(id_, fence_of(request))
            rules.parse_abort(await read(request))
            return await show(await appends.confirmed(service.abort(id_)))

    @app.get(TXN, **describe.SHOW)
    async def get(request: Request) -> Response:
        rights.require(request, Right.READ, SYSTEM)
        with problems():
            return await show(await service.find(id_of(request)), COMMON_HEADERS)

    @app.get(TXNS, **describe.LIST)
    async def list_(request: Request) -> Response:
        rights.require(request, Right.READ, SYSTEM)
        query = request.query_params
        with problems():
            state = rules.parse_state(query.get("state"))
            group = rules.group_name(query["group"]) if "group" in query else None
            limit = rules.parse_limit(query.get("limit"))
            return await listed(
                Asked(limit, query.get("after", "")),
                lambda after, most: service.select(state, group, most, key_in(after, int)),
                lambda each: int(each.id),  # of MongoDB it is a number of another type
                service.shown,
            )

    def require_write(request: Request) -> None:
        rights.require(request, Right.WRITE, SYSTEM)
        refuse_stopping(is_stopping)

    async def read(request: Request) -> Buffer:
        return await read_json(bodies, request, _MAX_BYTES)

    async def read_records(request: Request, found: Ignored) -> rules.Writing:
        async with bodies.received(request, "records") as raw:
            require_json(request, raw)
            return await bodies.work(
                rules.parsing_records(raw, bodies.arrival(), service.limits.records, found.add)
            )

    async def show(transaction: Transaction, headers: dict[str, str] = HEADERS) -> Response:
        return _json((await service.shown([transaction]))[0], headers)

    def id_of(request: Request) -> int:
        return parse_id(request.path_params["txn"])


def _json(body: Any, headers: dict[str, str], status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, headers, JSON)
