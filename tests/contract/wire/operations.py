"""A table of the rules for operations: each accepted and each rejected form."""

import json
from typing import Any, NamedTuple

TIME = "2014-11-06T11:04:39.041Z"


class Accepted(NamedTuple):
    """``raw`` is stored, and sent as ``event`` with exactly ``data``."""

    name: str
    raw: bytes
    event: str
    data: str


class Rejected(NamedTuple):
    """``raw`` is refused because of ``field``."""

    name: str
    raw: bytes
    field: str


def _raw(**changes: Any) -> bytes:
    """Return a valid operation with the changes; ``...`` leaves a member out."""
    members = {"event": "insert", "type": "video", "id": "xekw", "timestamp": TIME, **changes}
    return json.dumps({name: value for name, value in members.items() if value is not ...}).encode()


def _data(
    parents: str = "[]", type_: str = "video", id_: str = "xekw", timestamp: str = TIME
) -> str:
    return f'{{"timestamp":"{timestamp}","parents":{parents},"type":"{type_}","id":"{id_}"}}'


def _exactly(size: int) -> tuple[bytes, str]:
    """Return an operation of a given size in bytes, and its data."""
    parent = "p" * (size - len(_raw(parents=[""])))
    return _raw(parents=[parent]), _data(f'["{parent}"]')


_WHOLE, _WHOLE_DATA = _exactly(64 * 1024)
_TOO_LONG, _ = _exactly(64 * 1024 + 1)

ACCEPTED = [
    Accepted("insert", _raw(), "insert", _data()),
    Accepted("update", _raw(event="update"), "update", _data()),
    Accepted("delete", _raw(event="delete"), "delete", _data()),
    Accepted("event in upper case", _raw(event="INSERT"), "insert", _data()),
    Accepted("event in mixed case", _raw(event="dElEtE"), "delete", _data()),
    Accepted("type is lower-cased", _raw(type="ViDeO"), "insert", _data()),
    Accepted("type is lower-cased beyond ASCII", _raw(type="ÄÉ"), "insert", _data(type_="äé")),
    Accepted("type of 255 bytes", _raw(type="t" * 255), "insert", _data(type_="t" * 255)),
    Accepted(
        "type of 254 bytes in two-byte letters",
        _raw(type="é" * 127),
        "insert",
        _data(type_="é" * 127),
    ),
    Accepted("id keeps its case", _raw(id="XeKw"), "insert", _data(id_="XeKw")),
    Accepted("id with slash, comma and space", _raw(id="a/b, c"), "insert", _data(id_="a/b, c")),
    Accepted("id of 1,024 bytes", _raw(id="i" * 1024), "insert", _data(id_="i" * 1024)),
    Accepted(
        "id of 1,024 bytes in four-byte letters",
        _raw(id="😀" * 256),
        "insert",
        _data(id_="😀" * 256),
    ),
    Accepted("id with a line feed stays one line", _raw(id="a\nb"), "insert", _data(id_="a\\nb")),
    Accepted(
        "id with a carriage return stays one line", _raw(id="a\rb"), "insert", _data(id_="a\\rb")
    ),
    Accepted("id with quote and backslash", _raw(id='"\\'), "insert", _data(id_='\\"\\\\')),
    Accepted(
        "surrogate pair",
        rb'{"event":"insert","type":"video","id":"\ud83d\ude00","timestamp":"%s"}' % TIME.encode(),
        "insert",
        _data(id_="😀"),
    ),
    Accepted("U+0085 is escaped", _raw(id="a\u0085b"), "insert", _data(id_="a\\u0085b")),
    Accepted("U+2028 is escaped", _raw(id="a\u2028b"), "insert", _data(id_="a\\u2028b")),
    Accepted("U+2029 is escaped", _raw(parents=["\u2029"]), "insert", _data('["\\u2029"]')),
    Accepted(
        "U+0085 in a type is escaped", _raw(type="a\u0085"), "insert", _data(type_="a\\u0085")
    ),
    Accepted(
        "parents", _raw(parents=["x3kd2", "User/1,2"]), "insert", _data('["x3kd2","User/1,2"]')
    ),
    Accepted("no parents", _raw(parents=[]), "insert", _data()),
    Accepted("parents null", _raw(parents=None), "insert", _data()),
    Accepted(
        "timestamp with a positive offset",
        _raw(timestamp="2014-11-06T13:04:39.041+02:00"),
        "insert",
        _data(),
    ),
    Accepted(
        "timestamp with a negative offset",
        _raw(timestamp="2014-11-05T23:34:39.041-11:30"),
        "insert",
        _data(),
    ),
    Accepted(
        "timestamp without fraction",
        _raw(timestamp="2014-11-06T11:04:39Z"),
        "insert",
        _data(timestamp="2014-11-06T11:04:39.000Z"),
    ),
    Accepted(
        "timestamp with one digit",
        _raw(timestamp="2014-11-06T11:04:39.5Z"),
        "insert",
        _data(timestamp="2014-11-06T11:04:39.500Z"),
    ),
    Accepted(
        "timestamp with nanoseconds",
        _raw(timestamp="2014-11-06T11:04:39.041999999Z"),
        "insert",
        _data(),
    ),
    Accepted(
        "timestamp in lower case", _raw(timestamp="2014-11-06t11:04:39.041z"), "insert", _data()
    ),
    Accepted(
        "timestamp on a leap day",
        _raw(timestamp="2016-02-29T00:00:00Z"),
        "insert",
        _data(timestamp="2016-02-29T00:00:00.000Z"),
    ),
    Accepted(
        "first timestamp",
        _raw(timestamp="0001-01-01T00:00:00Z"),
        "insert",
        _data(timestamp="0001-01-01T00:00:00.000Z"),
    ),
    Accepted(
        "last timestamp",
        _raw(timestamp="9999-12-31T23:59:59.999Z"),
        "insert",
        _data(timestamp="9999-12-31T23:59:59.999Z"),
    ),
    Accepted(
        "unknown keys",
        _raw(ref="http://example.com", extra={"deep": [1, None, {}]}),
        "insert",
        _data(),
    ),
    Accepted("white space around", b" \t\r\n" + _raw() + b"\n", "insert", _data()),
    Accepted("64 KiB", _WHOLE, "insert", _WHOLE_DATA),
]

