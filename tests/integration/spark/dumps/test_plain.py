"""Rows in the plain form are read many at once, with the results of ``decode_row``."""

import json
import random
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from oplog_sync.arrow import parents_of
from oplog_sync.dump.plain import plain_rows
from oplog_sync.dump.rows import INVALID, NARROW, WHOLE, _normalise
from oplogd.errors import OperationError
from oplogd.model.operation import decode_row, encode_data, parse_timestamp
from tests.kits.models.properties import chance

PLAIN = b'{"timestamp":"2020-01-01T00:00:00.000Z","parents":["user/1"],"type":"video","id":"x"}'
# A value in place of each of the four, valid or not.
TIMES = [
    "2020-02-30T00:00:00.000Z", "2020-02-29T00:00:00.000Z", "2019-02-29T00:00:00.000Z",
    "2020-01-01T24:00:00.000Z", "2020-01-01T23:59:60.000Z", "2020-01-01T25:00:00.000Z",
    "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.1Z", "2020-01-01T00:00:00.12Z",
    "2020-01-01T00:00:00.123999999Z", "2020-01-01T00:00:00.Z", "2020-01-01T00:00:00.000+00:00",
    "2020-01-01T00:00:00.000-00:00", "2020-01-01T00:00:00.000+05:30", "2020-01-01t00:00:00.000z",
    "2020-01-01 00:00:00.000Z", "2020-01-01T00:00:00.000", "2020-01-01", "0000-01-01T00:00:00.000Z",
    "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2999-12-31T23:59:59.999Z",
    "2020-13-01T00:00:00.000Z", "2020-00-01T00:00:00.000Z", "2020-01-00T00:00:00.000Z",
    "1677-01-01T00:00:00.000Z", "2020-01-01T00:00:00.000Z ", "\u0662020-01-01T00:00:00.000Z",
    "2020-01-01T00:00:00\u066b000Z",
]  # fmt: skip
TEXTS = [
    "", "a", "a b", "a,b", "a/b", "\u2028", "\x85", "\u2029", "\x7f", "é", "\U0001f600", "\0", "\t",
    '"', "\\", "],", '],"type":"', "VIDEO", "É", "K", "x" * 255, "x" * 256, "é" * 128, "x" * 1024,
    "x" * 1025, "é" * 512, "é" * 513, "x" * 70_000, "1", "null", "\u066b", "-._", "/", "a/", "/a",
]  # fmt: skip
VALUES: list[Any] = [
    None,
    7,
    7.0,
    10**400,
    True,
    [],
    {},
    [1],
    ["a", None],
    ["a", ["b"]],
    {"a": {"b": []}},
]
LISTS = [
    [], [""], ["a"], ["a", "b"], ["b", "a"], ["a", "a"], ["a,b"], [", ", "b"], ["é", "\u2028"],
    ["]"], ['"'], ["\\"], ["x" * 2000], ["\0"], ["a"] * 300,
]  # fmt: skip
RAW = [
    b"",
    b" ",
    b"\r",
    b"{}",
    b"[]",
    b"null",
    b"7",
    b"\xef\xbb\xbf" + PLAIN,
    PLAIN + b"\r",
    PLAIN + b" \t",
    b" " + PLAIN,
    PLAIN + b",",
    PLAIN + PLAIN,
    PLAIN + b"\n" + PLAIN,
    PLAIN[:-1],
    PLAIN.replace(b"x", b"\xff"),
    PLAIN.replace(b"x", b"\xed\xa0\x80"),
    PLAIN.replace(b"x", b"\\ud800"),
    PLAIN.replace(b"x", b"\\u0041"),
    PLAIN.replace(b"x", b"\\n"),
    PLAIN.replace(b"x", b"\\/"),
    PLAIN.replace(b"x", b"\n"),
    PLAIN.replace(b'"id":"x"', b'"id":"x","id":"y"'),
    PLAIN.replace(b'"id":"x"', b'"id":"x","type":"z"'),
    PLAIN.replace(b'"id":"x"', b'"id":7'),
    PLAIN.replace(b'"id":"x"', b'"id":1e999'),
    PLAIN.replace(b'"id"', b'"\\u0069d"'),
    PLAIN.replace(b'"id"', b'"ID"'),
    PLAIN.replace(b'"id"', b'"Id"'),
    PLAIN.replace(b"}", b',"size":7}'),
    PLAIN.replace(b"}", b',"size":' + b"[" * 600 + b"]" * 600 + b"}"),
    PLAIN.replace(b"}", b',"parents":["z"]}'),
    PLAIN.replace(b"}", b',"parents":null}'),
    PLAIN.replace(b":", b": ").replace(b",", b", "),
    PLAIN.replace(b":", b" :"),
    PLAIN.replace(b'":', b'":  '),
    PLAIN.replace(b'["user/1"]', b'["a", "b"]'),
    PLAIN.replace(b'["user/1"]', b'[ "a" ]'),
    PLAIN.replace(b'["user/1"]', b'["a",]'),
    PLAIN.replace(b'["user/1"]', b"[,]"),
    PLAIN.replace(b'["user/1"]', b'["a""b"]'),
    PLAIN.replace(b'["user/1"]', b'[", ", "b"]'),
    PLAIN.replace(b'"', b"'"),
    PLAIN.replace(b'"parents":["user/1"],', b""),
]


