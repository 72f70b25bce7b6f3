"""Targets of sinks on real servers. The tests of the contract run over each of them."""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import psycopg
import pytest
from psycopg import sql
from pymongo import MongoClient

from oplog_pipe.sinks.base import Owned, Sink
from oplog_pipe.sinks.mongodb import MongodbOptions
from oplog_pipe.sinks.mongodb.sink import MongodbSink
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.sinks.postgres.sink import PostgresSink
from oplog_pipe.sinks.search import ElasticsearchOptions
from oplog_pipe.sinks.search.sink import ElasticsearchSink
from tests.kits.pipe.messages import owner
from tests.kits.servers.mongo import RunningMongo, new_database
from tests.kits.servers.opensearch import OpenSearchServer
from tests.kits.servers.ports import free_port
from tests.kits.servers.postgres import PostgresServer

# A password that no message of an error may show.
SECRET = "geheim-4711"
_numbers = itertools.count(1)


class Stored(NamedTuple):
    """An object as the target has it. ``timestamp``: ms since 1970."""

    version: int
    source: str
    timestamp: int
    data: Any


class OwnedSink(Sink, Owned, Protocol):
    pass


SinkT = TypeVar("SinkT", bound=OwnedSink)


@contextmanager
def opened(made: SinkT, whose: Owner | None = None) -> Iterator[SinkT]:
    """Give a sink an owner, open it, and close it at the end."""
    made.own(whose or owner())
    made.open()
    try:
        yield made
    finally:
        made.close()


class Target(Protocol):
    """A new, empty target."""

    def sink(self, namespace: str = ".*") -> OwnedSink:
        """Return a sink that is not open yet, and has no owner."""

    def away(self) -> Sink:
        """Return a sink whose server is not there, and whose settings hold ``SECRET``."""

    def misconfigured(self) -> Callable[[], Sink]:
        """Return a function that makes a sink. Its address holds ``SECRET``, and is wrong."""

    def objects(self, namespace: str = "video") -> dict[str, Stored]:
        """Return all objects of a namespace by their ids."""

    def bad_data(self) -> Any:
        """Return JSON that this target refuses as the data of an object."""

    def settings(self) -> dict[str, Any]:
        """Return the settings of its sink, without a name."""


class PostgresTarget:
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.new_database()

    def sink(self, namespace: str = ".*", **options: Any) -> PostgresSink:
        return PostgresSink(PostgresOptions(self.url, **options), namespace)

    def away(self) -> Sink:
        url = f"postgresql://user:{SECRET}@127.0.0.1:{free_port()}/db"
        return PostgresSink(PostgresOptions(url))

    def misconfigured(self) -> Callable[[], Sink]:
        return lambda: PostgresSink(PostgresOptions(f"postgresql://user:p@{SECRET}@127.0.0.1/db"))

    def objects(self, namespace: str = "video") -> dict[str, Stored]:
        query = sql.SQL(
            'SELECT id, version, source, (extract(epoch FROM "timestamp") * 1000)::bigint, data'
            " FROM {}"
        ).format(sql.Identifier(namespace))
        with psycopg.connect(self.url) as connection:
            return {row[0]: Stored(*row[1:]) for row in connection.execute(query).fetchall()}

    def bad_data(self) -> Any:
        return {"text": "\0"}

    def settings(self) -> dict[str, Any]:
        return {"type": "postgres", "url": self.url}

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.run(statement, self.url.rpartition("/")[2])


class MongodbTarget:
    def __init__(self, server: RunningMongo) -> None:
        self.url, _, self._database = new_database(server.url).rpartition("/")

    def sink(self, namespace: str = ".*", *, url: str = "", **options: Any) -> MongodbSink:
        chosen = MongodbOptions(url or self.url, self._database, **options)
        return MongodbSink(chosen, namespace)

    def away(self) -> Sink:
        url = f"mongodb://user:{SECRET}@127.0.0.1:{free_port()}"
        return MongodbSink(MongodbOptions(url, "db", timeout=0.2))

    def misconfigured(self) -> Callable[[], Sink]:
        return lambda: MongodbSink(MongodbOptions(f"mongodb://user:a/{SECRET}@127.0.0.1", "db"))

    def objects(self, namespace: str = "video") -> dict[str, Stored]:
        return {
            each["_id"]: Stored(
                each["version"],
                each["source"],
                round(each["timestamp"].timestamp() * 1000),
                each["data"],
            )
            for each in self.do(lambda database: list(database[namespace].find()))
        }

    def bad_data(self) -> Any:
        return {"number": 1 << 64}

    def settings(self) -> dict[str, Any]:
        return {"type": "mongodb", "url": self.url, "database": self._database}

    def do(self, work: "Callable[[Any], Result]") -> "Result":
        with MongoClient[Any](self.url, tz_aware=True) as client:
            return work(client[self._database])


class ElasticsearchTarget:
    """One index for all namespaces: not every namespace can be the name of an index."""

    def __init__(self, server: OpenSearchServer) -> None:
        self._server = server
        self._index = f"target-{os.getpid()}-{next(_numbers)}"  # all processes share the server
        # By itself the server refuses a list of values of several types.
        mapping = {"properties": {"list": {"type": "object", "enabled": False}}}
        server.ask("PUT", f"/{self._index}", {"mappings": mapping})

    def sink(self, namespace: str = ".*") -> ElasticsearchSink:
        return self._sink(self._server.url, namespace)

    def away(self) -> Sink:
        return self._sink(f"http://user:{SECRET}@127.0.0.1:{free_port()}")

    def misconfigured(self) -> Callable[[], Sink]:
        return lambda: self._sink(f"ftp://user:{SECRET}@127.0.0.1")

    def objects(self, namespace: str = "video") -> dict[str, Stored]:
        found = {}
        for id, document in self._server.documents(self._index).items():
            own = document.pop("oplog")
            time = datetime.fromisoformat(own["timestamp"])
            if own["namespace"] == namespace:
                ms = round(time.timestamp() * 1000)
                key = id.removeprefix(f"{namespace}/")
                found[key] = Stored(own["version"], own["source"], ms, document)
        return found

    def bad_data(self) -> Any:
        return {".": 1}

    def settings(self) -> dict[str, Any]:
        place = {"index": self._index, "id": "{namespace}/{id}"}
        return {"type": "elasticsearch", "urls": [self._server.url], **place}

    def _sink(self, url: str, namespace: str = ".*") -> ElasticsearchSink:
        options = ElasticsearchOptions((url,), index=self._index, id="{namespace}/{id}")
        return ElasticsearchSink(options, namespace)


Result = TypeVar("Result")


def new_target(kind: str, request: pytest.FixtureRequest) -> Target:
    """Return a new target on the running server of its kind."""
    match kind:
        case "postgres":
            return PostgresTarget(request.getfixturevalue("postgres"))
        case "mongodb":
            return MongodbTarget(request.getfixturevalue("java"))
        case "elasticsearch":
            return ElasticsearchTarget(request.getfixturevalue("opensearch"))
    raise AssertionError(kind)


def has_no_secret(error: BaseException) -> bool:
    return not re.search(SECRET, f"{error!r} {error}")
