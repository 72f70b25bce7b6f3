"""The body of a POST: all operations or none, and each bad line by its number."""

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.decode import walk as json_walk
from oplogd.decode.compressed import MAX_GZIP_MEMBERS, TooLargeError, decompressing
from oplogd.decode.faults import MAX_NAMED
from oplogd.decode.media_types import JSON, NDJSON
from oplogd.decode.nesting import MAX_DEPTH
from oplogd.decode.pieces import at_once
from oplogd.decode.walk import elements
from oplogd.errors import OperationError, OplogError
from oplogd.ingest.operations import BadLine, Body, InvalidBodyError, TooManyError, decoding
from oplogd.model.operation import MAX_OPERATION_BYTES, decode
from tests.kits.models.properties import examples

ARRIVAL = "2026-01-02T03:04:05.006Z"
GOOD = {"event": "insert", "type": "a", "id": "1"}
MOST = 1000


def decompress(body: bytes, most: int) -> bytes:
    return bytes(at_once(decompressing(body, most, lambda _: None)))


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(body: bytes, media_type: str = NDJSON, most: int = MOST) -> Body:
    return at_once(decoding(body, media_type, ARRIVAL, most))


def refused(body: bytes, media_type: str = NDJSON) -> InvalidBodyError:
    with pytest.raises(InvalidBodyError) as caught:
        read(body, media_type)
    return caught.value


goods = st.builds(lambda id_: encoded({**GOOD, "id": id_}), st.integers(0, 999).map(str))
bads = st.sampled_from(
    [b"{}", b"x", b"[]", b"{", b'"\xff"', encoded({**GOOD, "type": ""}), b"[" * 5000]
)
bad_json = st.sampled_from(
    [b"{}", b"1", b"[]", b"null", encoded({**GOOD, "event": "x"}), encoded({**GOOD, "id": None})]
)
blanks = st.sampled_from([b"", b" ", b"\t\r"])


@examples(2)
@given(
    st.lists(goods | bads | blanks, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.booleans()
)
def test_every_bad_line_is_named_and_nothing_is_kept(
    lines: list[bytes], end: bytes, ended: bool
) -> None:
    body = end.join(lines) + (end if ended else b"")
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    bad = []
    for number, line in filled:
        try:
            decode(line, ARRIVAL)
        except OperationError as error:
            bad.append(BadLine(number, error.field, error.reason))
    if bad:
        refusal = refused(body)
        assert refusal.bad == bad
        assert refusal.lines == len(filled)
        assert str(refusal).startswith(
            f"{len(bad)} of {len(filled)} operations are invalid, nothing was stored"
        )
    elif not filled:
        with pytest.raises(OperationError, match="there is none"):
            read(body)
    else:
        assert read(body) == Body([decode(line, ARRIVAL) for _, line in filled], batch=True)


@examples(2)
@given(st.lists(goods | bad_json, max_size=12), st.sampled_from([b"", b" ", b"\r\n"]))
def test_every_bad_element_of_an_array_is_named(elements: list[bytes], white: bytes) -> None:
    body = white + b"[" + (white + b"," + white).join(elements) + white + b"]" + white
    bad = [
        number
        for number, element in enumerate(elements, 1)
        if not element.startswith(b'{"event": "insert"') or b"null" in element
    ]
    if bad:
        error = refused(body, JSON)
        assert [line.line for line in error.bad] == bad
        assert error.lines == len(elements)
    elif not elements:
        with pytest.raises(OperationError, match="there is none"):
            read(body, JSON)
    else:
        assert read(body, JSON) == Body(
            [decode(element, ARRIVAL) for element in elements], batch=True
        )


@examples(3)
@given(st.binary() | st.lists(bads | goods).map(b"\n".join), st.sampled_from([JSON, NDJSON]))
def test_any_bytes_are_operations_or_one_error(body: bytes, media_type: str) -> None:
    try:
        operations = read(body, media_type).operations
    except InvalidBodyError as error:
        lines = error.lines
        named = len(error.bad)
    except OperationError:
        assert not body.strip() or not body.strip(b" \t\r\n[]")
        return
    else:
        lines, named = len(operations), 0
    assert named <= lines


def test_one_object_is_no_batch() -> None:
    assert read(encoded(GOOD), JSON) == Body([decode(encoded(GOOD), ARRIVAL)], batch=False)
    assert read(b"\n " + encoded(GOOD) + b"\n", JSON).batch is False


@pytest.mark.parametrize(
    ("body", "media_type"), [(b"[]", JSON), (b" [ ] ", JSON), (b"", NDJSON), (b"\n\n", NDJSON)]
)
def test_an_empty_batch_is_refused(body: bytes, media_type: str) -> None:
    with pytest.raises(OperationError, match="operation: there is none in the body"):
        read(body, media_type)


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", encoded(GOOD) * 2, b"[" * 100_000, b"[1", b"[]x"]
)
def test_a_line_without_json_is_one_bad_line(body: bytes) -> None:
    error = refused(body, JSON)
    assert [line.line for line in error.bad] == [1]
    assert error.lines == 1
    assert str(error).startswith("operation: is not valid JSON: ") or "nested too deeply" in str(
        error
    )


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 5_000, 100_000])
@pytest.mark.parametrize("form", ["one", "array", "ndjson"])
def test_deep_nesting_is_named_in_every_form(form: str, levels: int) -> None:
    deep = b'{"event":"insert","type":"a","id":"b","x":%s}' % (b"[" * levels + b"]" * levels)
    deep = deep[:65_536]  # the largest operation
    body = b"[%s]" % deep if form == "array" else deep
    error = refused(body, NDJSON if form == "ndjson" else JSON)
    assert [(line.field, line.reason) for line in error.bad] == [
        ("operation", "is nested too deeply")
    ]


