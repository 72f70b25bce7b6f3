"""Promises of every sink whose target can be read."""

import pytest

from oplog_pipe.errors import ConfigError, SinkError
from oplog_pipe.message import Message
from tests.kits.pipe.messages import OPLOG, message, version
from tests.kits.pipe.targets import Stored, Target, VersionedSink, has_no_secret

ODD = ["a/b", 'quote"', "it's", "per%cent %s", "brace{id}", "ünïcode ☃", " ", "x" * 300]


def numbers(target: Target, namespace: str = "video") -> dict[str, int]:
    """Return the ``n`` of each object by its id."""
    return {id: each.data["n"] for id, each in target.objects(namespace).items()}


def history() -> list[Message]:
    """Return messages with repeated objects, deletes, and an object that comes back."""
    return [
        message(0, "a"),
        message(1, "b"),
        message(2, "a", "update"),
        message(3, "c"),
        message(4, "b", "delete"),
        message(5, "c", "delete"),
        message(6, "c"),
        message(7, "d", "delete"),
        message(8, "a", "update"),
    ]


AFTER = {"a": 8, "c": 6}


def test_an_object_has_the_version_source_time_and_data_of_its_message(
    sink: VersionedSink, target: Target
) -> None:
    data = {"text": "é☃", "list": [1, 2.5, None, True], "deep": {"a": {"b": "c"}}}
    sink.write([message(7, "x", data=data)])
    assert target.objects() == {"x": Stored(version(7), OPLOG, 1_415_271_879_048, data)}


def test_a_batch_leaves_the_last_message_of_each_object(
    sink: VersionedSink, target: Target
) -> None:
    sink.write(history())
    assert numbers(target) == AFTER


def test_messages_one_by_one_leave_the_same_as_a_batch(sink: VersionedSink, target: Target) -> None:
    for each in history():
        sink.write([each])
    assert numbers(target) == AFTER


def test_messages_that_come_again_from_any_place_leave_the_same(
    sink: VersionedSink, target: Target
) -> None:
    sink.write(history())
    before = target.objects()
    for start in range(len(history())):
        again = history()[start:]
        sink.write(again)
        assert target.objects() == before
        for each in again:
            sink.write([each])
        assert target.objects() == before


def test_a_beginning_that_comes_again_never_replaces_a_newer_object(
    sink: VersionedSink, target: Target
) -> None:
    sink.write(history())
    for end in range(1, len(history()) + 1):
        sink.write(history()[:end])
        found = numbers(target)
        assert {id: found[id] for id in AFTER} == AFTER
    assert numbers(target) == AFTER


def test_an_older_message_neither_replaces_nor_deletes_a_newer_object(
    sink: VersionedSink, target: Target
) -> None:
    sink.write([message(5)])
    sink.write([message(4, data={"n": -1})])
    sink.write([message(4, op="delete")])
    assert numbers(target) == {"a": 5}
    sink.write([message(5, op="delete")])
    assert numbers(target) == {}


def test_each_namespace_has_a_place_of_its_own(sink: VersionedSink, target: Target) -> None:
    sink.write(
        [
            message(0, namespace="video"),
            message(1, namespace="shop/orders"),
            message(2, namespace="user-account"),
            message(3, namespace="video", op="delete"),
        ]
    )
    assert numbers(target) == {}
    assert numbers(target, "shop/orders") == {"a": 1}
    assert numbers(target, "user-account") == {"a": 2}


def test_odd_ids_are_kept_as_they_are(sink: VersionedSink, target: Target) -> None:
    sink.write([message(index, id) for index, id in enumerate(ODD)])
    assert numbers(target) == {id: index for index, id in enumerate(ODD)}
    sink.write([message(100 + index, id, "delete") for index, id in enumerate(ODD)])
    assert numbers(target) == {}


def test_the_end_of_a_copy_removes_exactly_the_older_objects_of_the_source(
    sink: VersionedSink, target: Target
) -> None:
    sink.write(
        [
            message(0, "gone"),
            message(1, "kept"),
            message(2, "other", source="another"),
            message(3, "gone", namespace="user"),
        ]
    )
    sink.begin_copy(version(4), OPLOG)
    sink.begin_copy(version(4), OPLOG)
    sink.write([message(5, "kept"), message(6, "new")])
    assert numbers(target) == {"gone": 0, "kept": 5, "other": 2, "new": 6}
    sink.end_copy(version(4), OPLOG)
    sink.end_copy(version(4), OPLOG)
    assert numbers(target) == {"kept": 5, "other": 2, "new": 6}
    assert numbers(target, "user") == {}


def test_the_end_of_a_copy_removes_objects_that_another_process_wrote(target: Target) -> None:
    sink = target.sink()
    sink.open()
    sink.write([message(0, "gone"), message(1, "gone", namespace="user")])
    sink.close()
    again = target.sink()
    again.open()
    again.begin_copy(version(2), OPLOG)
    again.write([message(3, "new")])
    again.end_copy(version(2), OPLOG)
    again.close()
    assert numbers(target) == {"new": 3}
    assert numbers(target, "user") == {}


def test_the_end_of_a_copy_leaves_namespaces_that_the_sink_does_not_get(target: Target) -> None:
    every, videos = target.sink(), target.sink("^video$")
    every.open()
    every.write([message(0), message(1, namespace="user")])
    every.close()
    videos.open()
    videos.end_copy(version(9), OPLOG)
    videos.close()
    assert numbers(target) == {}
    assert numbers(target, "user") == {"a": 1}


def test_a_copy_that_comes_again_from_before_its_begin_leaves_the_same(
    sink: VersionedSink, target: Target
) -> None:
    for _ in range(2):
        sink.write([message(0, "gone"), message(1, "kept")])
        sink.begin_copy(version(2), OPLOG)
        sink.write([message(3, "kept")])
        sink.end_copy(version(2), OPLOG)
        assert numbers(target) == {"kept": 3}


def test_the_newest_version_is_that_of_all_objects(sink: VersionedSink) -> None:
    assert sink.newest_version() is None
    sink.write([message(9), message(12, namespace="user"), message(3, "b")])
    assert sink.newest_version() == version(12)


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_message_that_the_target_refuses_is_named(
    place: int, sink: VersionedSink, target: Target
) -> None:
    messages = [message(each, f"id{each}") for each in range(7)]
    messages[place] = message(place, f"id{place}", data=target.bad_data())
    with pytest.raises(SinkError) as caught:
        sink.write(messages)
    assert not caught.value.transient
    assert caught.value.index == place
    sink.write(messages[:place] + messages[place + 1 :])
    assert numbers(target) == {f"id{each}": each for each in range(7) if each != place}


def test_a_message_that_cannot_be_encoded_is_named(sink: VersionedSink) -> None:
    bad = message(1, "b")
    bad.data = {"value": object()}
    with pytest.raises(SinkError) as caught:
        sink.write([message(0), bad, message(2, "c")])
    assert (caught.value.transient, caught.value.index) == (False, 1)


def test_a_server_that_is_away_is_a_transient_failure_without_secrets(target: Target) -> None:
    sink = target.away()
    with pytest.raises(SinkError) as caught:
        sink.open()
    sink.close()
    assert caught.value.transient
    assert has_no_secret(caught.value)


def test_a_wrong_address_is_a_permanent_failure_without_secrets(target: Target) -> None:
    with pytest.raises((SinkError, ConfigError, ValueError)) as caught:
        target.misconfigured()().open()
    assert not getattr(caught.value, "transient", False)
    assert has_no_secret(caught.value)


def test_closing_twice_does_no_harm(sink: VersionedSink) -> None:
    sink.close()
    sink.close()
