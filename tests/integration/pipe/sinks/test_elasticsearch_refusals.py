"""The sink and servers that refuse, are busy or are unreachable."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from oplog_pipe.errors import SinkError
from oplog_pipe.sinks.search import ElasticsearchOptions
from oplog_pipe.sinks.search.sink import ElasticsearchSink
from tests.integration.pipe.made import message, owner_at
from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ScriptedServer, answer

Answer = Callable[[Request], bytes]
ROOT = answer(200, b'{"version": {"number": "7.10.2"}}')
THREE = [message(n, f"{n}", {}) for n in (1, 2, 3)]


def bulk(*statuses: int, types: dict[int, str] | None = None) -> bytes:
    """Return the answer to a bulk request with one status for each document."""
    items = [
        {"index": {"status": s, **({"error": {"type": f"e{s}", "reason": "r"}} if s > 299 else {})}}
        for s in statuses
    ]
    for status, name in (types or {}).items():
        for item in items:
            if item["index"]["status"] == status:
                item["index"]["error"]["type"] = name  # type: ignore[index]
    return answer(200, json.dumps({"errors": True, "items": items}).encode())


def before_bulk(asked: Request) -> bytes:
    """Answer as a server without documents."""
    path = asked.target.partition("?")[0]
    if path.endswith("/_search"):
        return answer(200, b'{"hits": {"hits": []}}')
    if path == "/_mget":
        return answer(200, json.dumps({"docs": [{}] * asked.body.count(b'"_id"')}).encode())
    return ROOT


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def serve(stack: ExitStack, *answers: bytes | Answer) -> ScriptedServer:
    """Run a server that gives these answers to bulk requests, the last one for ever."""
    waiting = list(answers)

    def choose(asked: Request) -> bytes:
        if asked.target != "/_bulk":
            return before_bulk(asked)
        following = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return following if isinstance(following, bytes) else following(asked)

    return stack.enter_context(ScriptedServer(choose))


def sink_on(stack: ExitStack, *urls: str, **options: str) -> ElasticsearchSink:
    sink = ElasticsearchSink(ElasticsearchOptions(urls, **options))  # type: ignore[arg-type]
    sink.own(owner_at(100))
    stack.callback(sink.close)
    return sink


def paths(server: ScriptedServer) -> list[str]:
    return [asked.target for asked in server.requests]


@pytest.mark.parametrize(
    ("reply", "transient", "index"),
    [
        (bulk(201, 429, 201), True, 1),
        (bulk(201, 503, 429), True, 1),
        (bulk(429, 201, 400), False, 2),
        (bulk(201, 201, 403), False, None),
        (bulk(201, 403, 201, types={403: "cluster_block_exception"}), True, 1),
        (bulk(201, 201), True, None),
        (answer(200, b'{"items": [{"index": {}}, {}, 3]}'), True, None),
        (answer(400, b"<html>"), True, None),
        (answer(429, "{}"), True, None),
        (answer(503, "{}"), True, None),
        (answer(400, b'{"error": {"type": "t", "reason": "r"}}'), False, None),
        (answer(401, "{}"), False, None),
        (answer(200, b"<html>"), True, None),
        (answer(301, "", "Location: http://elsewhere.example/"), False, None),
    ],
)
def test_only_causes_that_pass_are_transient(
    stack: ExitStack, reply: bytes, transient: bool, index: int | None
) -> None:
    sink = sink_on(stack, serve(stack, reply).url)
    with pytest.raises(SinkError) as caught:
        sink.write(THREE)
    assert (caught.value.transient, caught.value.index) == (transient, index)


GARBAGE = (
    "{}", "[]", "5", "null", '{"docs": 3}', '{"docs": [1, 2, 3]}', '{"hits": {"hits": [{}]}}',
    '{"docs": [{"_source": null}, {"_source": {"oplog": 3}}, {}]}', '{"hits": {}}',
    '{"docs": [{"_source": {"oplog": {"version": "x"}}}, {}, {}]}', '{"hits": {"hits": [3]}}',
    '{"items": [{"index": {}}, {"index": {"status": null}}, {"index": []}]}',
    '{"indices": [{}], "aliases": 5}', '{"indices": [{"name": "video"}], "aggregations": []}',
)  # fmt: skip


@pytest.mark.parametrize("path", ["/_mget", "/_bulk", "_search", "/_resolve/index/*"])
def test_an_answer_that_is_garbage_is_a_transient_failure(stack: ExitStack, path: str) -> None:
    garbage = GARBAGE[0]

    def choose(asked: Request) -> bytes:
        if path in asked.target:
            return answer(200, garbage)
        if asked.target == "/_bulk":
            return bulk(201, 201, 201)
        return before_bulk(asked)

    sink = sink_on(stack, stack.enter_context(ScriptedServer(choose)).url)
    calls = (sink.write, THREE), (sink.end_copy, 9, "s"), (sink.adopt, "other/sink")
    failures = []
    for garbage in GARBAGE:  # noqa: B007 - the server answers it
        for call, *arguments in calls:
            try:
                call(*arguments)
            except SinkError as error:
                failures.append(error)
    assert failures
    assert all(each.transient for each in failures)


def test_a_document_with_a_newer_version_in_the_index_counts_as_written(stack: ExitStack) -> None:
    sink_on(stack, serve(stack, bulk(201, 409, 200)).url).write(THREE)


def test_only_the_documents_that_failed_are_sent_again(stack: ExitStack) -> None:
    replies = [bulk(201, 429, 429), bulk(409, 503), bulk(201), bulk(201, 201, 201)]
    server = serve(stack, *replies)
    sink = sink_on(stack, server.url)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"HTTP (429|503)"):
            sink.write(THREE)
    sink.write(THREE)
    sink.write(THREE)
    sent = [asked.body.count(b'"_id"') for asked in server.requests if asked.target == "/_bulk"]
    assert sent == [3, 2, 1, 3]


def test_another_server_takes_over(stack: ExitStack) -> None:
    broken, good = serve(stack, answer(503, "{}")), serve(stack, bulk(201, 201, 201))
    sink = sink_on(stack, broken.url, good.url)
    sink.write(THREE)
    sink.write(THREE)
    assert [each for each in paths(broken) if "_mget" not in each] == [
        "/video",
        "/video/_refresh",
        "/video/_search?allow_partial_search_results=false",
        "/_bulk",
    ]
    assert [each for each in paths(good) if "_mget" not in each] == ["/_bulk", "/_bulk"]


def test_without_a_server_that_answers_the_failure_is_transient(stack: ExitStack) -> None:
    with ScriptedServer(lambda asked: answer(200, "{}")) as server:
        url = server.url
    sink = sink_on(stack, url)
    with pytest.raises(SinkError, match=r"127\.0\.0\.1") as caught:
        sink.open()
    assert caught.value.transient


def test_a_batch_that_is_larger_than_a_request_is_sent_in_several(stack: ExitStack) -> None:
    server = serve(stack, lambda asked: bulk(*[201] * asked.body.count(b'"_id"')))
    sink = ElasticsearchSink(ElasticsearchOptions((server.url,)), max_body_bytes=1000)
    sink.own(owner_at(100))
    stack.callback(sink.close)
    sizes = (300, 300, 2000, 0, 0)
    sink.write([message(n, f"{n}", {"text": "x" * size}) for n, size in enumerate(sizes)])
    sent = [asked.body for asked in server.requests if asked.target == "/_bulk"]
    assert [body.count(b'"_id"') for body in sent] == [1, 1, 1, 2]
    assert [len(body) <= 1000 for body in sent] == [True, True, False, True]


def test_a_request_that_is_too_large_is_sent_in_halves(stack: ExitStack) -> None:
    def choose(asked: Request) -> bytes:
        documents = asked.body.count(b'"_id"')
        return answer(413, "{}") if documents > 1 else bulk(201)

    server = serve(stack, choose)
    sink_on(stack, server.url).write(THREE)
    sent = [asked.body.count(b'"_id"') for asked in server.requests if asked.target == "/_bulk"]
    assert sent == [3, 1, 2, 1, 1]


def test_a_document_that_is_too_large_by_itself_is_named(stack: ExitStack) -> None:
    sink = sink_on(stack, serve(stack, answer(413, "{}")).url)
    with pytest.raises(SinkError, match="413") as caught:
        sink.write(THREE)
    assert (caught.value.transient, caught.value.index) == (False, 0)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"user": "u", "password": "p"}, "Basic dTpw"),
        ({"api_key": "secret"}, "ApiKey secret"),
    ],
)
def test_credentials_are_sent_and_not_told(
    stack: ExitStack, options: dict[str, str], wanted: str
) -> None:
    server = serve(stack, answer(403, "{}"))
    sink = sink_on(stack, server.url, **options)
    sink.open()
    with pytest.raises(SinkError, match="look at user, password and api_key") as caught:
        sink.write(THREE)
    assert {asked.headers["authorization"] for asked in server.requests} == {wanted}
    assert "secret" not in str(caught.value)


def test_a_server_of_another_kind_is_refused(stack: ExitStack) -> None:
    with ScriptedServer(lambda asked: answer(200, "{}")) as server:
        sink = sink_on(stack, server.url)
        with pytest.raises(SinkError, match="is neither Elasticsearch nor OpenSearch"):
            sink.open()


@pytest.mark.parametrize("name", ["Video", "a/b", "_a", "a b", "x" * 256])
def test_an_index_with_an_impossible_name_is_refused_before_anything_is_sent(
    stack: ExitStack, name: str
) -> None:
    server = serve(stack, answer(500, "{}"))
    with pytest.raises(SinkError, match="cannot be the name of an index: it ") as caught:
        sink_on(stack, server.url).write([THREE[0], message(2, "b", {}, namespace=name)])
    assert (caught.value.transient, caught.value.index) == (False, 1)
    assert server.requests == []


@pytest.mark.parametrize("id_", ["", "ü" * 257])
def test_an_id_that_no_document_can_have_is_refused(stack: ExitStack, id_: str) -> None:
    server = serve(stack, answer(500, "{}"))
    with pytest.raises(SinkError, match="a document's id has 1 to 512") as caught:
        sink_on(stack, server.url).write([message(1, id_, {})])
    assert (caught.value.transient, caught.value.index) == (False, 0)


def test_an_own_member_in_the_data_is_refused(stack: ExitStack) -> None:
    with pytest.raises(SinkError, match="data has a member 'oplog'"):
        sink_on(stack, serve(stack, answer(500, "{}")).url).write([message(1, "a", {"oplog": 1})])


@pytest.mark.parametrize("index", ["video", "{namespace}"])
def test_a_search_without_all_shards_is_no_empty_index(stack: ExitStack, index: str) -> None:
    """After a start, a server answers from the shards that it has, and from none at first."""

    def choose(asked: Request) -> bytes:
        path, _, query = asked.target.partition("?")
        if path.startswith("/_resolve/"):
            return answer(200, b'{"indices": [{"name": "video"}]}')
        if "/_mapping/field/" in path:  # it asks shards
            return answer(404, "{}")
        if path.endswith("/_search"):
            return answer(503 if query == "allow_partial_search_results=false" else 200, "{}")
        return answer(200, b'{"video": {}}')

    server = stack.enter_context(ScriptedServer(choose))
    with pytest.raises(SinkError) as caught:
        sink_on(stack, server.url, index=index).write(THREE)
    assert caught.value.transient
