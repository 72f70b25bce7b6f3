"""Operations: accepted and refused input, and the encoding."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.decode.nesting import MAX_DEPTH
from oplogd.errors import OperationError
from oplogd.model.operation import (
    MAX_ID_BYTES,
    MAX_OPERATION_BYTES,
    MAX_TYPE_BYTES,
    Operation,
    decode,
)
from tests.kits.models.properties import examples

ARRIVAL = "2026-01-02T03:04:05.006Z"
TIME = "2014-11-06T11:04:39.041Z"
VALID = {"event": "insert", "type": "video", "id": "xekw", "parents": ["x3kd2"], "timestamp": TIME}


def decoded(given_: Any) -> Operation:
    return decode(given_ if isinstance(given_, bytes) else json.dumps(given_).encode(), ARRIVAL)


def data_of(operation: Operation) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(operation.data)
    return data


def refusal(given_: Any) -> tuple[str, str]:
    with pytest.raises(OperationError) as caught:
        decoded(given_)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.reason}"
    return caught.value.field, caught.value.reason


def changed(**members: Any) -> dict[str, Any]:
    return {**VALID, **members}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in VALID.items() if key != name}


# --- Accepted ---


def test_an_operation_is_emitted_in_the_order_of_the_contract() -> None:
    assert decoded(VALID) == Operation(
        "insert",
        "video/xekw",
        b'{"timestamp":"2014-11-06T11:04:39.041Z","parents":["x3kd2"],"type":"video","id":"xekw"}',
    )


@pytest.mark.parametrize(
    "event", ["insert", "INSERT", "Insert", "iNsErT", "update", "UPDATE", "delete", "DeLeTe"]
)
def test_the_event_is_stored_in_lower_case(event: str) -> None:
    assert decoded(changed(event=event)).event == event.lower()


def test_the_type_is_stored_in_lower_case_and_the_id_unchanged() -> None:
    operation = decoded(changed(type="VidÉO", id="XeKw"))
    assert operation.key == "vidéo/XeKw"
    assert data_of(operation)["type"] == "vidéo"
    assert data_of(operation)["id"] == "XeKw"


@pytest.mark.parametrize("given_", [without("parents"), changed(parents=None), changed(parents=[])])
def test_no_parents_are_an_empty_list(given_: dict[str, Any]) -> None:
    assert data_of(decoded(given_))["parents"] == []


@pytest.mark.parametrize("given_", [without("timestamp"), changed(timestamp=None)])
def test_no_timestamp_is_the_time_of_arrival(given_: dict[str, Any]) -> None:
    assert data_of(decoded(given_))["timestamp"] == ARRIVAL


def test_unknown_keys_are_ignored() -> None:
    assert decoded(changed(more={"deep": [1, 2.5, None, "é"]}, ref="x")) == decoded(VALID)


def test_unknown_keys_may_be_nested_as_deeply_as_the_limit_says() -> None:
    assert decoded(changed(more=nested(MAX_DEPTH - 1))) == decoded(VALID)


def test_white_space_around_the_object_is_ignored() -> None:
    assert decoded(b" \t\r\n" + json.dumps(VALID, indent=2).encode() + b"\n") == decoded(VALID)


def test_an_id_may_hold_slashes_and_commas() -> None:
    assert decoded(changed(id="a/b,c")).key == "video/a/b,c"


@pytest.mark.parametrize(("name", "longest"), [("type", MAX_TYPE_BYTES), ("id", MAX_ID_BYTES)])
@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
def test_lengths_are_counted_in_bytes(name: str, longest: int, letter: str) -> None:
    fits = letter * (longest // len(letter.encode()))
    fits += "a" * (longest - len(fits.encode()))
    assert data_of(decoded(changed(**{name: fits})))[name] == fits
    field, reason = refusal(changed(**{name: fits + "a"}))
    assert (field, reason) == (name, f"is longer than {longest:,} bytes")


def test_a_type_that_grows_in_lower_case_is_measured_then() -> None:
    assert refusal(changed(type="İ" * 127)) == ("type", "is longer than 255 bytes")


def test_an_operation_may_have_64_kib_and_not_one_byte_more() -> None:
    raw = json.dumps(VALID).encode()
    raw += b" " * (MAX_OPERATION_BYTES - len(raw))
    assert decode(raw, ARRIVAL) == decoded(VALID)
    assert refusal(raw + b" ") == ("operation", "has 65,537 bytes, more than 65,536")


# --- Refused ---


@pytest.mark.parametrize(
    ("given_", "field", "reason"),
    [
        (without("event"), "event", "is required"),
        (without("type"), "type", "is required"),
        (without("id"), "id", "is required"),
        (changed(event="upsert"), "event", "must be insert, update or delete"),
        (changed(event=""), "event", "must be insert, update or delete"),
        (changed(event="\u0131nsert"), "event", "must be insert, update or delete"),
        (changed(event=None), "event", "must be a string, not null"),
        (changed(event=1), "event", "must be a string, not a number"),
        (changed(type=None), "type", "must be a string, not null"),
        (changed(type=1.5), "type", "must be a string, not a number"),
        (changed(type=""), "type", "must not be empty"),
        (changed(type="a/b"), "type", "must not contain '/' or ','"),
        (changed(type="a,b"), "type", "must not contain '/' or ','"),
        (changed(type="a\0b"), "type", "must not contain NUL"),
        (changed(id=None), "id", "must be a string, not null"),
        (changed(id=True), "id", "must be a string, not true or false"),
        (changed(id=["a"]), "id", "must be a string, not a list"),
        (changed(id=""), "id", "must not be empty"),
        (changed(id="\0"), "id", "must not contain NUL"),
        (changed(parents="a"), "parents", "must be a list, not a string"),
        (changed(parents={}), "parents", "must be a list, not an object"),
        (changed(parents=["a", ""]), "parents[1]", "must not be empty"),
        (changed(parents=["a\0"]), "parents[0]", "must not contain NUL"),
        (changed(parents=["a", None]), "parents[1]", "must be a string, not null"),
        (changed(timestamp=0), "timestamp", "must be a string, not a number"),
        (
            changed(timestamp=""),
            "timestamp",
            "not an RFC 3339 time such as 2014-11-06T11:04:39.041Z",
        ),
        (
            changed(timestamp="yesterday"),
            "timestamp",
            "not an RFC 3339 time such as 2014-11-06T11:04:39.041Z",
        ),
        (
            changed(timestamp=TIME + "\n"),
            "timestamp",
            "not an RFC 3339 time such as 2014-11-06T11:04:39.041Z",
        ),
        ([VALID], "operation", "must be an object, not a list"),
        ("insert", "operation", "must be an object, not a string"),
        (None, "operation", "must be an object, not null"),
        (b"", "operation", "is not valid JSON: Input data was truncated"),
        (b"{", "operation", "is not valid JSON: Input data was truncated"),
        (
            b'{"event":"insert","type":"a","id":"b","\\ud800":1}',
            "operation",
            "is not valid JSON: unexpected end of escaped utf-16 surrogate pair (byte 45)",
        ),
        (
            b'{"event":"insert","type":"a","id":"b","x":"\\uD800\\n"}',
            "operation",
            "is not valid JSON: unexpected end of escaped utf-16 surrogate pair (byte 49)",
        ),
        (
            b'{"event":"insert","type":"a","id":"b","\\\\ud800":1',
            "operation",
            "is not valid JSON: Input data was truncated",
        ),
        (b"\xff", "operation", "is not UTF-8 (byte 0)"),
        (b'{"event":"insert","type":"a","id":"\xff"}', "operation", "is not UTF-8 (byte 35)"),
        (
            b'{"event":"insert","type":"a","id":"b","x":"\xed\xa0\x80"}',
            "operation",
            "is not UTF-8 (byte 43)",
        ),
        (b'{"x":' * 5000 + b"1" + b"}" * 5000, "operation", "is nested too deeply"),
        (changed(more=nested(MAX_DEPTH)), "operation", "is nested too deeply"),
        (b'{"x":' + b"[" * 60_000, "operation", "is nested too deeply"),
    ],
)
def test_a_refusal_names_the_field_and_the_fault(given_: Any, field: str, reason: str) -> None:
    assert refusal(given_) == (field, reason)


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(VALID).encode() + b"x",
        b"\xef\xbb\xbf" + json.dumps(VALID).encode(),
        b"{'event':'insert'}",
        b'{"event":"insert","type":"a","id":"b",}',
        b'{"event":"insert","type":"a","id":"b","x":NaN}',
        b'{"event":"insert","type":"a","id":"b\n"}',
        rb'{"event":"insert","type":"a","id":"\ud800"}',
        rb'{"event":"insert","type":"a","id":"\udc00x"}',
        rb'{"event":"insert","type":"a","id":"\ud800\ud800"}',
        rb'{"event":"insert","type":"a","id":"\ud800A"}',
        rb'{"event":"insert","type":"a","id":"b","parents":["\udfff"]}',
        rb'{"event":"insert","type":"a","id":"\x"}',
    ],
)
def test_text_that_is_no_json_is_refused(raw: bytes) -> None:
    field, reason = refusal(raw)
    assert field == "operation"
    assert reason.startswith("is not valid JSON: ")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)
almost = st.fixed_dictionaries(
    {},
    optional={
        "event": st.sampled_from(["insert", "Update", "DELETE"]) | json_values,
        "type": st.text(min_size=1) | json_values,
        "id": st.text(min_size=1) | json_values,
        "parents": st.lists(st.text(min_size=1)) | json_values,
        "timestamp": st.sampled_from(
            [TIME, "2014-11-06t11:04:39+01:00", "9999-12-31T23:59:59-01:00"]
        )
        | json_values,
        "more": json_values,
    },
).map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass"))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    raw = bytearray(draw(almost))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(
            st.binary(max_size=3) | st.sampled_from([rb"\ud8", rb"\u0000"])
        )
    return bytes(raw)


@examples(6)
@given(st.binary() | almost | mutated())
@example(b"[" * 100_000)
@example(b'{"a":' * 10_000)
@example(b'{"id":' + b"[" * 10_000)
def test_the_decoder_raises_only_its_own_error_for_any_bytes(raw: bytes) -> None:
    try:
        operation = decode(raw, ARRIVAL)
    except OperationError:
        return
    assert b"\n" not in operation.data
    assert operation.key == "{type}/{id}".format(**data_of(operation))


# --- The encoding ---

LINE_ENDS = "\x85\u2028\u2029"
texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    | st.sampled_from(LINE_ENDS + '\n\r\t"\\/\x7f\x1fİΣ\u017f😀'),
    min_size=1,
    max_size=40,
)
types = texts.filter(lambda text: not set("/,") & set(text))
clocks = st.datetimes().map(lambda when: f"{when.isoformat(timespec='milliseconds')}Z")
valid = st.fixed_dictionaries(
    {"event": st.sampled_from(["insert", "Update", "DELETE"]), "type": types, "id": texts},
    optional={"parents": st.none() | st.lists(texts, max_size=3), "timestamp": st.none() | clocks},
)
encoders: st.SearchStrategy[Callable[[Any], bytes]] = st.sampled_from(
    [
        lambda value: json.dumps(value).encode(),
        lambda value: json.dumps(value, ensure_ascii=False).encode(),
        lambda value: json.dumps(value, indent=1, sort_keys=True).encode(),
    ]
)


@examples(5)
@given(valid, encoders)
def test_a_valid_operation_comes_out_with_its_values_on_one_line(
    given_: dict[str, Any], encode: Callable[[Any], bytes]
) -> None:
    operation = decode(encode(given_), ARRIVAL)
    type_ = given_["type"].lower()
    assert operation.event == given_["event"].lower()
    assert operation.key == f"{type_}/{given_['id']}"
    data = data_of(operation)
    assert list(data) == ["timestamp", "parents", "type", "id"]
    assert data == {
        "timestamp": given_.get("timestamp") or ARRIVAL,
        "parents": given_.get("parents") or [],
        "type": type_,
        "id": given_["id"],
    }
    assert len(operation.data.decode().splitlines()) == 1
    assert not set(LINE_ENDS) & set(operation.data.decode())


@examples(5)
@given(valid)
def test_an_encoded_operation_is_encoded_again_unchanged(given_: dict[str, Any]) -> None:
    once = decoded(given_)
    again = decode(json.dumps({**data_of(once), "event": once.event}).encode(), "another arrival")
    assert again == once
