"""The JSON bodies of publish and poll: every rule, and the messages for people."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.decode import walk as json_walk
from oplogd.decode.compressed import TooLargeError
from oplogd.decode.pieces import at_once
from oplogd.errors import MessageError, MessageTooLargeError
from oplogd.model.message import MAX_MESSAGE_BYTES, Message
from oplogd.model.transaction import Isolation
from oplogd.topics.codec.codec import (
    InvalidMessagesError,
    PollMessage,
    PollRequest,
    reading_publish,
)
from oplogd.topics.codec.json_codec import JsonCodec
from tests.kits.models.properties import examples
from tests.kits.topics.messages import decode_poll

CODEC = JsonCodec()
ID = "0000018bcfe56800" + "0" * 24


def published(body: bytes, ttl: int | None = None, most: int = 1000) -> list[Message]:
    work = reading_publish(CODEC, body, lambda given: CODEC.message(given, ttl), most)
    pointer, messages = at_once(work)
    if pointer is not None:
        raise MessageError("transactionWritePointer", "must be null")
    return messages


def test_messages_are_strings_or_objects() -> None:
    body = b' {"messages": ["a", {"payload": "b", "key": "k"}], "transactionWritePointer": null}'
    assert published(body) == [
        Message(b'{"payload":"a"}'),
        Message(b'{"payload":"b","key":"k"}'),
    ]


def test_a_default_ttl_counts_for_messages_without_their_own() -> None:
    body = b'{"messages": ["a", {"payload": "b", "ttl": 5}]}'
    assert [each.ttl for each in published(body, ttl=9)] == [9, 5]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "body: is not valid JSON: Input data was truncated"),
        (b"[]", "body: must be an object"),
        (b"{}", "messages: must be a list with at least one message"),
        (b'{"messages": null}', "messages: must be a list with at least one message"),
        (b'{"messages": {}}', "messages: must be a list with at least one message"),
        (b'{"messages": []}', "messages: there is none"),
        (b'{"messages": ["a"], "x": 1}', "x: is not a member of this request"),
        (b'{"messages": ["a"], "transactionWritePointer": 7}',
         "transactionWritePointer: must be null"),
        (b'{"messages": ["a"', "body: is not valid JSON: Input data was truncated"),
        (b'{"messages": ' + b"[" * 100_000, "body: is nested too deeply"),
    ],
)  # fmt: skip
def test_a_bad_body_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(MessageError) as error:
        published(body)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("5", "messages[1]"),
        ("{}", "messages[1].payload"),
        ('{"payload": 5}', "messages[1].payload"),
        ('{"payload": "a", "x": 1}', "messages[1].x"),
        ('{"payload": "a", "headers": [["n", "v"], ["n"]]}', "messages[1].headers[1]"),
        ('{"payload": "a", "ttl": 0}', "messages[1].ttl"),
        ('"\xff"', "messages[1]"),
    ],
)
def test_a_bad_message_is_named(message: str, field: str) -> None:
    body = b'{"messages": ["a", %b, "b"]}' % message.encode("latin-1")
    with pytest.raises(InvalidMessagesError) as error:
        published(body)
    assert [each.field for each in error.value.bad] == [field]
    assert (error.value.count, error.value.too_large) == (1, False)


def test_the_first_hundred_bad_messages_are_named_and_all_are_counted() -> None:
    with pytest.raises(InvalidMessagesError) as error:
        published(b'{"messages": [%b]}' % b",".join([b"1"] * 500))
    assert [each.field for each in error.value.bad] == [f"messages[{n}]" for n in range(100)]
    assert error.value.count == 500


def test_a_large_message_is_too_large() -> None:
    with pytest.raises(InvalidMessagesError) as error:
        published(b'{"messages": ["%b"]}' % (b"x" * (1 << 20) + b"x"))
    assert error.value.too_large


@pytest.mark.parametrize("count", [11, 300_000])
def test_more_messages_than_the_queue_holds_are_too_large(count: int) -> None:
    with pytest.raises(TooLargeError):
        published(b'{"messages": [%b]}' % b",".join([b'"a"'] * count), most=10)


@pytest.mark.parametrize(("size", "pieces"), [(1, 2), (4094, 7), (100_000, 199)])
def test_a_piece_ends_after_many_bytes(size: int, pieces: int) -> None:
    """100 messages: other requests run between the pieces, however large the messages are.

    A long body is cut into messages in pieces of its own.
    """
    body = b'{"messages": [' + b",".join([b'"' + b"x" * size + b'"'] * 100) + b"]}"
    checked = reading_publish(CODEC, body, lambda each: CODEC.message(each, None), 100)
    assert sum(1 for _ in checked) == pieces


def test_a_text_that_no_message_needs_is_refused_before_it_is_decoded() -> None:
    most = b'"' + rb"\u0001" * 1024 * 1024 + b'"'
    assert len(published(b'{"messages": [' + most + b"]}")) == 1
    nothing = b'{"payload": ""' + b" " * 8 * 1024 * 1024 + b"}"
    with pytest.raises(MessageTooLargeError) as error:
        published(b'{"messages": [' + nothing + b"]}")
    assert str(error.value) == "messages[0]: has a value of more than 7,340,032 bytes (byte 14)"


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 5000])
def test_a_number_out_of_range_is_said_to_be_one(number: bytes) -> None:
    with pytest.raises(InvalidMessagesError) as error:
        published(b'{"messages": [{"payload": "a", "ttl": ' + number + b"}]}")
    assert str(error.value) == "messages[0]: has a number that is out of range"
    with pytest.raises(MessageError) as poll_error:
        decode_poll(CODEC, b'{"limit": ' + number + b"}")
    assert str(poll_error.value) == "body: has a number that is out of range"


def test_a_list_too_long_to_split_at_once_has_all_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 20_002
    monkeypatch.setattr(json_walk, "MANY_COMMAS", count // 4)
    body = b'{"messages": [ %b ]}' % b" , ".join([b'"a"'] * count)
    assert published(body, most=count) == [Message(b'{"payload":"a"}')] * count


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"{}", PollRequest()),
        (b'{"startFrom": null, "inclusive": true, "limit": null, "transaction": null}',
         PollRequest()),
        (b'{"startFrom": 5, "inclusive": false, "limit": 7}', PollRequest(5, False, 7)),
        (b'{"startFrom": "%b"}' % ID.encode(), PollRequest(bytes.fromhex(ID))),
    ],
)  # fmt: skip
def test_a_poll_is_decoded(body: bytes, request_: PollRequest) -> None:
    assert decode_poll(CODEC, body) == request_


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "body"),
        (b"{", "body"),
        (b'{"from": 1}', "from"),
        (b'{"startFrom": -1}', "startFrom"),
        (b'{"startFrom": 1.5}', "startFrom"),
        (b'{"startFrom": true}', "startFrom"),
        (b'{"startFrom": "5"}', "startFrom"),
        (b'{"startFrom": "%b"}' % ID.upper().replace("B", "g").encode(), "startFrom"),
        (b'{"limit": 0}', "limit"),
        (b'{"limit": -1}', "limit"),
        (b'{"limit": "5"}', "limit"),
        (b'{"limit": false}', "limit"),
        (b'{"inclusive": null}', "inclusive"),
        (b'{"transaction": 5}', "transaction"),
        (b'{"isolation": "committed"}', "isolation"),
        (b'{"isolation": ""}', "isolation"),
        (b'{"isolation": ["read_committed"]}', "isolation"),
    ],
)
def test_a_bad_poll_names_its_member(body: bytes, field: str) -> None:
    with pytest.raises(MessageError) as error:
        decode_poll(CODEC, body)
    assert error.value.field == field


@pytest.mark.parametrize("query", Isolation)
@pytest.mark.parametrize(
    ("member", "counts"),
    [
        ("", None),
        ('"isolation": null', None),
        ('"isolation": "read_committed"', Isolation.READ_COMMITTED),
        ('"isolation": "read_uncommitted"', Isolation.READ_UNCOMMITTED),
    ],
)
def test_the_isolation_of_the_body_wins_over_that_of_the_query(
    member: str, query: Isolation, counts: Isolation | None
) -> None:
    assert decode_poll(CODEC, b"{%b}" % member.encode(), query).isolation is (counts or query)


def test_answers_are_joined_from_stored_text() -> None:
    data = '{"payload":"é","key":"k"}'
    assert CODEC.encode([]) == b"[]"
    assert CODEC.encode([PollMessage(ID, data), PollMessage(ID, '{"payload":null}')]) == (
        f'[{{"id":"{ID}","payload":"é","key":"k"}},{{"id":"{ID}","payload":null}}]'.encode()
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b'{"event": "insert"}', b'{"event": "insert"}'),
        (b'"{\\"event\\": \\"insert\\"}"', b'{"event": "insert"}'),
        (b'{"payload": "{\\"event\\": 1}"}', b'{"event": 1}'),
    ],
)
def test_a_message_of_the_oplog_is_an_operation(given: Any, text: bytes) -> None:
    assert CODEC.operation(given) == text


# --- Long bodies, which are read value by value ---

TOKENS = [b'"a"', b'{"payload": "b"}', b'{"payload": "c", "ttl": 5}', b"1", b"[]", b",", b",", b" ",
          b"]", b"}", b'"']  # fmt: skip
BEGINS = [b'{"messages": [', b'{"transactionWritePointer": null , "messages" :[', b'{"messages":']


@examples(3)
@given(
    st.sampled_from(BEGINS),
    st.lists(st.sampled_from(TOKENS), max_size=8),
    st.sampled_from([b"]}", b"]  }  ", b'], "transactionWritePointer": 7}', b'], "x": 1}']),
)
def test_both_ways_to_read_a_publish_say_the_same(
    begin: bytes, tokens: list[bytes], end: bytes
) -> None:  # fmt: skip
    said: list[list[Message] | str] = []
    for commas in (1_000_000, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_walk, "MANY_COMMAS", commas)
            try:
                said.append(published(begin + b"".join(tokens) + end))
            except (MessageError, InvalidMessagesError) as error:
                said.append(str(error) if isinstance(error, InvalidMessagesError) else "")
    assert said[0] == said[1]


@pytest.mark.parametrize("place", range(6))
def test_blanks_are_no_part_of_a_value(place: int) -> None:
    parts = [b'{"messages"', b":", b"[", b'"%b"' % (b"a" * MAX_MESSAGE_BYTES), b',"b"', b"]}"]
    parts.insert(place, b" " * 8 * 1024 * 1024)
    assert [len(each.data) for each in published(b"".join(parts))] == [MAX_MESSAGE_BYTES + 14, 15]


def test_a_pointer_that_is_a_list_is_no_number_in_a_long_body_either() -> None:
    body = b'{"transactionWritePointer": [], "messages": ["a"%b]}' % (b" " * 2_000_000)
    with pytest.raises(MessageError, match=r"^transactionWritePointer: must be a whole number"):
        published(body)


def test_a_value_that_no_message_needs_is_named_with_its_place() -> None:
    with pytest.raises(MessageTooLargeError, match=r"^messages\[1\]: has a value of more than "):
        published(b'{"messages": ["a", "%b"]}' % (b"b" * 8 * 1024 * 1024))


@pytest.mark.parametrize("before", [0, 1, 30_000])
@pytest.mark.parametrize("end", [b"]}", b'],"transactionWritePointer":null}'])
@pytest.mark.parametrize("message", [rb'{"payload":"\ud800"}', rb'"\ud800"'])
def test_a_message_with_an_unpaired_surrogate_is_named(
    before: int, end: bytes, message: bytes
) -> None:
    good = b'{"payload":"%b"}' % (b"x" * 40)
    body = b'{"messages":[' + b",".join([*[good] * before, message]) + end
    with pytest.raises(MessageError) as error:
        published(body, most=before + 1)
    assert str(error.value).startswith(
        f"messages[{before}]: is not valid JSON: unexpected end of escaped utf-16 surrogate pair"
    )


def test_an_error_repeats_a_hundred_characters_of_a_name() -> None:
    with pytest.raises(MessageError) as error:
        published(b'{"messages": ["a"], "%b": 1}' % (b"n" * 5000))
    assert str(error.value) == f"{'n' * 100}…: is not a member of this request"
