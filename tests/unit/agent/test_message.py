"""Messages: accepted and refused input, and the encoding."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import MessageError
from oplogd.model.message import (
    MAX_HEADERS,
    MAX_KEY_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_TTL_SECONDS,
    Content,
    Message,
    Ttl,
    decode_content,
    decode_message,
    of_payload,
    ttl_seconds,
)
from tests.kits.models.properties import examples
from tests.kits.topics.messages import of_json

LINE_ENDS = "\u0085\u2028\u2029"
# Text as JSON can hold it: all characters except surrogates.
texts = st.text() | st.text('ab\0\n"\\é\U0001f600' + LINE_ENDS)
headers = st.lists(st.tuples(texts, texts), max_size=3)
not_utf8 = b"\xff\xfe\x00"


def data_of(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(message.data)
    return data


def content_of(message: Message) -> Content:
    return decode_content(message.data.decode())


def refusal(given_: Any) -> tuple[str, str]:
    with pytest.raises(MessageError) as caught:
        of_json(given_)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.reason}"
    return caught.value.field, caught.value.reason


# --- Accepted ---


def test_a_string_is_a_message_with_this_payload() -> None:
    assert of_json("hello") == Message(b'{"payload":"hello"}')


def test_an_object_keeps_its_members_in_the_order_of_the_contract() -> None:
    given_ = {
        "headers": [["b", "2"], ["a", "1"], ["b", "2"]],
        "ttl": 60,
        "key": "k",
        "payload": "hello",
    }
    assert of_json(given_) == Message(
        b'{"payload":"hello","key":"k","headers":[["b","2"],["a","1"],["b","2"]]}', 60
    )


@pytest.mark.parametrize("member", ["key", "headers", "ttl", "encoding"])
def test_null_equals_an_absent_member(member: str) -> None:
    assert of_json({"payload": "a", member: None}) == of_json("a")


def test_a_null_payload_is_kept_apart_from_an_empty_one() -> None:
    assert of_json({"payload": None}) == Message(b'{"payload":null}')
    assert of_json({"payload": ""}) == of_json("") == of_payload(b"") == Message(b'{"payload":""}')
    assert content_of(of_json({"payload": None})).raw() is None
    assert content_of(of_json("")).raw() == b""


def test_an_empty_key_is_a_key_and_empty_headers_are_none() -> None:
    assert data_of(of_json({"payload": "a", "key": "", "headers": []})) == {
        "payload": "a",
        "key": "",
    }


@examples(3)
@given(payload=texts, key=st.none() | texts, headers=headers)
@example(payload=LINE_ENDS, key=LINE_ENDS, headers=[(LINE_ENDS, LINE_ENDS)])
def test_any_text_comes_back_as_it_was_given_on_one_line(
    payload: str, key: str | None, headers: list[tuple[str, str]]
) -> None:
    message = of_json({"payload": payload, "key": key, "headers": [list(each) for each in headers]})
    text = message.data.decode()
    assert len(text.splitlines()) == 1
    assert content_of(message) == Content(payload, key, headers or None)
    expected: dict[str, Any] = {"payload": payload}
    if key is not None:
        expected["key"] = key
    if headers:
        expected["headers"] = [list(each) for each in headers]
    assert data_of(message) == expected


@examples(3)
@given(st.binary() | st.text().map(str.encode))
@example(not_utf8)
@example("\ud800".encode("utf-8", "surrogatepass"))
@example(LINE_ENDS.encode())
@example(b"\0")
def test_any_bytes_come_back_as_they_were_given(payload: bytes) -> None:
    message = of_payload(payload)
    content = content_of(message)
    assert content.raw() == payload
    try:
        expected = {"payload": payload.decode()}
    except UnicodeDecodeError:
        expected = {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}
    assert data_of(message) == expected
    encoded = base64.b64encode(payload).decode()
    assert of_json({"payload": encoded, "encoding": "base64"}) == message


@pytest.mark.parametrize(("ttl", "seconds"), [(1, 1), ("60", 60), (60.0, 60), ("007", 7)])
def test_a_ttl_is_a_whole_number_or_its_digits(ttl: Ttl, seconds: int) -> None:
    assert ttl_seconds(ttl, "ttl") == seconds
    assert of_json({"payload": "a", "ttl": ttl}).ttl == seconds


def test_a_ttl_may_be_absent_or_at_its_limit() -> None:
    assert ttl_seconds(None, "ttl") is None
    assert ttl_seconds(MAX_TTL_SECONDS, "ttl") == 3_153_600_000
    assert ttl_seconds(str(MAX_TTL_SECONDS), "ttl") == MAX_TTL_SECONDS


def test_headers_may_hold_many_brackets_and_blanks() -> None:
    text = b'{"payload": "a", "headers": [' + b" " * 70_000 + b'["b", "' + b"[" * 1100 + b'"]]}'
    assert content_of(decode_message(text)).headers == [("b", "[" * 1100)]


# --- Refused ---


@pytest.mark.parametrize(
    ("given_", "field", "reason"),
    [
        (None, "message", "must be a string or an object"),
        (1, "message", "must be a string or an object"),
        (["a"], "message", "must be a string or an object"),
        ("\udfff", "message", "is not valid JSON: invalid utf-16 surrogate pair (byte 7)"),
        (
            "\ud800",
            "message",
            "is not valid JSON: unexpected end of escaped utf-16 surrogate pair (byte 7)",
        ),
        (
            {"payload": "a", "headers": [["a", "\ud800"]]},
            "message",
            "is not valid JSON: unexpected end of escaped utf-16 surrogate pair (byte 42)",
        ),
        ({}, "payload", "is required"),
        ({"key": "k"}, "payload", "is required"),
        ({"payload": "a", "Key": "k"}, "Key", "is not a member of a message"),
        ({"payload": "a", "z": 1, "event": 1}, "z", "is not a member of a message"),
        ({"payload": 1}, "payload", "must be a string or null"),
        ({"payload": {"a": 1}}, "payload", "must be a string or null"),
        ({"payload": 1, "encoding": "base64"}, "payload", "must be a string or null"),
        ({"payload": "a", "encoding": "utf-8"}, "encoding", "must be base64"),
        ({"payload": "a", "encoding": "Base64"}, "encoding", "must be base64"),
        ({"payload": "a", "encoding": 1}, "encoding", "must be base64"),
        ({"payload": "a", "encoding": []}, "encoding", "must be base64"),
        ({"payload": None, "encoding": "utf-8"}, "encoding", "must be base64"),
        ({"payload": "a", "key": 1}, "key", "must be a string"),
        ({"payload": "a", "headers": "ab"}, "headers", "must be a list of [name, value]"),
        ({"payload": "a", "headers": {"a": "b"}}, "headers", "must be a list of [name, value]"),
        ({"payload": "a", "headers": "[" * 1100}, "headers", "must be a list of [name, value]"),
        (
            {"payload": "a", "headers": {"": "[" * 1100}},
            "headers",
            "must be a list of [name, value]",
        ),
        ({"payload": "a", "headers": ["ab"]}, "headers[0]", "must be [name, value]"),
        ({"payload": "a", "headers": [["a"]]}, "headers[0]", "must be [name, value]"),
        (
            {"payload": "a", "headers": [["a", "b"], ["a", "b", "c"]]},
            "headers[1]",
            "must be [name, value]",
        ),
        ({"payload": "a", "headers": [{"a": "b"}]}, "headers[0]", "must be [name, value]"),
        (
            {"payload": "a", "headers": [["a", "b"], ["a", 1]]},
            "headers[1]",
            "name and value must be strings",
        ),
        (
            {"payload": "a", "headers": [[None, "b"]]},
            "headers[0]",
            "name and value must be strings",
        ),
        (
            {"payload": "a", "headers": [["a", "\udfff"]]},
            "message",
            "is not valid JSON: invalid utf-16 surrogate pair (byte 42)",
        ),
    ],
)
def test_a_bad_message_is_refused_with_the_part_at_fault(
    given_: object, field: str, reason: str
) -> None:
    assert refusal(given_) == (field, reason)


def test_bytes_that_are_no_text_in_a_header_are_refused() -> None:
    with pytest.raises(MessageError, match=r"^headers: is not UTF-8 "):
        decode_message(b'{"payload":"x","headers":[["a\xff","b"]]}')


@pytest.mark.parametrize(
    "text", ["a", "ab=", "ab=c", "YQ", "YQ==\n", " YQ==", "YQ==YQ==", "é", "-_8="]
)
def test_a_payload_that_only_claims_to_be_base64_is_refused(text: str) -> None:
    assert refusal({"payload": text, "encoding": "base64"}) == ("payload", "is not base64")


@pytest.mark.parametrize(
    "ttl",
    [
        True,
        False,
        1.5,
        "",
        " 1",
        "1 ",
        "+1",
        "1.0",
        "1e3",
        "\u0661",
        "1_0",
        [1],
        {},
    ],
)
def test_a_ttl_that_is_no_whole_number_is_refused(ttl: object) -> None:
    assert refusal({"payload": "a", "ttl": ttl}) == ("ttl", "must be a whole number of seconds")


@pytest.mark.parametrize("ttl", [0, -1, "0", -1.0, MAX_TTL_SECONDS + 1, "9" * 12, 10**400, 1e300])
def test_a_ttl_out_of_range_is_refused(ttl: object) -> None:
    assert refusal({"payload": "a", "ttl": ttl}) == (
        "ttl",
        "must be 1 to 3,153,600,000 seconds",
    )


def test_a_ttl_names_the_field_that_it_came_from() -> None:
    with pytest.raises(MessageError, match=r"^properties\.ttl: must be a whole number of seconds$"):
        ttl_seconds("x", "properties.ttl")


@pytest.mark.parametrize(
    "given_",
    [
        "a" * MAX_MESSAGE_BYTES,
        "é" * (MAX_MESSAGE_BYTES // 2),
        {"payload": "a" * (MAX_MESSAGE_BYTES - 3), "key": "k", "headers": [["n", "v"]]},
        {"payload": None, "headers": [["n" * (MAX_MESSAGE_BYTES - 1), "v"]]},
        {
            "payload": base64.b64encode(b"\xff" * MAX_MESSAGE_BYTES).decode(),
            "encoding": "base64",
        },
    ],
    ids=["text", "wide text", "all parts", "headers", "base64"],
)
def test_a_message_at_the_limit_is_accepted_and_one_byte_more_refused(given_: Any) -> None:
    content = content_of(of_json(given_))
    size = len(content.raw() or b"") + len((content.key or "").encode())
    size += sum(len(text.encode()) for pair in content.headers or () for text in pair)
    assert size == MAX_MESSAGE_BYTES
    whole = {"payload": given_} if isinstance(given_, str) else given_
    more = {**whole, "headers": [*whole.get("headers", []), ["", "x"]]}
    assert refusal(more) == ("message", "has 1,048,577 bytes, more than 1,048,576")


def test_a_payload_of_bytes_one_over_the_limit_is_refused() -> None:
    assert content_of(of_payload(b"\xff" * MAX_MESSAGE_BYTES)).encoding == "base64"
    with pytest.raises(MessageError, match=r"^message: has 1,048,577 bytes, more than 1,048,576$"):
        of_payload(b"\xff" * (MAX_MESSAGE_BYTES + 1))


def test_headers_at_the_limit_are_accepted_and_one_more_refused() -> None:
    """Empty headers have no bytes, so the size of a message does not bound them."""
    headers = [["", ""]] * MAX_HEADERS
    kept = decode_content(of_json({"payload": "", "headers": headers}).data.decode()).headers
    assert kept == [("", "")] * MAX_HEADERS
    with pytest.raises(MessageError) as error:
        of_json({"payload": "", "headers": [*headers, ["", ""]]})
    assert str(error.value) == "headers: are more than 1,000"


@pytest.mark.parametrize("letter", ["k", "é"])
def test_a_key_at_the_limit_is_accepted_and_a_longer_one_refused(letter: str) -> None:
    key = letter * (MAX_KEY_BYTES // len(letter.encode()))
    assert content_of(of_json({"payload": "a", "key": key})).key == key
    assert refusal({"payload": "a", "key": key + "x"}) == ("key", "is longer than 1,024 bytes")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["payload", "key", "headers", "ttl", "encoding", "x"]), inner
        )
    ),
    max_leaves=8,
)


@examples(5)
@given(json_values)
def test_any_json_is_a_message_or_one_error(given_: Any) -> None:
    try:
        message = of_json(given_)
    except MessageError:
        return
    given_ = given_ if isinstance(given_, dict) else {"payload": given_}
    assert content_of(message).key == given_.get("key")


@pytest.mark.parametrize(
    "data", ["", "{}", "[]", '{"payload":1}', '{"payload":"a"', '{"payload":"\\ud800"}']
)
def test_damaged_stored_data_is_one_error(data: str) -> None:
    with pytest.raises(MessageError, match=r"^data: "):
        decode_content(data)


def test_data_is_what_any_json_reader_reads() -> None:
    message = of_json({"payload": LINE_ENDS + "\0", "key": "é"})
    assert message.data == '{"payload":"\\u0085\\u2028\\u2029\\u0000","key":"é"}'.encode()
    assert msgspec.json.decode(message.data) == json.loads(message.data)
