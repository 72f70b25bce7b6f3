"""Whatever is kept by a text from outside has a bound: caches, and tables of long-lived objects.

A new one fails here until a row says what bounds it. Check the length of a text before the cache.
"""

import ast
import re
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from oplog_pipe.sinks.parts.lines import quoted
from oplog_relay.agent.encode import EncodeError, topic_of
from oplogc.wire import operation
from oplogc.wire.errors import OperationError
from oplogd.errors import MessageError
from oplogd.topics.transactions.rules import topic_name
from oplogd.web.connection.forwarded import TrustedProxies, plain_address
from tests.kits.paths import ROOT

PACKAGES = ("oplogd", "oplog_pipe", "oplog_relay", "oplog_sync", "oplog_kit", "pyspark_oplog")
PARTS = sorted(ROOT / each for each in (*PACKAGES, "clients/python/oplogc"))
TABLES = {"dict", "set", "OrderedDict", "defaultdict", "Counter"}
EMPTY = {"{}", *(f"{each}()" for each in TABLES)}
TEXTS = {"str", "bytes", "TopicName", "Filter", "Key"}

# Caches with a parameter that is no number, and the bound of a key.
CACHES = {
    "oplogd/model/operation.py: _short_timestamp": "32 characters, checked by the caller",
    "oplogd/store/sqlite/file/parts.py: _insert": "tables in the code; ten numbers of rows",
    "oplogd/topics/transactions/rules.py: _short_topic_name": "499 characters; the caller checks",
    "oplogd/web/connection/forwarded.py: _short_address": "64 characters, checked by the caller",
    "oplog_pipe/message.py: matches": "10,000 types or names of topics",
    "oplog_pipe/sinks/parts/lines.py: _short_quoted": "256 characters, checked by the caller",
    "oplog_relay/agent/encode.py: topic_of": "499 characters: an error is not cached",
    "oplog_relay/agent/publisher.py: self._endpoint": "the path of a name that topic_of returned",
    "oplogc/http/client.py: _tls_context": "two paths of the environment; one entry",
    "oplogc/wire/operation.py: _check_event": "6 characters: an error is not cached",
    "oplogc/wire/operation.py: _check_type": "255 bytes: an error is not cached",
    "oplogd/topics/codec/avro.py: _library": "no parameter",
}

