"""Messages, names and answers of topics in the Python client: the rules without a network."""

import inspect
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.http.answers import Answer
from oplogc.topics import (
    AsyncTopics,
    BadRequestError,
    Message,
    MessageError,
    NotAllowed,
    ReceivedMessage,
    RefusedError,
    Reset,
    TopicAlreadyExists,
    TopicName,
    TopicNotFound,
    Topics,
)
from oplogc.topics.calls import topics as calls
from oplogc.topics.consumer import MAX_BLOCK_BYTES, read
from oplogc.topics.messages.message import as_json, decode, encode
from oplogc.topics.messages.names import topic_name
from oplogc.wire.errors import ProtocolError
from oplogc.wire.sse import Block, BlockParser
from oplogd.model import message as agents
from oplogd.model.message_id import MessageId

ID = str(MessageId(1_415_271_879_041, 7))
NAME = TopicName("default", "t")


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        ("é", '"é"'),
        (b"\xc3\xa9", '"é"'),
        ("", '""'),
        (b"\xff\x00", '{"payload":"/wA=","encoding":"base64"}'),
        (Message("a"), '"a"'),
        (Message(None), '{"payload":null}'),
        (
            Message("a", "k", [("n", "v"), ("n", "")], 5),
            '{"payload":"a","key":"k","headers":[["n","v"],["n",""]],"ttl":5}',
        ),
        (ReceivedMessage(ID, b"\xff", "k"), '{"payload":"/w==","encoding":"base64","key":"k"}'),
    ],
)
def test_a_message_is_encoded_as_an_agent_reads_it(
    message: str | bytes | Message, encoded: str
) -> None:
    assert encode(message).decode() == encoded


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (5, "payload"),
        (["a"], "payload"),
        ("\ud800", "payload"),
        (Message("a", "k" * 1025), "key"),
        (Message("a", "é" * 513), "key"),
        (Message("a", 5), "key"),  # type: ignore[arg-type]
        (Message("a", headers=[("n",)]), r"headers\[0\]"),  # type: ignore[list-item]
        (Message("a", headers=[("n", "v"), ("n", 5)]), r"headers\[1\]"),  # type: ignore[list-item]
        (Message("a", headers=["nv"]), r"headers\[0\]"),  # type: ignore[list-item]
        (Message("a", headers="nv"), "headers"),  # type: ignore[arg-type]
        (Message("a", ttl=0), "ttl"),
        (Message("a", ttl=True), "ttl"),
        (Message("a", ttl=100 * 365 * 86_400 + 1), "ttl"),
        ("a" * (1024 * 1024 + 1), "message"),
        (Message(b"\xff" * (1024 * 1024), "k"), "message"),
    ],
)
def test_a_message_that_an_agent_would_refuse_is_refused_here(message: Message, field: str) -> None:
    with pytest.raises(MessageError, match=rf"^{field}: ") as raised:
        encode(message)
    assert isinstance(raised.value, ValueError)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.one_of(st.none(), TEXTS, st.binary(max_size=20)),
    st.one_of(st.none(), TEXTS),
    st.lists(st.tuples(TEXTS, TEXTS), max_size=3),
)
def test_a_message_comes_back_from_the_agents_rules_as_it_was_sent(
    payload: str | bytes | None, key: str | None, headers: list[tuple[str, str]]
) -> None:
    stored = agents.decode_message(encode(Message(payload, key, headers)))
    got = decode(ID, json.loads(stored.data))
    raw = payload.encode() if isinstance(payload, str) else payload
    assert (got.raw, got.key, got.headers) == (raw, key, tuple(headers))
    if isinstance(payload, str):
        assert got.text == payload
    shown = as_json(got)
    assert decode(str(shown.pop("id")), shown) == got
    # The block of the stream, cut anywhere.
    block = b"id: %s\nevent: message\ndata: %s\n\n" % (ID.encode(), stored.data)
    parser = BlockParser(max_block_bytes=MAX_BLOCK_BYTES)
    blocks = [each for piece in (block[:9], block[9:]) for each in parser.feed(piece)]
    assert [read(each, 1) for each in blocks] == [got]


def test_the_largest_message_of_an_agent_fits_into_a_block() -> None:
    stored = agents.decode_message(encode("\x01" * 1024 * 1024))
    parser = BlockParser(max_block_bytes=MAX_BLOCK_BYTES)
    (block,) = parser.feed(b"id: %s\nevent: message\ndata: %s\n\n" % (ID.encode(), stored.data))
    got = read(block, 1)
    assert isinstance(got, ReceivedMessage)
    assert got.text == "\x01" * 1024 * 1024


def test_bytes_that_are_not_text_come_as_bytes_only() -> None:
    text, raw, none = (ReceivedMessage(ID, payload) for payload in ("é", b"\xff", None))
    assert (text.text, text.raw) == ("é", b"\xc3\xa9")
    assert (raw.text, raw.raw) == (None, b"\xff")
    assert (none.text, none.raw) == (None, None)


