"""The catalogue of topics: create, change, show, list, delete. The schemas of their bodies."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI, Response

from oplogd.model.names import OPLOG, SYSTEM, TopicName, check_name, no_topic
from oplogd.store import Store
from oplogd.store.topics import Namespace, Topic
from oplogd.stream.feeds import Feeds
from oplogd.topics.codec.avro import SCHEMAS
from oplogd.topics.known import KnownTopics
from oplogd.topics.properties import (
    CheckedProperties,
    TopicProperties,
    parse_properties,
    rules_shown,
    shown,
)
from oplogd.web.access.caller import Caller
from oplogd.web.access.rights import Right
from oplogd.web.describe import types
from oplogd.web.describe.document import ERRORS, described
from oplogd.web.describe.parameters import NamespacePart, SchemaName
from oplogd.web.http.cursors import key_in
from oplogd.web.http.problem import Problem
from oplogd.web.v1 import requests
from oplogd.web.v1.pages import MORE, Asked, asked_page, listed
from oplogd.web.v1.requests import (
    HEADERS,
    TOPIC,
    TOPICS,
    Api,
    answer,
    json_body,
    refuse_reserved,
    require_known,
)

NAMESPACES = "/v1/namespaces"

# No body is longer.
_MAX_BYTES = 16 * 1024


def add_topics(
    app: FastAPI,
    api: Api,
    store: Store,
    known: KnownTopics,
    feeds: Feeds,
    sweep: Callable[[], None],
) -> None:
    """Add the endpoints. ``sweep``: begins to remove messages without readers."""
    topics, appends = store.topics, api.appends
    body = json_body(api.bodies, parse_properties, _MAX_BYTES, of_any_type=True)

    async def manageable(name: TopicName = Depends(api.manageable)) -> TopicName:
        """Return a topic that may be created, changed or deleted. Raises Problem."""
        refuse_reserved(name)
        return name

    @app.put(TOPIC)
    @described("topics", *(*ERRORS, 409, 413, 507), body=TopicProperties, answer=types.TopicAnswer)
    async def create_topic(
        caller: Caller = Depends(api.writer),
        name: TopicName = Depends(manageable),
        given: CheckedProperties = body,
    ) -> Response:
        """Create a topic.

        Without a time to live the topic has the store's default, without `pointer_timeout` the
        agent's `--pointer-timeout`.
        """
        api.require_still(caller)
        create = topics.create(name, given.ttl, given.pointers, max_bytes=given.max_bytes)
        return answer(await show(await appends.confirmed(create)))

    @app.put(f"{TOPIC}/properties")
    @described("topics", *(*ERRORS, 404, 409, 413), body=TopicProperties, answer=types.TopicAnswer)
    async def change_topic(
        caller: Caller = Depends(api.writer),
        name: TopicName = Depends(manageable),
        given: CheckedProperties = body,
    ) -> Response:
        """Change the properties of a topic.

        Replaces all properties: an absent one gets its default. Pointers that are open keep their
        time-outs.
        """
        api.require_still(caller)
        change = topics.change(name, given.ttl, given.pointers, max_bytes=given.max_bytes)
        topic = await appends.confirmed(change)
        known.forget(name)
        feeds.changed(topic)
        sweep()
        return answer(await show(topic))

    @app.delete(TOPIC)
    @described("topics", *ERRORS, 404, 409)
    async def delete_topic(name: TopicName = Depends(manageable)) -> Response:
        """Delete a topic with its messages.

        A topic that is created again under this name is empty, and its ids go on ascending.
        """
        await appends.confirmed(topics.delete(name))
        known.forget(name)
        feeds.deleted()
        sweep()
        return Response(status_code=200, headers=HEADERS)

    @app.get(TOPIC)
    @described("topics", *ERRORS, 404, answer=types.TopicAnswer)
    async def show_topic(name: TopicName = Depends(api.visible)) -> Response:
        """Show a topic.

        Shows the time to live that counts, and the other properties that are not the default. The
        topic `system/oplog` holds the operations.
        """
        if name == OPLOG:
            return requests.shown(await show_oplog())
        require_known(name)
        return requests.shown(await show(await existing(name)))

    @app.get(TOPICS)
    @described("topics", *ERRORS, answer=list[types.TopicAnswer], headers=MORE)
    async def list_topics(
        namespace: NamespacePart,
        caller: Caller = Depends(api.reader),
        asked: Asked = Depends(asked_page),
    ) -> Response:
        """List the topics of a namespace, sorted by name.

        A namespace needs no creation: without topics the list is empty. Only topics that the client
        may read, write or manage are shown.
        """
        check_name(namespace, "namespace")
        right = caller.right

        async def seen(found: Sequence[Topic | TopicName]) -> list[Topic | TopicName]:
            return [each for each in found if right.may_see(_full_name(each))]

        return await listed(asked, partial(read_page, namespace), _name, show_page, seen)

    @app.get(NAMESPACES)
    @described("topics", *ERRORS, answer=list[types.NamespaceAnswer], headers=MORE)
    async def list_namespaces(
        caller: Caller = Depends(api.reader), asked: Asked = Depends(asked_page)
    ) -> Response:
        """List the namespaces that have topics, sorted by name.

        The namespace `system` is always there: it has the topic `system/oplog`. Only topics that
        the client may read, write or manage count.
        """

        async def seen(found: Sequence[Namespace]) -> list[Namespace]:
            own = [await seen_in(each, caller.right) for each in found]
            return [each for each in own if each.topics]

        return await listed(asked, read_namespaces, lambda each: each.name, as_they_are, seen)

    @app.get("/v1/schemas/{name}")
    @described("topics", 404, answer=dict[str, Any])
    async def schema(name: SchemaName) -> Response:
        """Show the Avro schema of a request or an answer.

        Bodies of the type `avro/binary` are bare data, without a container. An agent that was
        installed without Avro refuses them (415). Needs no password.
        """
        found = SCHEMAS.get(name)
        if found is None:
            raise Problem(404, f"there is no schema {name}; there are {', '.join(SCHEMAS)}")
        return requests.shown(found)

    async def read_page(namespace: str, after: str, limit: int) -> list[Topic | TopicName]:
        """Return topics past a cursor, with the oplog in its namespace."""
        past = key_in(after, str) or ""
        found: list[Topic | TopicName] = [*await topics.in_namespace(namespace, past, limit)]
        if namespace == SYSTEM and past < OPLOG.topic:
            found.append(OPLOG)
            found.sort(key=_name)
        return found[:limit]

    async def show_page(found: Sequence[Topic | TopicName]) -> list[dict[str, Any]]:
        needs_default = any(isinstance(each, Topic) and each.ttl is None for each in found)
        default = await topics.default_ttl() if needs_default else 0
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

    async def seen_in(namespace: Namespace, right: Right) -> Namespace:
        """Return a namespace with the number of topics that a right shows."""
        if right.sees_namespace(namespace.name):
            return namespace
        named = right.named_in(namespace.name)
        there = [name == OPLOG or await topics.find(name) is not None for name in named]
        return namespace._replace(topics=sum(there))

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


def _full_name(found: Topic | TopicName) -> TopicName:
    return found.name if isinstance(found, Topic) else found


def _name(found: Topic | TopicName) -> str:
    return _full_name(found).topic


def _shown(topic: Topic, default_ttl: int) -> dict[str, Any]:
    properties = {
        "ttl": default_ttl if topic.ttl is None else topic.ttl,
        **rules_shown(topic.pointers),
    }
    if topic.max_bytes is not None:
        properties["max_bytes"] = topic.max_bytes
    return shown(topic.name.topic, properties)