OF_THE_CODE = "names in the code"
OF_THE_SETTINGS = "names in the settings"
TABLE_BOUNDS = {
    "oplogd/watch/health.py: Health._parts": OF_THE_CODE,
    "oplogd/ingest/ignored.py: Ignored._names": "8 names of at most 64 characters",
    "oplogd/watch/lease_counters.py: LeaseCounters._held": "names of leases; dropped at their end",
    "oplogd/web/access/checks.py: Checks._running": "digests; 1,024 at a time",
    "oplogd/web/access/sources.py: Sources._keys": "passwords in use",
    "oplogd/web/access/credentials.py: Credentials._makers": "1,000 principals",
    "oplogd/web/access/keys/verdicts.py: Verdicts._kept": "digests; 4,096, or 16 MB of tokens",
    "oplogd/host/senders.py: SenderEpisodes._episodes": "plain addresses; has a bound",
    "oplogd/shared/inbox.py: Inbox._answerers": OF_THE_CODE,
    "oplogd/shared/inbox.py: Inbox._notices": OF_THE_CODE,
    "oplogd/store/mongo/log/batch.py: BatchAppender._last": "tokens of the agent's own writers",
    "oplogd/store/mongo/log/corrections.py: ObjectsAtHead.last": "keys of one request",
    "oplogd/store/mongo/link/damage.py: Damage._seen": "1,000 keys of 1,300 characters",
    "oplogd/store/mongo/setup/setup.py: Setup.warnings": OF_THE_CODE,
    "oplogd/shared/places.py: OwnPlaces._per_host": "hosts of connected consumers (--max-clients)",
    "oplogd/stream/ring/index.py: Index._roots": OF_THE_CODE,
    "oplogd/stream/ring/index.py: _Node.by_parent": "filters of consumers; few idle ones",
    "oplogd/stream/ring/index.py: _Node.by_type": "filters of consumers; few idle ones",
    "oplogd/stream/ring/index.py: _Root.by_id": "filters of consumers; few idle ones",
    "oplogd/stream/ring/cuts.py: Cuts._cut": "blocks of records; 2 MB",
    "oplogd/stream/ring/ring.py: Ring.views": "filters of connected consumers",
    "oplogd/topics/counters.py: Busiest._candidates": "1,000 names of topics that exist",
    "oplogd/topics/counters.py: Busiest._labelled": "200 names of topics that exist",
    "oplogd/topics/known.py: KnownTopics._known": "10,000 names of topics that exist",
    "oplogd/web/access/guesses/buckets.py: Bucket.wrong": "digests; has a bound",
    "oplogd/web/access/guesses/buckets.py: Buckets._buckets": "plain addresses; has a bound",
    "oplogd/web/access/guesses/attempts.py: AttemptLimiter.known": "plain addresses; has a bound",
    "oplogd/web/connection/forwarded.py: TrustedProxies._addresses": OF_THE_SETTINGS,
    "oplogd/web/describe/document.py: _Schemas.components": OF_THE_CODE,
    "oplog_kit/config/reader.py: Reader._found": "mistakes in one file of settings",
    "oplog_kit/config/reader.py: Reader._variables": OF_THE_CODE,
    "oplog_kit/config/reader.py: Reader._written": "paths in one file of settings",
    "oplog_pipe/deliver/batch.py: Batch.keys": "keys of one batch",
    "oplog_pipe/commitlog/offsets.py: OffsetLog._offsets": OF_THE_SETTINGS,
    "oplog_pipe/deliver/delivery.py: SinkDelivery._pending": "keys behind a letter that is held",
    "oplog_pipe/deliver/fetch.py: Fetcher._fetched": "objects of one call, whose size has a bound",
    "oplog_pipe/deliver/place.py: SinkPlace._unflushed": "keys since the last flush",
    "oplog_pipe/follow/recorder.py: Recorder._saved": OF_THE_SETTINGS,
    "oplog_pipe/sinks/oplog.py: OplogSink._notices": OF_THE_SETTINGS,
    "oplog_pipe/sinks/parts/origin.py: Circles._watched": "64 operations",
    "oplog_pipe/sinks/parts/origin.py: Own._counts": OF_THE_SETTINGS,
    "oplog_pipe/sinks/parts/ownership.py: OwnedRows._judged": "places that exist",
    "oplog_pipe/sinks/postgres/sink.py: PostgresSink._ready": "tables that exist",
    "oplog_pipe/sinks/search/sink.py: ElasticsearchSink._ready": "indexes that exist",
    "oplog_pipe/spark/tables/history.py: HistoryFolder._columns": "columns of one table",
    "oplog_pipe/spark/tables/history.py: HistoryTable._columns": "columns of one result",
    "oplog_pipe/spark/tasks/held.py: Held._kept": OF_THE_SETTINGS,
    "oplog_relay/leader/blocked.py: BlockedKeys._blocks": "keys of blocked rows, up to MAX_BLOCKED",
    "oplog_relay/leader/blocked.py: BlockedKeys._freeing": "keys of blocked rows, to MAX_BLOCKED",
    "oplog_relay/db/postgres/locked_rows.py: LockedRows._keys": "10,000, and those of a mark",
    "oplog_relay/leader/flow.py: Flow._keys": "keys of rows in flight",
    "oplog_relay/leader/flow.py: Flow._since": "keys of rows in flight",
    "oplog_relay/leader/flow.py: _Shard.ready": "topics of rows in flight",
    "oplogc/follow/callbacks.py: Callbacks._events": OF_THE_CODE,
    "oplogc/follow/callbacks.py: Callbacks._types": "names in the caller's code",
    "oplogc/wire/sse.py: BlockParser._fields": "fields of one block, whose size has a bound",
    "oplogc/topics/foreign/publisher.py: AsyncForeignPublisher._parts": "topics of one transaction",
    "oplogc/topics/publish/publisher.py: MessagePublisher._queues": "topics with messages to send",
    "oplogc/topics/publish/publisher.py: MessagePublisher._tasks": "topics with messages to send",
}


def modules(mentioned: re.Pattern[str]) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules with such a text: to read all of them takes a second."""
    for part in PARTS:
        for path in sorted(part.rglob("*.py")):
            if mentioned.search(text := path.read_text(encoding="utf-8")):
                yield path.relative_to(part.parent).as_posix(), ast.parse(text)


def is_cache(node: ast.AST) -> bool:
    """Return whether an expression is ``cache``, ``lru_cache`` or a call of one."""
    if isinstance(node, ast.Call):
        return is_cache(node.func)
    return ast.unparse(node).removeprefix("functools.") in ("cache", "lru_cache")


def takes_a_text(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return any(ast.unparse(each.annotation or each) != "int" for each in arguments)


def caches(module: ast.Module) -> Iterator[str]:
    """Yield the decorated functions that take more than numbers, and the targets of calls."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if any(map(is_cache, node.decorator_list)) and takes_a_text(node):
                    yield node.name
            case ast.Assign(targets=[target], value=ast.Call(func=function)) if is_cache(function):
                yield ast.unparse(target)
            case ast.AnnAssign(target=target, value=ast.Call(func=function)) if is_cache(function):
                yield ast.unparse(target)


