"""Leases: poll, show, release."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.decode.media_types import JSON
from oplogd.errors import TopicError
from oplogd.ingest.appends import Appends
from oplogd.leases import rules
from oplogd.model.lease import lease_name
from oplogd.model.names import SYSTEM
from oplogd.store import Store
from oplogd.store.leases import Lease
from oplogd.topics.rights import Right, Rights
from oplogd.watch.lease_counters import LeaseCounters
from oplogd.web.describe import leases as describe
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.problem import COMMON_HEADERS, Problem
from oplogd.web.v1.pages import asked_page, key_in, listed
from oplogd.web.v1.requests import HEADERS, continuing, problems, read_json, refuse_stopping

LEASES = "/v1/leases"
LEASE = f"{LEASES}/{{lease}}"

# A note of which every character is escaped, and the other members.
_MAX_BYTES = 64 * 1024


def add_leases(
    app: FastAPI,
    rights: Rights[Request],
    store: Store,
    counters: LeaseCounters,
    bodies: BodyReader,
    appends: Appends,
    is_stopping: Callable[[], bool],
) -> None:
    @app.post(LEASE, **describe.POLL)
    async def poll(request: Request) -> Response:
        require_write(request)
        with continuing():
            name = name_of(request)
            asked = rules.parse_poll(name, await read_json(bodies, request, _MAX_BYTES))
            lease = await appends.confirmed(store.leases.poll(asked))
        counters.add_poll(asked.holder, lease)
        return _json(rules.polled(lease, asked.holder))

    @app.get(LEASE, **describe.SHOW)
    async def get(request: Request) -> Response:
        rights.require(request, Right.READ, SYSTEM)
        with problems():
            return _json(rules.shown(await store.leases.find(name_of(request))), COMMON_HEADERS)

    @app.get(LEASES, **describe.LIST)
    async def list_(request: Request) -> Response:
        rights.require(request, Right.READ, SYSTEM)
        with problems():
            asked = asked_page(request.query_params)
            return await listed(asked, read_page, lambda each: each.name, show_page)

    async def read_page(after: str, limit: int) -> list[Lease]:
        return await store.leases.select(key_in(after, str) or "", limit)

    async def show_page(found: Sequence[Lease]) -> list[dict[str, Any]]:
        return [rules.shown(each) for each in found]

    @app.delete(LEASE, **describe.RELEASE)
    async def release(request: Request) -> Response:
        require_write(request)
        with continuing():
            name = name_of(request)
            asked = rules.parse_release(await read_json(bodies, request, _MAX_BYTES))
            lease = await appends.confirmed(store.leases.release(name, asked.holder, asked.term))
        counters.add_release(name)
        return _json(rules.released(lease))

    def require_write(request: Request) -> None:
        rights.require(request, Right.WRITE, SYSTEM)
        refuse_stopping(is_stopping)


def name_of(request: Request) -> str:
    """Return the lease in a request's path. Raises Problem 400."""
    try:
        return lease_name(request.path_params["lease"])
    except TopicError as error:
        raise Problem(400, str(error)) from None


def _json(body: Any, headers: dict[str, str] = HEADERS) -> Response:
    return Response(msgspec.json.encode(body), 200, headers, JSON)
