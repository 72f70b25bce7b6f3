"""Decoding: one error, one encoding, and times that an independent calculation agrees with."""

import json
import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import OperationError
from oplogd.nesting import MAX_DEPTH
from oplogd.operation import (
    MAX_ID_BYTES,
    MAX_OPERATION_BYTES,
    MAX_TYPE_BYTES,
    Operation,
    decode,
    format_ms,
    normalise_timestamp,
    parse_timestamp,
)
from tests.properties import examples

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


# --- What is accepted ---


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


def test_the_type_is_stored_in_lower_case_and_the_id_as_it_is() -> None:
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


def test_white_space_around_the_object_is_no_matter() -> None:
    assert decoded(b" \t\r\n" + json.dumps(VALID, indent=2).encode() + b"\n") == decoded(VALID)


def test_an_id_may_hold_what_a_type_may_not() -> None:
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


def test_the_whole_may_have_64_kib_and_not_a_byte_more() -> None:
    raw = json.dumps(VALID).encode()
    raw += b" " * (MAX_OPERATION_BYTES - len(raw))
    assert decode(raw, ARRIVAL) == decoded(VALID)
    assert refusal(raw + b" ") == ("operation", "has 65,537 bytes, more than 65,536")


# --- What is refused ---


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
        (b"\xff", "operation", "is not UTF-8 (byte 0)"),
        (b'{"event":"insert","type":"a","id":"\xff"}', "operation", "is not UTF-8 (byte 35)"),
        (
            b'{"event":"insert","type":"a","id":"b","x":"\xed\xa0\x80"}',
            "operation",
            "is not UTF-8 (byte 43)",
        ),
        (b'{"x":' * 5000 + b"1" + b"}" * 5000, "operation", "is nested too deeply"),
        (changed(more=nested(MAX_DEPTH)), "operation", "is nested too deeply"),
        (b"[" * 60_000, "operation", "is nested too deeply"),
    ],
)
def test_a_refusal_names_the_field_and_says_what_is_wrong_with_it(
    given_: Any, field: str, reason: str
) -> None:
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
def test_what_is_not_json_is_refused(raw: bytes) -> None:
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
def test_the_decoder_raises_its_own_error_only_whatever_the_bytes(raw: bytes) -> None:
    try:
        operation = decode(raw, ARRIVAL)
    except OperationError:
        return
    assert b"\n" not in operation.data
    assert operation.key == "{type}/{id}".format(**data_of(operation))


# --- The one encoding ---

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
def test_what_was_emitted_is_emitted_again_unchanged(given_: dict[str, Any]) -> None:
    once = decoded(given_)
    again = decode(json.dumps({**data_of(once), "event": once.event}).encode(), "another arrival")
    assert again == once


# --- Times, against arithmetic of their own ---


def days_before(year: int, month: int, day: int) -> int:
    """Days since 0001-01-01 by counting, not by the calendar of the code under test."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 + sum(lengths[: month - 1]) + day - 1


def civil(days: int) -> str:
    return (date(1, 1, 1) + timedelta(days=days)).isoformat()


@st.composite
def timestamps(draw: st.DrawFn) -> tuple[str, str | None]:
    """A timestamp as it may be sent, and how it must come out; None if that leaves the years 1 to 9999."""
    day = draw(st.dates() | st.sampled_from([date(1, 1, 1), date(9999, 12, 31), date(2000, 2, 29)]))
    hour, minute, second = (
        draw(st.integers(0, 23)),
        draw(st.integers(0, 59)),
        draw(st.integers(0, 59)),
    )
    fraction = draw(st.text("0123456789", max_size=12))
    sign = draw(st.sampled_from("+-zZ"))
    offset_hour, offset_minute = draw(st.integers(0, 23)), draw(st.integers(0, 59))
    text = f"{day.isoformat()}{draw(st.sampled_from('Tt '))}{hour:02}:{minute:02}:{second:02}"
    text += f".{fraction}" if fraction else ""
    text += sign if sign in "zZ" else f"{sign}{offset_hour:02}:{offset_minute:02}"
    minutes = days_before(day.year, day.month, day.day) * 1440 + hour * 60 + minute
    if sign in "+-":
        minutes -= (offset_hour * 60 + offset_minute) * (1 if sign == "+" else -1)
    days, rest = divmod(minutes, 1440)
    if not 0 <= days <= days_before(9999, 12, 31):
        return text, None
    return (
        text,
        f"{civil(days)}T{rest // 60:02}:{rest % 60:02}:{second:02}.{fraction[:3].ljust(3, '0')}Z",
    )


@examples(5)
@given(timestamps())
@example(("9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59.999Z"))
@example(("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"))
@example(("0001-01-01T00:00:00+00:01", None))
@example(("9999-12-31T23:59:00-00:01", None))
@example(("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"))
def test_a_time_is_normalised_to_utc_and_cut_to_milliseconds(case: tuple[str, str | None]) -> None:
    text, expected = case
    if expected is None:
        with pytest.raises(ValueError, match="out of range"):
            normalise_timestamp(text)
    else:
        assert normalise_timestamp(text) == expected


@examples(5)
@given(
    st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\.[0-9]{3}Z", fullmatch=True
    )
    | st.from_regex(r"[\d-]{10}T[\d:]{8}\.[\d ]{3}Z", fullmatch=True)
)
@example("2014-11-06T24:00:00.000Z")
@example("2014-11-06T23:59:60.000Z")
@example("0000-01-01T00:00:00.000Z")
@example("2014-02-29T00:00:00.000Z")
@example("2014-11-06T11:04:39.04\u0661Z")
def test_the_common_form_is_judged_as_any_other(text: str) -> None:
    try:
        general = (
            parse_timestamp(text).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        )
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            normalise_timestamp(text)
    else:
        assert normalise_timestamp(text) == general == text


@pytest.mark.parametrize(
    "text",
    [
        "2014-11-06T11:04:39",
        "2014-11-06",
        "2014-11-06T11:04Z",
        "2014-11-06T11:04:39.Z",
        "2014-11-06T11:04:39,5Z",
        "20141106T110439Z",
        "2014-11-06T11:04:39+0100",
        "2014-11-06T11:04:39+01",
        "2014-11-06T11:04:39 Z",
        "2014-11-06T11:04:39Z ",
        "02014-11-06T11:04:39Z",
        "+2014-11-06T11:04:39Z",
        "2014-11-06T11:04:39+24:00",
        "2014-11-06T11:04:39-05:60",
        "2014-11-06T11:04:39+05:99",
        "2014-11-06T24:00:00Z",
        "2014-11-06T23:59:60Z",
        "2014-11-31T00:00:00Z",
        "2014-13-01T00:00:00Z",
        "2014-00-01T00:00:00Z",
        "0000-12-31T23:59:59Z",
        "\uff12014-11-06T11:04:39Z",
    ],
)
def test_this_is_no_time(text: str) -> None:
    assert refusal(changed(timestamp=text))[0] == "timestamp"


@examples(2)
@given(
    st.integers(0, days_before(9999, 12, 31) * 86_400_000 - days_before(1970, 1, 1) * 86_400_000)
)
def test_milliseconds_are_written_as_the_time_that_reads_back(ms: int) -> None:
    days, rest = divmod(ms, 86_400_000)
    expected = (
        f"{civil(days + days_before(1970, 1, 1))}T{rest // 3_600_000:02}:{rest // 60_000 % 60:02}"
    )
    assert format_ms(ms) == f"{expected}:{rest // 1000 % 60:02}.{ms % 1000:03}Z"
    assert normalise_timestamp(format_ms(ms)) == format_ms(ms)