def names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_by_text(kind: ast.expr) -> bool:
    """Return whether an annotation is that of a table whose key is, or contains, a text."""
    if not isinstance(kind, ast.Subscript) or not names(kind.value) & TABLES:
        return False
    key = kind.slice.elts[0] if isinstance(kind.slice, ast.Tuple) else kind.slice
    return bool(names(key) & TEXTS)


def tables(module: ast.Module) -> Iterator[str]:
    """Yield attributes of objects, and empty tables of the module. mypy wants their annotations."""
    for statement in module.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(name), annotation=kind, value=ast.expr() as value):
                if is_by_text(kind) and ast.unparse(value) in EMPTY:
                    yield name
    for owner in ast.walk(module):
        for node in ast.walk(owner) if isinstance(owner, ast.ClassDef) else ():
            match owner, node:
                case (
                    ast.ClassDef(name),
                    ast.AnnAssign(target=ast.Attribute(attr=attribute), annotation=kind),
                ) if is_by_text(kind):
                    yield f"{name}.{attribute}"


def found(search: Callable[[ast.Module], Iterator[str]], mentioned: re.Pattern[str]) -> set[str]:
    return {f"{path}: {name}" for path, module in modules(mentioned) for name in search(module)}


def test_the_key_of_each_cache_has_a_bound() -> None:
    assert found(caches, re.compile("cache")) == set(CACHES)


def test_each_table_that_is_kept_by_a_text_has_a_bound() -> None:
    # An annotation: `name: dict[str, …`.
    assert found(tables, re.compile(rf": .*\b({'|'.join(TABLES)})\[")) == set(TABLE_BOUNDS)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("@lru_cache(9)\ndef f(text: str): ...", ["f"]),
        ("@functools.cache\ndef f(given): ...", ["f"]),
        ("class A:\n @lru_cache\n async def f(self): ...", ["f"]),
        ("@cache\ndef f(): ...", []),
        ("@lru_cache(9)\ndef f(ms: int): ...", []),
        ("f = lru_cache(9)(g)", ["f"]),
        ("f: Any = functools.cache(g)", ["f"]),
        ("f = cache(9)", ["f"]),
        ("f = g(9)", []),
    ],
)
def test_a_cache_is_found(code: str, names: list[str]) -> None:
    assert list(caches(ast.parse(code))) == names


@pytest.mark.parametrize(
    ("kind", "is_found"),
    [
        ("dict[str, int]", True),
        ("OrderedDict[tuple[int, bytes], None]", True),
        ("collections.OrderedDict[str, None]", False),  # write the name alone
        ("set[TopicName]", True),
        ("dict[int, str]", False),
        ("list[str]", False),
    ],
)
def test_a_table_is_found(kind: str, *, is_found: bool) -> None:
    code = f"class A:\n def __init__(self):\n  self._seen: {kind} = x"
    assert list(tables(ast.parse(code))) == (["A._seen"] if is_found else [])
    assert list(tables(ast.parse(f"_seen: {kind} = {{}}"))) == (["_seen"] if is_found else [])
    assert list(tables(ast.parse(f"_constant: {kind} = {{1: 2}}"))) == []


def refused(call: Callable[[str], object]) -> Callable[[str], object]:
    def ask(text: str) -> None:
        try:
            call(text)
        except (MessageError, EncodeError, OperationError):
            return
        raise AssertionError("was accepted")

    return ask


@pytest.mark.parametrize(
    "keep",
    [
        plain_address,
        lambda text: TrustedProxies("127.0.0.1").client([text]),
        refused(topic_name),
        refused(topic_of),
        refused(lambda text: operation.encode("insert", text, "x")),
        quoted,
    ],
    ids=["address", "X-Forwarded-For", "topic", "outbox", "type", "line"],
)
def test_long_texts_leave_no_memory(keep: Callable[[str], object]) -> None:
    keep("x" * 60_000)  # what the first call sets up
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):  # fewer than each cache takes
            keep(f"{number:060000}"[::-1] + "/x")
        assert tracemalloc.get_traced_memory()[0] - before < 2 * 60_000
    finally:
        tracemalloc.stop()
