"""The sink on a real OpenSearch. Each test has indexes of its own."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from urllib.error import HTTPError

import pytest

from oplog_pipe.errors import ConfigError, SinkError
from oplog_pipe.sinks.parts.ownership import Owner
from oplog_pipe.sinks.search import ElasticsearchOptions
from oplog_pipe.sinks.search.sink import ElasticsearchSink
from tests.integration.pipe.made import BASE, message, owner_at
from tests.kits.servers.opensearch import OpenSearchServer

_OF_AN_EARLIER_RELEASE = {
    "properties": {
        "oplog": {
            "properties": {
                "version": {"type": "long"},
                "source": {"type": "keyword"},
                "namespace": {"type": "keyword"},
                "timestamp": {"type": "date"},
            }
        }
    }
}
MakeSink = Callable[..., ElasticsearchSink]
_numbers = itertools.count(1)


@pytest.fixture
def prefix() -> str:
    return f"test{next(_numbers)}-"


@pytest.fixture
def make_sink(opensearch: OpenSearchServer, prefix: str) -> Iterator[MakeSink]:
    sinks = []

    def make(
        namespace: str = ".*", *, index: str = prefix + "{namespace}", create: bool = True,
        max_deletes: int = 10_000, whose: Owner | None = None
    ) -> ElasticsearchSink:  # fmt: skip
        options = ElasticsearchOptions((opensearch.url,), index=index, create=create)
        sink = ElasticsearchSink(options, namespace, max_deletes=max_deletes)
        sinks.append(sink)
        sink.own(whose or owner_at(10_000_000))
        sink.open()
        return sink

    yield make
    for sink in sinks:
        sink.close()


@pytest.fixture
def sink(make_sink: MakeSink) -> ElasticsearchSink:
    return make_sink()


def test_a_document_is_the_data_of_its_message_and_tells_which_message_it_is_from(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink.write([message(7, "x/ü y", {"title": "Große", "parts": [{"n": 1}]}, timestamp=-1)])
    assert opensearch.documents(f"{prefix}video") == {
        "x/ü y": {
            "title": "Große",
            "parts": [{"n": 1}],
            "oplog": {
                "version": BASE + 7,
                "source": "system/oplog",
                "namespace": "video",
                "timestamp": "1969-12-31T23:59:59.999Z",
                "owner": "test/sink",
            },
        }
    }
    mapping = opensearch.ask("GET", f"/{prefix}video/_mapping")
    assert mapping[f"{prefix}video"]["mappings"]["properties"]["oplog"]["properties"] == {
        "version": {"type": "long"},
        "source": {"type": "keyword"},
        "namespace": {"type": "keyword"},
        "timestamp": {"type": "date"},
        "owner": {"type": "keyword"},
    }


def test_messages_that_come_again_never_bring_an_older_document_back(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    messages = [
        message(1, "a", {"n": 1}),
        message(2, "b", {"n": 1}),
        message(3, "a", {"n": 2}, op="update"),
        message(4, "b", op="delete"),
        message(5, "never", op="delete"),
    ]
    sink.write(messages)
    for again in (messages[:2], messages[1:3], messages[4:], messages[:1], messages):
        sink.write(again)
        documents = opensearch.documents(f"{prefix}video")
        assert {id: document["n"] for id, document in documents.items()} == {"a": 2}


def test_a_message_that_comes_again_with_other_data_replaces_its_document(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink.write([message(1, "a", {"by": "one transform"})])
    sink.write([message(1, "a", {"by": "another"})])
    assert opensearch.documents(f"{prefix}video")["a"]["by"] == "another"


def test_the_end_of_a_copy_removes_only_older_documents_of_its_source_and_namespaces(
    make_sink: MakeSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink = make_sink("^(video|user)$", max_deletes=3)
    other = make_sink("^other$")
    nested = make_sink(index=prefix + "user-{namespace}")
    other.write([message(1, "other", {}, namespace="other")])
    nested.write([message(1, "nested", {}, namespace="a")])  # in the index ….user-a
    sink.write([message(1, f"old{n}", {}) for n in range(10)])
    sink.write([message(1, "gone", {}, namespace="user"), message(1, "b", {}, source="b")])
    sink.write([message(2, "kept", {})])
    sink.begin_copy(BASE + 20, "system/oplog")
    sink.write([message(21, "kept", {}), message(22, "new", {}, namespace="user")])
    sink.end_copy(BASE + 20, "system/oplog")
    sink.end_copy(BASE + 20, "system/oplog")
    assert opensearch.documents(f"{prefix}video").keys() == {"kept", "b"}
    assert opensearch.documents(f"{prefix}user").keys() == {"new"}
    assert opensearch.documents(f"{prefix}other").keys() == {"other"}
    assert opensearch.documents(f"{prefix}user-a").keys() == {"nested"}
    make_sink().end_copy(BASE + 20, "system/oplog")
    assert opensearch.documents(f"{prefix}other").keys() == set()
    assert opensearch.documents(f"{prefix}user-a").keys() == {"nested"}


def test_an_object_that_a_copy_lacked_comes_back_when_it_is_inserted_again(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink.write([message(1, "a", {"n": 1})])
    sink.end_copy(BASE + 2, "system/oplog")
    sink.write([message(3, "a", {"n": 3})])
    assert opensearch.documents(f"{prefix}video")["a"]["n"] == 3


@pytest.mark.parametrize(("newest", "code"), [(1_000_000, 1), (1_000_001, 0)])
def test_the_newest_version_of_an_index_is_exact(
    make_sink: MakeSink, prefix: str, newest: int, code: int
) -> None:
    make_sink(index=f"{prefix}all").write([message(1_000_001, "b", {}, namespace="ns/Topic")])
    again = make_sink(index=f"{prefix}all", whose=owner_at(newest))
    with pytest.raises(ConfigError) if code else nullcontext():
        again.write([message(3, "c", {})])


def test_an_alias_serves_as_an_index(
    make_sink: MakeSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    opensearch.ask("PUT", f"/{prefix}v1", {"aliases": {f"{prefix}video": {}}})
    sink = make_sink("^video$")
    sink.write([message(1, "a", {}), message(2, "b", {})])
    sink.end_copy(BASE + 2, "system/oplog")
    assert opensearch.documents(f"{prefix}v1").keys() == {"b"}


def test_an_existing_index_keeps_its_mapping_and_gets_that_of_the_sink(
    make_sink: MakeSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    opensearch.ask(
        "PUT",
        f"/{prefix}video",
        {"mappings": {"properties": {"title": {"type": "keyword"}}}},
    )
    sink = make_sink(create=False)
    sink.write([message(1, "a", {"title": "T"})])
    found = opensearch.ask("GET", f"/{prefix}video/_mapping")[f"{prefix}video"]["mappings"]
    assert found["properties"]["title"] == {"type": "keyword"}
    assert found["properties"]["oplog"]["properties"]["source"] == {"type": "keyword"}


def test_an_index_with_another_mapping_of_the_own_member_is_refused(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    opensearch.ask("PUT", f"/{prefix}video/_doc/1", {"oplog": {"source": "text"}})
    with pytest.raises(SinkError, match=r"video cannot get the mapping of 'oplog'") as caught:
        sink.write([message(1, "a", {})])
    assert not caught.value.transient


def test_without_create_a_missing_index_is_refused(
    make_sink: MakeSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink = make_sink(create=False)
    with pytest.raises(SinkError, match=r"video does not exist: create it, or set create: true"):
        sink.write([message(1, "a", {})])
    with pytest.raises(HTTPError, match="404"):
        opensearch.documents(f"{prefix}video")


def test_a_document_that_the_mapping_refuses_is_named_and_the_others_are_written(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink.write([message(1, "a", {"length": 1})])
    batch = [
        message(2, "b", {"length": 2}),
        message(3, "c", {"length": "long"}),
        message(4, "d", {"length": 4}),
    ]
    with pytest.raises(SinkError, match=r"mapper_parsing_exception.*\[length\].*\(HTTP 400\)") as c:
        sink.write(batch)
    assert (c.value.index, c.value.transient) == (1, False)
    assert opensearch.documents(f"{prefix}video").keys() == {"a", "b", "d"}


@pytest.mark.parametrize("data", [[1], "text", 3, False])
def test_data_that_is_no_object_is_refused(sink: ElasticsearchSink, data: object) -> None:
    with pytest.raises(SinkError, match=r"data must be an object, not .*: use a transform") as c:
        sink.write([message(1, "a", {}), message(2, "b", data)])
    assert (c.value.index, c.value.transient) == (1, False)


def test_data_that_is_nested_too_deeply_is_named(sink: ElasticsearchSink) -> None:
    deep = message(2, "b", {})
    for _ in range(10_000):
        deep.data = {"in": deep.data}
    with pytest.raises(SinkError, match=r"'b', offset 2\): maximum recursion depth") as c:
        sink.write([message(1, "a", {}), deep])
    assert (c.value.index, c.value.transient) == (1, False)


def test_an_index_that_lost_the_mapping_is_refused_at_the_end_of_a_copy(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink.write([message(1, "a", {})])
    opensearch.ask("DELETE", f"/{prefix}video")
    sink.write([message(2, "b", {})])
    with pytest.raises(SinkError, match="cannot get the mapping"):
        sink.end_copy(BASE + 3, "system/oplog")


def test_the_end_of_a_copy_leaves_indexes_of_others_alone(
    sink: ElasticsearchSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    theirs = {"properties": {"oplog": {"type": "keyword"}}}
    opensearch.ask("PUT", f"/{prefix}theirs", {"mappings": theirs})
    opensearch.ask("PUT", f"/{prefix}fixed", {"settings": {"index.blocks.read_only": True}})
    opensearch.ask("PUT", f"/{prefix}plain")
    sink.write([message(1, "a")])
    sink.end_copy(BASE + 2, "system/oplog")
    assert opensearch.documents(f"{prefix}video") == {}
    opensearch.ask("PUT", f"/{prefix}fixed/_settings", {"index.blocks.read_only": False})
    for name, mapping in (("theirs", theirs), ("fixed", {}), ("plain", {})):
        found = opensearch.ask("GET", f"/{prefix}{name}/_mapping")
        assert found == {f"{prefix}{name}": {"mappings": mapping}}


def test_documents_of_an_earlier_release_get_an_owner_when_written_and_are_removed_by_no_copy(
    make_sink: MakeSink, opensearch: OpenSearchServer, prefix: str
) -> None:
    sink = make_sink(index=f"{prefix}all", whose=owner_at(9))
    opensearch.ask("PUT", f"/{prefix}all", {"mappings": _OF_AN_EARLIER_RELEASE})
    for id, offset in (("written", 0), ("left", 0), ("newer", 500)):
        own = {"version": BASE + offset, "source": "system/oplog", "namespace": "video"}
        path = f"/{prefix}all/_doc/{id}?version={BASE + offset}&version_type=external_gte"
        opensearch.ask("PUT", path, {"oplog": own})
    sink.write([message(3, "written", {})])
    with pytest.raises(ConfigError, match="another folder or checkpoint has written the row"):
        sink.write([message(4, "newer", {})])
    sink.end_copy(BASE + 5, "system/oplog")
    assert opensearch.documents(f"{prefix}all").keys() == {"left", "newer"}
