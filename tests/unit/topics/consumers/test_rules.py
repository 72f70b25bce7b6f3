"""The bodies of requests for named consumers: each accepted and refused form."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from oplogd.errors import ConsumerError, FieldError
from oplogd.model.consumer import ConsumerSettings
from oplogd.model.lease import MAX_TERM
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.transaction import Isolation
from oplogd.topics.consumers.rules import (
    AcknowledgementBody,
    SeekBody,
    consumer_name,
    parse_acknowledgement,
    parse_body,
    parse_seek,
    settings_of,
)

MOST = 5
SETTINGS = {"log": "system/oplog"}
TOPIC = {"log": "shop/orders"}
ACKNOWLEDGEMENT = {"term": 1, "id": "a"}
SEEK = {"position": "now"}


def body(given: dict[str, Any], **changes: Any) -> bytes:
    """Return a body with the changes; ``...`` leaves a member out."""
    members = {**given, **changes}
    return json.dumps({name: value for name, value in members.items() if value is not ...}).encode()


def parse(raw: bytes) -> ConsumerSettings:
    return settings_of(parse_body(raw), MOST)


Parse = Callable[[bytes], object]


def refused(parse: Parse, raw: bytes) -> str:
    """Return the field that an error names."""
    with pytest.raises(FieldError) as raised:
        parse(raw)
    assert " " in str(raised.value)
    return raised.value.field


@pytest.mark.parametrize(
    ("raw", "settings"),
    [
        (body(SETTINGS), ConsumerSettings(OPLOG)),
        (b" \n" + body(SETTINGS) + b"\n", ConsumerSettings(OPLOG)),
        (body(SETTINGS, types=None, parents=None, isolation=None), ConsumerSettings(OPLOG)),
        (body(SETTINGS, types=[], parents=[]), ConsumerSettings(OPLOG)),
        (body(SETTINGS, types=["B", "a", "b"]), ConsumerSettings(OPLOG, frozenset("ab"))),
        (
            body(SETTINGS, parents=["user/1", "user/2"]),
            ConsumerSettings(OPLOG, parents=frozenset({"user/1", "user/2"})),
        ),
        (body(SETTINGS, parents=["a,b"]), ConsumerSettings(OPLOG, parents=frozenset({"a,b"}))),
        (body(SETTINGS, shards=256), ConsumerSettings(OPLOG, shards=256)),
        (body(TOPIC), ConsumerSettings(TopicName("shop", "orders"))),
        (body(TOPIC, types=[], parents=[]), ConsumerSettings(TopicName("shop", "orders"))),
        (
            body(TOPIC, isolation="read_uncommitted", shards=2),
            ConsumerSettings(
                TopicName("shop", "orders"), isolation=Isolation.READ_UNCOMMITTED, shards=2
            ),
        ),
    ],
)
def test_settings_are_read(raw: bytes, settings: ConsumerSettings) -> None:
    assert parse(raw) == settings


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "log"),
        (b"{}", "log"),
        (b"[]", "body"),
        (b"{", "body"),
        (b"null", "body"),
        (b"\xff", "body"),
        (body(SETTINGS, log=None), "log"),
        (body(SETTINGS, log=7), "log"),
        (body(SETTINGS, log=""), "log"),
        (body(SETTINGS, log="orders"), "log"),
        (body(SETTINGS, log="/orders"), "log"),
        (body(SETTINGS, log="shop/"), "log"),
        (body(SETTINGS, log="shop/a b"), "log"),
        (body(SETTINGS, log="shop/orders/x"), "log"),
        (body(SETTINGS, log="shop/é"), "log"),
        (body(SETTINGS, log="s/" + "x" * 498), "log"),
        (body(SETTINGS, Log="shop/orders"), "Log"),
        (body(SETTINGS, name="x"), "name"),
        (body(SETTINGS, types="video"), "types"),
        (body(SETTINGS, types=[1]), "types"),
        (body(SETTINGS, types=[None]), "types"),
        (body(SETTINGS, types=["a,b"]), "types"),
        (body(SETTINGS, types=["x" * 2_000]), "types"),
        (body(SETTINGS, types=[*"abcdef"]), "types"),
        (body(SETTINGS, types=[""]), "types"),
        (body(SETTINGS, types=["a", ""]), "types"),
        (body(SETTINGS, parents="user/1"), "parents"),
        (body(SETTINGS, parents=[{}]), "parents"),
        (body(SETTINGS, parents=[*"abcdef"]), "parents"),
        (body(SETTINGS, parents=["x" * 100_000]), "parents"),
        (body(SETTINGS, parents=[""]), "parents"),
        (body(SETTINGS, isolation="read_committed"), "isolation"),
        (body(TOPIC, isolation="serializable"), "isolation"),
        (body(TOPIC, isolation=1), "isolation"),
        (body(TOPIC, types=["video"]), "types"),
        (body(TOPIC, parents=["user/1"]), "parents"),
        (body(SETTINGS, start=None), "start"),
        (body(SETTINGS, start=0), "start"),
        (body(SETTINGS, start="0" * 41), "start"),
        (body(SETTINGS, shards=0), "shards"),
        (body(SETTINGS, shards=257), "shards"),
        (body(SETTINGS, shards=-1), "shards"),
        (body(SETTINGS, shards=1.0), "shards"),
        (body(SETTINGS, shards="1"), "shards"),
        (body(SETTINGS, shards=True), "shards"),
        (body(SETTINGS, shards=None), "shards"),
        (body(SETTINGS, shards=10**30), "shards"),
    ],
)
def test_each_bad_setting_is_named(raw: bytes, field: str) -> None:
    assert refused(parse, raw) == field


def test_types_and_parents_are_bounded_together() -> None:
    with pytest.raises(FieldError, match="types and parents: are 6 values, more than 5"):
        parse(body(SETTINGS, types=[*"abc"], parents=[*"xyz"]))


@pytest.mark.parametrize(
    ("raw", "given"),
    [
        (body(SEEK), SeekBody("now")),
        (body(SEEK, shard=None), SeekBody("now")),
        (body(SEEK, position="0" * 40, shard=255), SeekBody("0" * 40, 255)),
        (body(SEEK, position="copy", shard=0), SeekBody("copy", 0)),
    ],
)
def test_a_seek_is_read(raw: bytes, given: SeekBody) -> None:
    assert parse_seek(raw) == given


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "position"),
        (b"[1]", "body"),
        (body(SEEK, position=...), "position"),
        (body(SEEK, position=None), "position"),
        (body(SEEK, position=5), "position"),
        (body(SEEK, position="0" * 41), "position"),
        (body(SEEK, shard=-1), "shard"),
        (body(SEEK, shard=256), "shard"),
        (body(SEEK, shard="0"), "shard"),
        (body(SEEK, shard=0.5), "shard"),
        (body(SEEK, shard=[0]), "shard"),
        (body(SEEK, start="now"), "start"),
        (body(SEEK, term=1), "term"),
    ],
)
def test_each_bad_member_of_a_seek_is_named(raw: bytes, field: str) -> None:
    assert refused(parse_seek, raw) == field


@pytest.mark.parametrize(
    ("raw", "given"),
    [
        (body(ACKNOWLEDGEMENT), AcknowledgementBody(1, "a")),
        (body(ACKNOWLEDGEMENT, term=MAX_TERM), AcknowledgementBody(MAX_TERM, "a")),
        (body(ACKNOWLEDGEMENT, shard=255, id="f" * 40), AcknowledgementBody(1, "f" * 40, 255)),
    ],
)
def test_an_acknowledgement_is_read(raw: bytes, given: AcknowledgementBody) -> None:
    assert parse_acknowledgement(raw) == given


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "term"),
        (b'"a"', "body"),
        (body(ACKNOWLEDGEMENT, term=...), "term"),
        (body(ACKNOWLEDGEMENT, term=None), "term"),
        (body(ACKNOWLEDGEMENT, term=0), "term"),
        (body(ACKNOWLEDGEMENT, term=-1), "term"),
        (body(ACKNOWLEDGEMENT, term="1"), "term"),
        (body(ACKNOWLEDGEMENT, term=1.5), "term"),
        (body(ACKNOWLEDGEMENT, term=MAX_TERM + 1), "term"),
        (body(ACKNOWLEDGEMENT, term=10**30), "term"),
        (body(ACKNOWLEDGEMENT, id=...), "id"),
        (body(ACKNOWLEDGEMENT, id=None), "id"),
        (body(ACKNOWLEDGEMENT, id=1), "id"),
        (body(ACKNOWLEDGEMENT, id=""), "id"),
        (body(ACKNOWLEDGEMENT, id="0" * 41), "id"),
        (body(ACKNOWLEDGEMENT, shard=None), "shard"),
        (body(ACKNOWLEDGEMENT, shard=-1), "shard"),
        (body(ACKNOWLEDGEMENT, shard=256), "shard"),
        (body(ACKNOWLEDGEMENT, shard="0"), "shard"),
        (body(ACKNOWLEDGEMENT, shard=True), "shard"),
        (body(ACKNOWLEDGEMENT, position="1"), "position"),
    ],
)
def test_each_bad_member_of_an_acknowledgement_is_named(raw: bytes, field: str) -> None:
    assert refused(parse_acknowledgement, raw) == field


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "...", "x" * 100])
def test_a_name_is_taken(name: str) -> None:
    assert consumer_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 101, "a b", "a/b", "é", "a\n", "%"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ConsumerError) as raised:
        consumer_name(name)
    assert raised.value.field == "name"
