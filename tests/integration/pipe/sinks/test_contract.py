"""Promises of every sink whose target can be read."""

import pytest

from oplog_pipe.errors import ConfigError, SinkError
from oplog_pipe.message import Message
from tests.kits.pipe.messages import OPLOG, message, owner, version
from tests.kits.pipe.targets import OwnedSink, Stored, Target, has_no_secret, opened

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
    sink: OwnedSink, target: Target
) -> None:
    data = {"text": "é☃", "list": [1, 2.5, None, True], "deep": {"a": {"b": "c"}}}
    sink.write([message(7, "x", data=data)])
    assert target.objects() == {"x": Stored(version(7), OPLOG, 1_415_271_879_048, data)}


def test_a_batch_leaves_the_last_message_of_each_object(sink: OwnedSink, target: Target) -> None:
    sink.write(history())
    assert numbers(target) == AFTER


def test_messages_one_by_one_leave_the_same_as_a_batch(sink: OwnedSink, target: Target) -> None:
    for each in history():
        sink.write([each])
    assert numbers(target) == AFTER


def test_messages_that_come_again_from_any_place_leave_the_same(
    sink: OwnedSink, target: Target
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
    sink: OwnedSink, target: Target
) -> None:
    sink.write(history())
    for end in range(1, len(history()) + 1):
        sink.write(history()[:end])
        found = numbers(target)
        assert {id: found[id] for id in AFTER} == AFTER
    assert numbers(target) == AFTER


def test_an_older_message_neither_replaces_nor_deletes_a_newer_object(
    sink: OwnedSink, target: Target
) -> None:
    sink.write([message(5)])
    sink.write([message(4, data={"n": -1})])
    sink.write([message(4, op="delete")])
    assert numbers(target) == {"a": 5}
    sink.write([message(5, op="delete")])
    assert numbers(target) == {}


def test_each_namespace_has_a_place_of_its_own(sink: OwnedSink, target: Target) -> None:
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


def test_odd_ids_are_kept_as_they_are(sink: OwnedSink, target: Target) -> None:
    sink.write([message(index, id) for index, id in enumerate(ODD)])
    assert numbers(target) == {id: index for index, id in enumerate(ODD)}
    sink.write([message(100 + index, id, "delete") for index, id in enumerate(ODD)])
    assert numbers(target) == {}


def test_the_end_of_a_copy_removes_exactly_the_older_objects_of_the_source(
    sink: OwnedSink, target: Target
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
    with opened(target.sink()) as sink:
        sink.write([message(0, "gone"), message(1, "gone", namespace="user")])
    with opened(target.sink()) as again:
        again.begin_copy(version(2), OPLOG)
        again.write([message(3, "new")])
        again.end_copy(version(2), OPLOG)
    assert numbers(target) == {"new": 3}
    assert numbers(target, "user") == {}


def test_the_end_of_a_copy_leaves_namespaces_that_the_sink_does_not_get(target: Target) -> None:
    with opened(target.sink()) as every:
        every.write([message(0), message(1, namespace="user")])
    with opened(target.sink("^video$")) as videos:
        videos.end_copy(version(9), OPLOG)
    assert numbers(target) == {}
    assert numbers(target, "user") == {"a": 1}


def test_a_copy_that_comes_again_from_before_its_begin_leaves_the_same(
    sink: OwnedSink, target: Target
) -> None:
    for _ in range(2):
        sink.write([message(0, "gone"), message(1, "kept")])
        sink.begin_copy(version(2), OPLOG)
        sink.write([message(3, "kept")])
        sink.end_copy(version(2), OPLOG)
        assert numbers(target) == {"kept": 3}


def test_rows_of_another_owner_are_refused_by_name_and_stay_as_they_are(target: Target) -> None:
    with opened(target.sink(), owner("a", "rows")) as first:
        first.write([message(each, f"id{each}") for each in range(3)])
    before = target.objects()
    with opened(target.sink(), owner("b", "rows")) as second:
        for op in ("update", "delete"):
            batch = [message(7, "x", namespace="user"), message(8, "new"), message(9, "id1", op)]
            with pytest.raises(SinkError, match=r"id1' belongs to 'a/rows'.*--from a/rows") as c:
                second.write(batch)
            assert (c.value.index, c.value.transient) == (2, False)
        second.write([message(8, "new")])
        second.begin_copy(version(20), OPLOG)
        second.end_copy(version(20), OPLOG)
    assert target.objects() == before


def test_the_end_of_a_copy_removes_the_rows_of_one_sink_of_a_pipe(target: Target) -> None:
    with (
        opened(target.sink(), owner("a", "one")) as one,
        opened(target.sink(), owner("a", "two")) as two,
    ):
        one.write([message(0, "gone"), message(1, "kept")])
        two.write([message(2, "two's")])
        one.write([message(11, "kept")])
        one.end_copy(version(10), OPLOG)
    assert numbers(target) == {"kept": 11, "two's": 2}


def test_all_rows_of_an_owner_can_be_adopted_and_the_former_owner_is_then_refused(
    target: Target,
) -> None:
    with opened(target.sink(), owner("a")) as former, opened(target.sink(), owner("b")) as other:
        former.write([message(0, "x"), message(1, "y"), message(2, "z", namespace="user")])
        other.write([message(3, "others")])
        with opened(target.sink(), owner("c")) as sink:
            assert sink.adopt("a/sink") == 3
            assert sink.adopt("a/sink") == 0
            with pytest.raises(SinkError, match="x' belongs to 'c/sink'"):
                former.write([message(4, "x")])
            sink.write([message(5, "x")])
            sink.write([message(6, "y", "delete")])
            sink.end_copy(version(5), OPLOG)
    assert numbers(target) == {"x": 5, "others": 3}
    assert numbers(target, "user") == {}


def test_rows_that_the_folder_cannot_have_written_are_told_before_they_are_written_over(
    target: Target,
) -> None:
    with opened(target.sink()) as later:
        later.write([message(500, "a"), message(3, "b")])
    with opened(target.sink(), owner(newest=499)) as earlier:
        for batch in ([message(499, "b")], [message(499, "new")]):
            with pytest.raises(
                ConfigError, match=f"version {version(500)}, and the newest version"
            ):
                earlier.write(batch)
    with opened(target.sink(), owner(newest=500)) as same:
        same.write([message(500, "a")])
    with opened(target.sink(), owner("b", newest=499)) as another:
        with pytest.raises(ConfigError, match="another folder or checkpoint has written"):
            another.adopt("test/sink")
        another.write([message(499, "c")])
    with (
        opened(target.sink(), owner(newest=499)) as copying,  # a copy without an object
        pytest.raises(ConfigError, match=f"version {version(500)}, and the newest version"),
    ):
        copying.end_copy(version(400), OPLOG)
    assert numbers(target) == {"a": 500, "b": 3, "c": 499}


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_message_that_the_target_refuses_is_named(
    place: int, sink: OwnedSink, target: Target
) -> None:
    messages = [message(each, f"id{each}") for each in range(7)]
    messages[place] = message(place, f"id{place}", data=target.bad_data())
    with pytest.raises(SinkError) as caught:
        sink.write(messages)
    assert not caught.value.transient
    assert caught.value.index == place
    sink.write(messages[:place] + messages[place + 1 :])
    assert numbers(target) == {f"id{each}": each for each in range(7) if each != place}


def test_a_message_that_cannot_be_encoded_is_named(sink: OwnedSink) -> None:
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


def test_closing_twice_does_no_harm(sink: OwnedSink) -> None:
    sink.close()
    sink.close()