def expected(lines: Sequence[bytes]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for line in lines:
        if not line or line.isspace():
            continue
        try:
            row = decode_row(line)
        except OperationError:
            rows.append((INVALID, None, None, None))
            continue
        data = encode_data(row.timestamp, row.parents or [], row.type, row.id).decode()
        micros = round(parse_timestamp(row.timestamp).timestamp() * 1000) * 1000
        rows.append((f"{row.type}/{row.id}", micros, data, row.parents is not None))
    return sorted(rows, key=str)


def check(lines: Sequence[bytes]) -> None:
    """Compare whole and narrow rows of a batch with those of ``decode_row``."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array(lines, pa.binary()), pa.nulls(len(lines), pa.string())], names=["value", "flaw"]
    )
    wanted = expected(lines)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for columns in (WHOLE, NARROW):
        made = pa.Table.from_batches(list(_normalise(frozenset(), columns, None, None, [batch])))
        found[columns] = list(zip(*(column.to_pylist() for column in made.columns), strict=True))
    assert sorted(found[WHOLE], key=str) == wanted, lines
    narrow = [
        (key, micros, parents_of(str(data)) if has_parents else None)
        for key, micros, data, has_parents in wanted
    ]
    assert sorted(found[NARROW], key=str) == sorted(narrow, key=str), lines


def nasty_lines() -> list[bytes]:
    plain = json.loads(PLAIN)
    lines = [*RAW]
    for name, values in {
        "timestamp": [*TIMES, *VALUES], "type": [*TEXTS, *VALUES], "id": [*TEXTS, *VALUES],
        "parents": [*LISTS, *VALUES, "a"],
    }.items():  # fmt: skip
        for value in values:
            for as_ascii in (True, False):
                row = plain | {name: value}
                text = json.dumps(row, ensure_ascii=as_ascii, separators=(",", ":"))
                lines.append(text.encode())
        lines.append(json.dumps({each: plain[each] for each in plain if each != name}).encode())
    return lines


def test_each_nasty_row_is_read_as_alone() -> None:
    for line in nasty_lines():
        check([PLAIN, line])
    for line in RAW:
        check([line, PLAIN])


def test_all_nasty_rows_together_are_read_as_alone() -> None:
    lines = [line for line in nasty_lines() if line.isascii()]
    check([PLAIN, *lines])
    check(
        [
            PLAIN,
            *(line for line in nasty_lines() if b"\xff" not in line and b"\xed\xa0" not in line),
        ]
    )


@pytest.mark.parametrize("end", [b"\x0c", b"\x0b", b"\x1c", b" \t\r", b"\xc2\xa0"])
def test_only_the_white_space_of_json_may_follow_a_row(end: bytes) -> None:
    check([PLAIN, PLAIN + end])


def test_damaged_rows_are_read_as_alone() -> None:
    random_ = chance(1)
    for _ in range(30):
        lines = [PLAIN, *(_damaged(PLAIN, random_) for _ in range(50))]
        check(lines)


def _damaged(line: bytes, random_: random.Random) -> bytes:
    text = bytearray(line)
    for _ in range(random_.choice([1, 1, 2, 3])):
        at = random_.randrange(len(text))
        byte = random_.choice(b'"\\,:[]{} 0129TZ.+-aAxn\x01\x7f/')
        text[at : at + random_.randrange(2)] = random_.choice([bytes([byte]), b""])
    return bytes(text)


@pytest.mark.parametrize("order", [*permutations(("timestamp", "parents", "type", "id"))])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_plain_rows_are_recognized_in_any_order_of_members(
    order: tuple[str, ...], separators: tuple[str, str]
) -> None:
    row = json.loads(PLAIN)
    line = json.dumps({name: row[name] for name in order}, separators=separators).encode()
    plain, others = plain_rows(pa.array([line] * 3, pa.binary()))
    assert plain.keys().to_pylist() == ["video/x"] * 3
    assert plain.contents().to_pylist() == [PLAIN.decode()] * 3
    assert len(others) == 0


def test_rows_without_parents_are_plain() -> None:
    line = PLAIN.replace(b'"parents":["user/1"],', b"")
    plain, others = plain_rows(pa.array([line, line], pa.binary()))
    assert plain.parents.to_pylist() == [None, None]
    assert len(others) == 0
    check([line, PLAIN, line])
