"""The catalogue of topics: create, change, show, list, delete."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.decode.media_types import JSON
from oplogd.decode.pieces import Pieces
from oplogd.ingest.appends import Appends
from oplogd.model.names import OPLOG, SYSTEM, TopicName, no_topic
from oplogd.store import Store
from oplogd.store.topics import Namespace, Topic
from oplogd.stream.feeds import Feeds
from oplogd.topics.known import KnownTopics
from oplogd.topics.properties import parse_properties, rules_shown, shown
from oplogd.topics.rights import Right, Rights
from oplogd.web.describe import topics as describe
from oplogd.web.http.bodies import BodyReader, small_body
from oplogd.web.http.problem import COMMON_HEADERS
from oplogd.web.v1.pages import asked_page, key_in, listed
from oplogd.web.v1.requests import (
    HEADERS,
    name_of,
    namespace_of,
    problems,
    refuse_reserved,
    require_known,
)

NAMESPACES = "/v1/namespaces"
TOPICS = f"{NAMESPACES}/{{namespace}}/topics"
TOPIC = f"{TOPICS}/{{topic}}"

# Topics that are encoded at a time.
_LIST_PIECE = 100


def add_topics(
    app: FastAPI,
    rights: Rights[Request],
    store: Store,
    known: KnownTopics,
    feeds: Feeds,
    bodies: BodyReader,
    appends: Appends,
    sweep: Callable[[], None],
) -> None:
    """Add the endpoints. ``sweep``: begins to remove messages that nobody can read."""
    topics = store.topics

    @app.put(TOPIC, **describe.CREATE)
    async def create(request: Request) -> Response:
        name = name_of(request)
        rights.require(request, Right.WRITE, *name)
        refuse_reserved(name)
        body = await small_body(request)
        with problems():
            ttl, pointers, max_bytes = parse_properties(body)
            create = topics.create(name, ttl, pointers, max_bytes=max_bytes)
            topic = await appends.confirmed(create)
            return _json(await show(topic))

    @app.put(f"{TOPIC}/properties", **describe.CHANGE)
    async def change(request: Request) -> Response:
        name = name_of(request)
        rights.require(request, Right.WRITE, *name)
        refuse_reserved(name)
        body = await small_body(request)
        with problems():
            ttl, pointers, max_bytes = parse_properties(body)
            change = topics.change(name, ttl, pointers, max_bytes=max_bytes)
            topic = await appends.confirmed(change)
            known.forget(name)
            feeds.changed(topic)
            sweep()
            return _json(await show(topic))

    @app.delete(TOPIC, **describe.DELETE)
    async def delete(request: Request) -> Response:
        name = name_of(request)
        rights.require(request, Right.WRITE, *name)
        refuse_reserved(name)
        with problems():
            await appends.confirmed(topics.delete(name))
        known.forget(name)
        sweep()
        return Response(status_code=200, headers=HEADERS)

    @app.get(TOPIC, **describe.SHOW)
    async def get(request: Request) -> Response:
        name = name_of(request)
        rights.require(request, Right.READ, *name)
        with problems():
            if name == OPLOG:
                return _json(await show_oplog(), COMMON_HEADERS)
            require_known(name)
            return _json(await show(await existing(name)), COMMON_HEADERS)

    @app.get(TOPICS, **describe.LIST)
    async def list_(request: Request) -> Response:
        namespace = namespace_of(request)
        rights.require(request, Right.READ, namespace)
        with problems():
            asked = asked_page(request.query_params)
            if not asked.is_whole:
                return await listed(asked, partial(read_page, namespace), _name, show_page)
            found = await topics.in_namespace(namespace)
            default = await topics.default_ttl() if any(t.ttl is None for t in found) else 0
            others = [await show_oplog()] if namespace == SYSTEM else []
        body = await bodies.work(encoding_list(found, default, others))
        return Response(body, 200, COMMON_HEADERS, JSON)

    @app.get(NAMESPACES, **describe.NAMESPACES)
    async def namespaces(request: Request) -> Response:
        rights.require(request, Right.READ, SYSTEM)
        with problems():
            asked = asked_page(request.query_params)
            return await listed(asked, read_namespaces, lambda each: each.name, as_they_are)

    async def read_page(namespace: str, after: str, limit: int) -> list[Topic | TopicName]:
        """Return topics past a cursor, and the oplog among those of its namespace."""
        past = key_in(after, str) or ""
        found: list[Topic | TopicName] = [*await topics.in_namespace(namespace, past, limit)]
        if namespace == SYSTEM and past < OPLOG.topic:
            found.append(OPLOG)
            found.sort(key=_name)
        return found[:limit]

    async def show_page(found: Sequence[Topic | TopicName]) -> list[dict[str, Any]]:
        default = await topics.default_ttl()
        return [
            _shown(each, default) if isinstance(each, Topic) else await show_oplog()
            for each in found
        ]

    async def read_namespaces(after: str, limit: int) -> list[Namespace]:
        """Return namespaces past a cursor. That of the built-in topics has the oplog."""
        past = key_in(after, str) or ""
        found = {each.name: each for each in await topics.namespaces(past, limit)}
        if past < SYSTEM:
            own = found.get(SYSTEM, Namespace(SYSTEM, 0))
            found[SYSTEM] = own._replace(topics=own.topics + 1)
        return sorted(found.values())[:limit]

    async def as_they_are(found: Sequence[Namespace]) -> list[dict[str, Any]]:
        return [each._asdict() for each in found]

    async def existing(name: TopicName) -> Topic:
        topic = await topics.find(name)
        if topic is None:
            raise no_topic(name)
        return topic

    async def show(topic: Topic) -> dict[str, Any]:
        return _shown(topic, await topics.default_ttl() if topic.ttl is None else 0)

    async def show_oplog() -> dict[str, Any]:
        return shown(OPLOG.topic, {"bytes": (await store.stats()).max_bytes})


def encoding_list(
    found: Sequence[Topic], default_ttl: int, others: list[dict[str, Any]]
) -> Pieces[bytes]:
    """Return the body that lists topics in the order of their names.

    ``found``: topics in this order. ``others``: members of topics that are not in the store.
    """
    encoded: list[bytes] = []
    for first in range(0, len(found), _LIST_PIECE):
        for topic in found[first : first + _LIST_PIECE]:
            while others and others[0]["name"] < topic.name.topic:
                encoded.append(msgspec.json.encode(others.pop(0)))
            encoded.append(msgspec.json.encode(_shown(topic, default_ttl)))
        yield
    encoded += map(msgspec.json.encode, others)
    return b"[" + b",".join(encoded) + b"]"


def _name(found: Topic | TopicName) -> str:
    return found.name.topic if isinstance(found, Topic) else found.topic


def _shown(topic: Topic, default_ttl: int) -> dict[str, Any]:
    properties = {
        "ttl": default_ttl if topic.ttl is None else topic.ttl,
        **rules_shown(topic.pointers),
    }
    if topic.max_bytes is not None:
        properties["max_bytes"] = topic.max_bytes
    return shown(topic.name.topic, properties)


def _json(body: Any, headers: dict[str, str] = HEADERS) -> Response:
    return Response(msgspec.json.encode(body), 200, headers, JSON)