def test_more_operations_than_the_queue_holds_are_not_even_looked_at() -> None:
    for body, media_type in ((b"bad\n" * 11, NDJSON), (b"[" + b",".join([b"1"] * 11) + b"]", JSON)):
        with pytest.raises(
            TooManyError, match=r"the 11 operations are more than the queue holds \(10; see"
        ) as caught:
            read(body, media_type, most=10)
        assert caught.value.lines == 11
    assert len(refused(b"bad\n" * 11).bad) == 11
    usual = encoded([GOOD] * 11)
    assert len(read(usual, JSON, most=11).operations) == 11
    with pytest.raises(TooManyError, match=r"the 11 operations"):
        read(usual, JSON, most=10)


def test_an_element_has_no_more_bytes_than_an_operation_may_have() -> None:
    long = encoded(GOOD).replace(b" ", b" " * MAX_OPERATION_BYTES)
    assert [(bad.line, bad.field) for bad in refused(b"[%b]" % long, JSON).bad] == [
        (1, "operation")
    ]


def test_a_count_that_stopped_at_the_limit_is_not_given_as_the_total() -> None:
    with pytest.raises(
        TooManyError, match=r"the first 11 operations are more than the queue holds \(10; see"
    ) as caught:
        read(b"bad\n" * 12, most=10)
    assert caught.value.lines == 11


def test_an_answer_names_a_hundred_bad_lines_and_counts_the_others() -> None:
    error = refused(b"\n".join([encoded(GOOD), *[b"bad"] * 250]))
    assert [bad.line for bad in error.bad] == list(range(2, 2 + MAX_NAMED))
    assert (error.lines, MAX_NAMED) == (251, 100)
    assert str(error).startswith(
        "250 of 251 operations are invalid, nothing was stored; the first is number 2: "
    )
    assert str(error).endswith("; 150 more bad operations are not named")


def test_blank_lines_count_in_the_numbers_of_lines_and_not_as_operations() -> None:
    blanks = b" \n\t\r\n" * 1_000_000
    error = refused(blanks + b" " * 5 + b"bad\n" + blanks + b"bad" + blanks, NDJSON)
    assert [bad.line for bad in error.bad] == [2_000_001, 4_000_002]
    assert error.lines == 2


# --- arrays that are too long for a list of their elements ---

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(['"', "\\", "[", "]}", ",", '\\"']),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@examples(3)
@given(st.lists(json_values, max_size=8), st.sampled_from([b"", b" ", b"\r\n"]), st.booleans())
def test_an_array_is_cut_into_its_elements(values: list[Any], white: bytes, is_ascii: bool) -> None:
    parts = [
        json.dumps(value, ensure_ascii=is_ascii).encode(errors="surrogatepass") for value in values
    ]
    body = white + b"[" + (white + b"," + white).join(parts) + white + b"]" + white
    found = at_once(elements(body, MOST, OplogError))
    cut = [bytes(part).strip() for part in found]
    assert cut == [part.strip() for part in parts]


@examples(3)
@given(
    st.lists(
        st.sampled_from([b"[", b"]", b"{", b"}", b",", b'"', b"\\", b" ", b"1", encoded(GOOD)]),
        max_size=12,
    )
)
def test_the_two_ways_to_read_an_array_accept_the_same(parts: list[bytes]) -> None:
    body = b"[" + b"".join(parts)
    results = []
    for commas in (1_000_000, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_walk, "MANY_COMMAS", commas)
            try:
                results.append(read(body, JSON).operations)
            except (InvalidBodyError, OperationError):
                results.append([])
    assert results[0] == results[1]


