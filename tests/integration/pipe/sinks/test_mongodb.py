"""The sink for MongoDB: documents, collections and failures."""

import gc
from datetime import UTC, datetime
from typing import Any

import pytest

from oplog_pipe.errors import ConfigError, SinkError
from oplog_pipe.sinks.mongodb.writes import Writes
from tests.kits.pipe.messages import OPLOG, message, owner, version
from tests.kits.pipe.targets import MongodbTarget, opened
from tests.kits.proxies.mongo import CommandProxy
from tests.kits.servers.mongo import RunningMongo

pytestmark = pytest.mark.mongo


@pytest.fixture
def target(java: RunningMongo) -> MongodbTarget:
    return MongodbTarget(java)


def test_a_document_has_exactly_these_fields(target: MongodbTarget) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(0, data={"$set": 1, "a.b": [{}]})])
    (found,) = target.do(lambda database: list(database["video"].find()))
    assert found == {
        "_id": "a",
        "version": version(0),
        "source": OPLOG,
        "timestamp": datetime(2014, 11, 6, 11, 4, 39, 41000, UTC),
        "owner": "test/sink",
        "data": {"$set": 1, "a.b": [{}]},
    }


def test_an_open_that_is_tried_again_leaves_no_client_behind(target: MongodbTarget) -> None:
    away = target.away()
    for _ in range(2):
        with pytest.raises(SinkError):
            away.open()
    away.close()
    gc.collect()  # PyMongo warns of a client that was not closed


def test_one_collection_takes_all_namespaces_by_a_template_of_the_id(
    target: MongodbTarget,
) -> None:
    with opened(target.sink(collection="objects", id="{namespace}/{id}")) as sink:
        sink.write([message(0), message(1, namespace="user"), message(2, "{namespace}")])
    assert sorted(target.objects("objects")) == ["user/a", "video/a", "video/{namespace}"]


def test_the_end_of_a_copy_leaves_collections_that_the_template_does_not_fit(
    target: MongodbTarget,
) -> None:
    with opened(target.sink()) as every, opened(target.sink(collection="of_{namespace}")) as sink:
        every.write([message(0)])
        sink.write([message(0)])
        sink.end_copy(version(9), OPLOG)
    assert list(target.objects()) == ["a"]
    assert target.objects("of_video") == {}


def test_the_end_of_a_copy_removes_more_documents_than_one_command_deletes(
    target: MongodbTarget,
) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(each, f"id{each}") for each in range(2502)])
        sink.end_copy(version(2500), OPLOG)
    assert sorted(target.objects()) == ["id2500", "id2501"]


@pytest.mark.parametrize("namespace", ["", "a..b", ".a", "a\0b"])
def test_a_name_that_is_no_collection_is_refused(namespace: str, target: MongodbTarget) -> None:
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write([message(0), message(1, namespace=namespace)])
        assert (caught.value.transient, caught.value.index) == (False, 1)


def test_a_document_that_is_too_large_is_named(target: MongodbTarget) -> None:
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError, match="is larger than") as caught:
            sink.write([message(0), message(1, "b", data="x" * (16 << 20))])
        assert (caught.value.transient, caught.value.index) == (False, 1)


def test_a_unique_index_of_the_user_refuses_a_message_and_an_older_one_is_no_failure(
    target: MongodbTarget,
) -> None:
    target.do(lambda database: database["video"].create_index("data.name", unique=True))
    with opened(target.sink()) as sink:
        sink.write([message(5, "a", data={"name": "x"}), message(6, "b", data={"name": "y"})])
        older = message(4, "a", data={"name": "z"})
        sink.write([older])
        with pytest.raises(SinkError, match="duplicate key") as caught:
            sink.write(
                [older, message(7, "c", data={"name": "n"}), message(8, "d", data={"name": "y"})]
            )
        assert (caught.value.transient, caught.value.index) == (False, 2)
    assert {id: each.version for id, each in target.objects().items()} == {
        "a": version(5),
        "b": version(6),
        "c": version(7),
    }


def test_a_document_that_its_other_owner_deletes_before_the_sink_looks_is_tried_again(
    target: MongodbTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(target.sink(), owner("first")) as first, opened(target.sink()) as second:
        first.write([message(1, "x")])
        plain = Writes._judge

        def judge(self: Writes, *given: Any) -> None:
            first.write([message(2, "x", "delete")])
            plain(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(Writes, "_judge", judge)
            with pytest.raises(SinkError) as caught:
                second.write([message(5, "x")])
        assert caught.value.transient
        second.write([message(5, "x")])
    assert target.objects()["x"].version == version(5)


def test_a_command_without_an_answer_is_a_transient_failure(target: MongodbTarget) -> None:
    with CommandProxy(target.url) as proxy:
        sink = target.sink(url=proxy.url(), timeout=2.0)
        sink.own(owner())
        sink.open()
        with proxy.hold("update"), pytest.raises(SinkError) as caught:
            sink.write([message(0)])
        assert caught.value.transient
        sink.write([message(1)])  # the first one may reach the server after it
        sink.close()
    assert target.objects()["a"].version == version(1)


def test_documents_of_an_earlier_release_get_an_owner_when_written_and_are_removed_by_no_copy(
    target: MongodbTarget,
) -> None:
    with opened(target.sink()) as sink:
        sink.write([message(0, "written"), message(0, "left"), message(500, "newer")])
        target.do(lambda database: database["video"].update_many({}, {"$unset": {"owner": ""}}))
    with opened(target.sink(), owner(newest=9)) as sink:
        sink.write([message(3, "written")])
        with pytest.raises(ConfigError, match="another folder or checkpoint has written the row"):
            sink.write([message(4, "newer")])
        sink.end_copy(version(5), OPLOG)
    assert sorted(target.objects()) == ["left", "newer"]
