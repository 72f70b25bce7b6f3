"""Pointers of foreign transactions: store, roll back, report, and show what is in a topic.

Publish and poll are in ``messages``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.decode.media_types import JSON
from oplogd.errors import MessageError
from oplogd.ingest.appends import Appends
from oplogd.model.names import OPLOG, SYSTEM, TopicName
from oplogd.model.pointer import Decision, parse_pointer
from oplogd.store.pointers import OpenPointer, PointerKey
from oplogd.topics.pointers import rules
from oplogd.topics.pointers.service import PointerService
from oplogd.topics.publish import Publisher
from oplogd.topics.rights import Right, Rights
from oplogd.topics.transactions.rules import parse_limit
from oplogd.web.describe import pointers as describe
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.fence import refuse_fence
from oplogd.web.http.problem import COMMON_HEADERS, Problem
from oplogd.web.v1.pages import Asked, asked_page, key_in, listed
from oplogd.web.v1.requests import (
    HEADERS,
    STORES_TWICE,
    codec_for,
    continuing,
    name_of,
    problems,
    read_json,
    read_messages,
    refuse_reserved,
    refuse_stopping,
    require_known,
)
from oplogd.web.v1.topics import TOPIC

POINTERS = "/v1/pointers"
POINTER = f"{POINTERS}/{{pointer}}"

# No report is longer, unless it has many blanks.
_MAX_REPORT_BYTES = 600 * 1024


def add_pointers(
    app: FastAPI,
    rights: Rights[Request],
    service: PointerService,
    publisher: Publisher,
    bodies: BodyReader,
    appends: Appends,
    is_stopping: Callable[[], bool],
) -> None:
    """Add the endpoints. ``publisher`` counts messages that are refused as invalid."""

    @app.post(f"{TOPIC}/store", **describe.STORE)
    async def store(request: Request) -> Response:
        name = writable(request)
        with continuing(STORES_TWICE):
            require_topic(name)
            codec = codec_for(request)
            pointer, messages = await read_messages(request, codec, bodies, publisher)
            if pointer is None:
                raise MessageError("transactionWritePointer", "must not be null")
            if not messages:
                raise MessageError("messages", "there is none")
            await appends.confirmed(service.store(name, pointer, messages))
        return Response(status_code=200, headers=HEADERS)

    @app.post(f"{TOPIC}/rollback", **describe.ROLLBACK)
    async def rollback(request: Request) -> Response:
        name = writable(request)
        with continuing():
            require_topic(name)
            codec = codec_for(request)
            force = rules.parse_force(request.query_params.get("force"))
            async with bodies.received(request, "keys") as raw:
                pointer, stamps = await bodies.work(codec.decode_rollback(raw))
            await appends.confirmed(service.rollback(name, pointer, stamps, force=force))
        return Response(status_code=200, headers=HEADERS)

    @app.post(f"{POINTER}/commit", **describe.COMMIT)
    async def commit(request: Request) -> Response:
        return await decide(request, Decision.COMMITTED)

    @app.post(f"{POINTER}/abort", **describe.ABORT)
    async def abort(request: Request) -> Response:
        return await decide(request, Decision.ABORTED)

    @app.get(f"{TOPIC}/pointers", **describe.POINTERS)
    async def pointers(request: Request) -> Response:
        name = readable(request)
        with problems():
            query = request.query_params
            if rules.parse_state(query.get("state")):
                timed_out = await service.timed_out(name, parse_limit(query.get("limit")))
                return _json([rules.timed_out_shown(each) for each in timed_out], COMMON_HEADERS)
            asked = Asked(parse_limit(query.get("limit")), query.get("after", ""))
            return await listed(
                asked,
                lambda after, most: service.select(name, most, key_in(after, PointerKey)),
                lambda each: PointerKey(each.begun_ms, each.pointer, 0),
                show_page,
            )

    @app.get(POINTERS, **describe.ALL_POINTERS)
    async def all_pointers(request: Request) -> Response:
        rights.require(request, Right.READ, SYSTEM)
        with problems():
            return await listed(
                asked_page(request.query_params),
                lambda after, most: service.select_all(most, key_in(after, PointerKey)),
                lambda each: each.key,
                service.shown,
            )

    async def show_page(found: Sequence[OpenPointer]) -> list[dict[str, Any]]:
        return [rules.pointer_shown(each) for each in found]

    @app.get(f"{TOPIC}/entries", **describe.ENTRIES)
    async def entries(request: Request) -> Response:
        name = readable(request)
        query = request.query_params
        with problems():
            after, limit = rules.parse_after(query.get("after")), parse_limit(query.get("limit"))
            return _json(await service.entries(name, after, limit), COMMON_HEADERS)

    async def decide(request: Request, decision: Decision) -> Response:
        # The topics are in the body, which only clients with a right may send.
        rights.require(request, Right.WRITE, SYSTEM)
        refuse_stopping(is_stopping)
        refuse_fence(request, "reports")
        with continuing():
            pointer = parse_pointer(request.path_params["pointer"], "pointer")
            names = rules.parse_report(await read_json(bodies, request, _MAX_REPORT_BYTES))
            for name in names:
                rights.require(request, Right.WRITE, *name)
                require_known(name)
            await appends.confirmed(service.decide(names, pointer, decision))
        topics = [str(name) for name in names]
        return _json({"pointer": str(pointer), "state": decision, "topics": topics})

    def writable(request: Request) -> TopicName:
        name = name_of(request)
        rights.require(request, Right.WRITE, *name)
        refuse_stopping(is_stopping)
        refuse_fence(request, "messages under a pointer")
        return name

    def readable(request: Request) -> TopicName:
        name = name_of(request)
        rights.require(request, Right.READ, *name)
        with problems():
            if name == OPLOG:
                raise Problem(400, f"{OPLOG} is the log of operations: poll it, or follow /ops")
            require_known(name)
        return name


def require_topic(name: TopicName) -> None:
    """Raise Problem unless messages under pointers may be written to a topic of this name."""
    if name == OPLOG:
        raise Problem(400, rules.NOT_FOR_OPLOG)
    require_known(name)
    refuse_reserved(name)


def _json(body: Any, headers: dict[str, str] = HEADERS) -> Response:
    return Response(msgspec.json.encode(body), 200, headers, JSON)
