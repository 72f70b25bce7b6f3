"""The properties of a topic that concern pointers, over HTTP."""

from typing import Any

import pytest

from oplogd.config.values import pointer_timeout
from oplogd.model.pointer import MAX_TIMEOUT
from tests.contract.wire.pointers.pointers import PointerClient, members_of, pointers
from tests.contract.wire.store_kinds import on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.contract.wire.transactions import said
from tests.kits.contract.wire import Target

TIMEOUT = "pointer_timeout: must be a whole number of seconds from 1 to 2,592,000"
WRONG: tuple[Any, ...] = (0, -1, 1.5, "1.5", "soon", [], MAX_TIMEOUT + 1, "9" * 50)
OFF = {"ttl": "604800", "pointers": "off"}


def test_a_topic_with_pointers_off_refuses_messages_under_them(target: Target) -> None:
    topic = TopicClient(target).create({"pointers": "off"})
    for action in ("publish", "store"):
        reply = PointerClient(topic).request(action, **members_of(action))
        assert said(reply, 409) == (
            "this topic takes no messages under pointers: its property pointers is off"
        )
    topic.store("plain")
    assert (topic.payloads(), pointers(topic)) == (["plain"], [])


def test_the_properties_are_shown_unless_they_are_the_default(target: Target) -> None:
    topic = TopicClient(target).create({"pointers": "off"})
    assert topic.request("GET").json["properties"] == OFF
    (listed,) = target.request("GET", topic.topics).json
    assert listed["properties"] == OFF
    for given, shown in (
        ({"pointer_timeout": "60", "pointers": "on"}, {"pointer_timeout": "60"}),
        ({"pointer_timeout": 2.0, "pointers": "off"}, {"pointers": "off", "pointer_timeout": "2"}),
        ({"pointer_timeout": None, "pointers": None}, {}),
    ):
        reply = topic.request("PUT", "/properties", given)
        assert reply.json["properties"] == {"ttl": "604800", **shown}


def test_the_time_out_of_a_topic_counts_for_new_pointers(target: Target) -> None:
    topic = TopicClient(target).create({"pointer_timeout": 7200})
    PointerClient(topic).publish("a")
    ((begun, expires),) = [(each["begun_at"], each["expires_at"]) for each in pointers(topic)]
    hours = int(expires[11:13]) - int(begun[11:13])
    assert (hours % 24, expires[14:]) == (2, begun[14:])


@on_one_store
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"pointers": "yes"}, "pointers: must be on or off"),
        ({"pointers": True}, "pointers: must be on or off"),
        *(({"pointer_timeout": wrong}, TIMEOUT) for wrong in WRONG),
    ],
)
def test_wrong_values_are_named(target: Target, given: dict[str, Any], sentence: str) -> None:
    assert said(TopicClient(target).request("PUT", body=given), 400) == sentence


def test_the_longest_time_out_is_that_of_the_flag() -> None:
    assert pointer_timeout("30d") == MAX_TIMEOUT
    with pytest.raises(ValueError, match="30d"):
        pointer_timeout(f"{MAX_TIMEOUT + 1}s")