@pytest.mark.parametrize("id_", [ID, "545b55c70029000000000001", "1415271879041"])
def test_an_id_tells_the_time_of_publication(id_: str) -> None:
    moment = datetime(2014, 11, 6, 11, 4, 39, 41000, UTC)
    assert ReceivedMessage(id_, "").published == moment


@pytest.mark.parametrize(
    ("text", "name"),
    [("a", ("default", "a")), ("n/a", ("n", "a")), ("system/oplog", ("system", "oplog"))],
)
def test_a_bare_name_is_in_the_namespace_default(text: str, name: tuple[str, str]) -> None:
    assert topic_name(text) == name


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "a/b/c", ".", "..", "n/..", "é", "a b"])
def test_a_name_that_no_topic_can_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a topic"):
        topic_name(text)
    with pytest.raises(ValueError, match="is not a topic"):
        topic_name("x" * 250)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (204, ProtocolError),
        (302, RefusedError),
        (400, BadRequestError),
        (401, NotAllowed),
        (403, NotAllowed),
        (404, TopicNotFound),
        (405, RefusedError),
        (409, TopicAlreadyExists),
        (413, BadRequestError),
        (415, BadRequestError),
    ],
)
def test_an_answer_has_one_error(status: int, kind: type[Exception] | None) -> None:
    answer = Answer(status, b'{"detail":"no, never"}', "http://agent", location="http://other")
    error = calls.refusal(calls.create(NAME, calls.Properties()), answer)
    assert (type(error) if error else None) is kind
    if status >= 400:
        assert str(error).endswith(f"no, never (HTTP {status})")
        assert str(error).startswith("no, never") == (status != 401)


def test_the_reserved_namespace_is_no_topic_that_exists() -> None:
    answer = Answer(409, b'{"detail":"reserved"}', "http://agent")
    name = TopicName("system", "t")
    for call in (
        calls.create(name, calls.Properties()),
        calls.delete(name),
        calls.update(NAME, calls.Properties(5)),
    ):
        if call.path.endswith("properties"):
            continue
        assert type(calls.refusal(call, answer)) is RefusedError


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"{}", b"[5]", b"[{}]", b'[{"id":5,"payload":""}]',
        b'[{"id":"x","payload":""}]', b'[{"id":"1","payload":5}]',
        b'[{"id":"1","payload":"%","encoding":"base64"}]',
        b'[{"id":"1","payload":"","encoding":"rot13"}]',
        b'[{"id":"1","payload":"","headers":[["a"]]}]',
        b'[{"id":"1","payload":"","headers":5}]',
    ],
)  # fmt: skip
def test_an_answer_to_a_poll_that_no_agent_gives_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="is no agent with topics"):
        calls.polled(Answer(200, body, "http://agent"))


def test_a_page_does_not_confirm_a_message() -> None:
    assert calls.confirmation(Answer(200, b"", "http://agent")) is None
    error = calls.confirmation(Answer(200, b"<html>", "http://agent"))
    assert isinstance(error, ProtocolError)


def test_blocks_of_a_stream_are_messages_resets_and_positions() -> None:
    assert read(Block("0", "reset"), 1) == Reset("0")
    assert read(Block(ID, "message", '{"payload":"a"}'), 1) == ReceivedMessage(ID, "a")
    assert read(Block(ID), 3) == (ID, 3)
    assert read(Block(ID, "news", "x"), 3) == (ID, 3)
    assert read(Block("", "news", "x", has_id=False), 3) is None
    inserted = read(Block("545b55c7f095528dd0f3863c", "insert", '{"type":"a","id":"b"}'), 1)
    assert isinstance(inserted, ReceivedMessage)
    assert inserted.text == '{"event":"insert","type":"a","id":"b"}'


@pytest.mark.parametrize(
    "block",
    [
        Block("x", "message", '{"payload":"a"}'),
        Block(ID, "message", "{"),
        Block(ID, "message", '{"key":"a"}'),
        Block(ID, "message", '{"payload":"%","encoding":"base64"}'),
        Block(ID, "message", "[" * 100_000),
        Block(ID, "insert", "5"),
    ],
)
def test_a_block_that_no_agent_sends_is_an_error(block: Block) -> None:
    with pytest.raises(ProtocolError):
        read(block, 1)


def test_both_kinds_of_topics_have_the_same_methods_with_the_same_arguments() -> None:
    names = {"create", "update", "get", "list", "delete", "publish", "poll", "stream", "flush"}
    names |= {"transaction", "list_transactions", "get_transaction", "abort_transaction"}
    names |= {"commit_whole", "entries", "foreign_publisher", "namespaces", "leases"}
    names |= {f"{verb}_consumer" for verb in ("create", "get", "delete", "seek")}
    names |= {"list_consumers", "acknowledge"}
    pairs = [(name, name) for name in names] + [("__init__", "__init__"), ("close", "aclose")]
    for sync, other in pairs:
        ours, theirs = getattr(Topics, sync), getattr(AsyncTopics, other)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
    public = {name for name in dir(Topics) if not name.startswith("_")}
    assert public - {"flush_at_exit"} == names | {"close", "counters", "pointers"}