def test_an_array_of_very_many_elements_is_refused_at_the_limit() -> None:
    body = b"[" + b"0," * 1_000_000 + b"0]"
    with pytest.raises(TooManyError, match="the first 1,001 operations are more"):
        read(body, JSON)
    nested = b"[" + b"[" + b"0," * 1_000_000 + b"0]" + b"," + encoded(GOOD) + b"]"
    assert [bad.line for bad in refused(nested, JSON).bad] == [1]


UNPAIRED = "is not valid JSON: unexpected end of escaped utf-16 surrogate pair (byte "


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        (rb'{"event":"insert","type":"t","id":"\ud800"}', UNPAIRED),
        (rb'{"event":"insert","type":"t","id":"x","y":"\uDBFF"}', UNPAIRED),
        (rb'"\ud800"', UNPAIRED),
        (b'"\\x"', "is not valid JSON: invalid escaped character (byte "),
        (b"x", "is not valid JSON: invalid character (byte "),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 600])
@pytest.mark.parametrize("behind", [0, 1])
def test_an_element_that_is_no_json_is_named(
    element: bytes, reason: str, before: int, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_walk, "MANY_COMMAS", 500)
    parts = [*[encoded(GOOD)] * before, element, *[encoded(GOOD)] * behind]
    with pytest.raises(InvalidBodyError) as error:
        read(b"[" + b",".join(parts) + b"]", JSON, most=100_000)
    (bad,) = error.value.bad
    assert (bad.line, bad.field) == (before + 1, "operation")
    assert bad.reason.startswith(reason)
    assert str(error.value) == f"operation: number {bad.line} {bad.reason}"


@pytest.mark.parametrize("blanks", [0, 2_000_000])
def test_an_array_that_was_cut_is_called_truncated(blanks: int) -> None:
    for cut in (b'"a', b'"a"', rb'"\\ud800', rb'"\u', b"["):
        error = refused(b"[" + b" " * blanks + cut, JSON)
        assert error.bad[0].reason == "is not valid JSON: Input data was truncated"


# --- gzip ---


@examples(2)
@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 50)
)
def test_gzip_members_are_undone_in_their_order_up_to_the_limit(
    parts: list[bytes], level: int, short: int
) -> None:
    body = b"".join(gzip.compress(part, level) for part in parts)
    plain = b"".join(parts)
    assert decompress(body, len(plain)) == plain
    assert decompress(body, len(plain) + short) == plain
    if 0 < short <= len(plain):
        with pytest.raises(TooLargeError, match="when decompressed"):
            decompress(body, len(plain) - short)


@examples(3)
@given(
    st.binary() | st.binary().map(lambda tail: gzip.compress(b"x" * 50) + tail), st.integers(0, 100)
)
def test_any_bytes_are_undone_or_refused(body: bytes, limit: int) -> None:
    try:
        plain = decompress(body, limit)
    except (OperationError, TooLargeError):
        return
    assert len(plain) <= limit


@examples(1)
@given(st.data())
def test_a_gzip_body_that_was_cut_is_refused(data: st.DataObject) -> None:
    body = gzip.compress(data.draw(st.binary(max_size=100)))
    cut = data.draw(st.integers(1, len(body) - 1))
    with pytest.raises(OperationError, match="the gzip body ends too early"):
        decompress(body[:cut], 1000)


def test_a_body_longer_than_a_piece_is_decompressed_completely() -> None:
    plain = bytes(range(256)) * 1000
    assert decompress(gzip.compress(plain, 0) + gzip.compress(plain), 10**6) == plain * 2


def test_a_gzip_bomb_is_refused_before_it_is_decompressed() -> None:
    bomb = gzip.compress(b"\0" * 20_000_000)
    assert len(bomb) < 40_000
    with pytest.raises(TooLargeError, match="more than 1,000 bytes when decompressed"):
        decompress(bomb, 1000)


def test_a_body_of_very_many_empty_members_costs_no_more_than_its_length() -> None:
    assert decompress(gzip.compress(b"") * 100_000, 1000) == b""


def test_a_body_of_too_many_gzip_members_is_refused() -> None:
    with pytest.raises(TooLargeError, match="more than 100,000 members"):
        decompress(gzip.compress(b"") * (MAX_GZIP_MEMBERS + 1), 1000)


def test_bytes_that_are_no_gzip_or_damaged_are_refused() -> None:
    damaged = bytearray(gzip.compress(b"x" * 100))
    damaged[-6] ^= 1
    for body in (encoded(GOOD), bytes(damaged), zlib.compress(b"x")):
        with pytest.raises(OperationError, match="the body is not gzip"):
            decompress(body, 1000)


def test_large_members_are_undone_one_after_the_other() -> None:
    members = [bytes(200_000), b"x", b"ab" * 65_536, b"", bytes(65_536)]
    body = b"".join(map(gzip.compress, members))
    assert decompress(body, 1 << 20) == b"".join(members)