REJECTED = [
    Rejected("nothing", b"", "operation"),
    Rejected("not JSON", b"insert video xekw", "operation"),
    Rejected("half of it", _raw()[:-1], "operation"),
    Rejected("two of them", _raw() + _raw(), "operation"),
    Rejected("a number", b"42", "operation"),
    Rejected("a string", b'"insert"', "operation"),
    Rejected("null", b"null", "operation"),
    Rejected("event missing", _raw(event=...), "event"),
    Rejected("event null", _raw(event=None), "event"),
    Rejected("event a number", _raw(event=1), "event"),
    Rejected("event empty", _raw(event=""), "event"),
    Rejected("event unknown", _raw(event="upsert"), "event"),
    Rejected("event of the agent's own", _raw(event="reset"), "event"),
    Rejected("type missing", _raw(type=...), "type"),
    Rejected("type null", _raw(type=None), "type"),
    Rejected("type a list", _raw(type=["video"]), "type"),
    Rejected("type empty", _raw(type=""), "type"),
    Rejected("type with a slash", _raw(type="a/b"), "type"),
    Rejected("type with a comma", _raw(type="a,b"), "type"),
    Rejected("type of 256 bytes", _raw(type="t" * 256), "type"),
    Rejected("type of 256 bytes in two-byte letters", _raw(type="é" * 128), "type"),
    Rejected("type with NUL", _raw(type="a\0"), "type"),
    Rejected("id missing", _raw(id=...), "id"),
    Rejected("id null", _raw(id=None), "id"),
    Rejected("id a number", _raw(id=7), "id"),
    Rejected("id true", _raw(id=True), "id"),
    Rejected("id empty", _raw(id=""), "id"),
    Rejected("id of 1,025 bytes", _raw(id="i" * 1025), "id"),
    Rejected("id of 1,028 bytes in four-byte letters", _raw(id="😀" * 257), "id"),
    Rejected("id with NUL", _raw(id="a\0b"), "id"),
    Rejected("id with a raw NUL", _raw(id="a?b").replace(b"?", b"\0"), "operation"),
    Rejected("parents a string", _raw(parents="x3kd2"), "parents"),
    Rejected("parents an object", _raw(parents={}), "parents"),
    Rejected("parent a number", _raw(parents=["a", 1]), "parents[1]"),
    Rejected("parent null", _raw(parents=[None]), "parents[0]"),
    Rejected("parent empty", _raw(parents=["a", ""]), "parents[1]"),
    Rejected("parent with NUL", _raw(parents=["\0"]), "parents[0]"),
    Rejected("timestamp a number", _raw(timestamp=1415271879041), "timestamp"),
    Rejected("timestamp empty", _raw(timestamp=""), "timestamp"),
    Rejected("timestamp in words", _raw(timestamp="yesterday"), "timestamp"),
    Rejected("timestamp without time", _raw(timestamp="2014-11-06"), "timestamp"),
    Rejected("timestamp without offset", _raw(timestamp="2014-11-06T11:04:39.041"), "timestamp"),
    Rejected("timestamp in a month 13", _raw(timestamp="2014-13-06T11:04:39.041Z"), "timestamp"),
    Rejected("timestamp on February 30", _raw(timestamp="2014-02-30T11:04:39.041Z"), "timestamp"),
    Rejected("timestamp at 24 o'clock", _raw(timestamp="2014-11-06T24:00:00.000Z"), "timestamp"),
    Rejected(
        "timestamp with an offset of a day",
        _raw(timestamp="2014-11-06T11:04:39+24:00"),
        "timestamp",
    ),
    Rejected(
        "timestamp before the first", _raw(timestamp="0001-01-01T00:00:00+00:01"), "timestamp"
    ),
    Rejected("timestamp after the last", _raw(timestamp="9999-12-31T23:59:59-00:01"), "timestamp"),
    Rejected("timestamp in the year 0", _raw(timestamp="0000-01-01T00:00:00Z"), "timestamp"),
    Rejected("timestamp in the year 10000", _raw(timestamp="10000-01-01T00:00:00Z"), "timestamp"),
    Rejected("invalid UTF-8", _raw(id="a?b").replace(b"?", b"\xff"), "operation"),
    Rejected(
        "invalid UTF-8 in an unknown key", _raw(extra="?").replace(b"?", b"\xc3"), "operation"
    ),
    Rejected("an encoded surrogate", _raw(id="a?b").replace(b"?", b"\xed\xa0\x80"), "operation"),
    Rejected("unpaired high surrogate", _raw(id="?").replace(b"?", rb"\ud800"), "operation"),
    Rejected("unpaired low surrogate", _raw(type="?").replace(b"?", rb"\udc00"), "operation"),
    Rejected(
        "surrogates in the wrong order",
        _raw(parents=["?"]).replace(b"?", rb"\ude00\ud83d"),
        "operation",
    ),
    Rejected("more than 64 KiB", _TOO_LONG, "operation"),
]

LARGEST_DATAGRAM = 65_507
