"""Timestamps: an independent calculation agrees with the parser."""

import json
import re
from datetime import date, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import OperationError
from oplogd.model.operation import decode, format_ms, normalise_timestamp, parse_timestamp
from tests.kits.models.properties import examples


def days_before(year: int, month: int, day: int) -> int:
    """Count days since 0001-01-01 without the calendar of the code under test."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 + sum(lengths[: month - 1]) + day - 1


def civil(days: int) -> str:
    return (date(1, 1, 1) + timedelta(days=days)).isoformat()


@st.composite
def timestamps(draw: st.DrawFn) -> tuple[str, str | None]:
    """Draw a timestamp and its normal form, None if that leaves the years 1 to 9999."""
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
def test_an_invalid_timestamp_is_refused(text: str) -> None:
    raw = json.dumps({"event": "insert", "type": "video", "id": "a", "timestamp": text}).encode()
    with pytest.raises(OperationError) as refused:
        decode(raw, format_ms(0))
    assert refused.value.field == "timestamp"


@examples(2)
@given(
    st.integers(0, days_before(9999, 12, 31) * 86_400_000 - days_before(1970, 1, 1) * 86_400_000)
)
def test_formatted_milliseconds_parse_to_the_same_time(ms: int) -> None:
    days, rest = divmod(ms, 86_400_000)
    expected = (
        f"{civil(days + days_before(1970, 1, 1))}T{rest // 3_600_000:02}:{rest // 60_000 % 60:02}"
    )
    assert format_ms(ms) == f"{expected}:{rest // 1000 % 60:02}.{ms % 1000:03}Z"
    assert normalise_timestamp(format_ms(ms)) == format_ms(ms)
