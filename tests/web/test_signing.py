"""What is signed holds until its time, for its purpose, and with its password only."""

import re
from http.cookies import SimpleCookie
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.web.signing import Kind, Signer
from tests.properties import examples

SIGNER, SAME, OTHER = Signer("gehéim"), Signer("gehéim"), Signer("geheim")
NOW = 1_800_000_000

kinds = st.sampled_from(Kind)
times = st.integers(0, 10**12 - 1)


@examples()
@given(kinds, times)
def test_every_agent_with_the_password_accepts_a_value_until_it_expires(
    kind: Kind, expires: int
) -> None:
    value = SIGNER.sign(kind, expires)
    assert SAME.expiry(kind, value, expires - 0.001) == expires
    assert SAME.expiry(kind, value, expires) is None


@examples()
@given(kinds, times)
def test_another_password_or_another_purpose_refuses_a_value(kind: Kind, expires: int) -> None:
    value = SIGNER.sign(kind, expires)
    assert OTHER.expiry(kind, value, expires - 1) is None
    (other_kind,) = set(Kind) - {kind}
    assert SIGNER.expiry(other_kind, value, expires - 1) is None
    assert SIGNER.expiry(other_kind, value.replace(kind, other_kind), expires - 1) is None


@examples()
@given(st.integers(0, 200), st.characters(), st.sampled_from(["replace", "insert", "delete"]))
def test_a_value_changed_in_one_place_is_refused(place: int, character: str, change: str) -> None:
    value = SIGNER.sign(Kind.TOKEN, NOW)
    place %= len(value)
    rest = value[place:] if change == "insert" else value[place + 1 :]
    changed = value[:place] + ("" if change == "delete" else character) + rest
    assert changed == value or SIGNER.expiry(Kind.TOKEN, changed, NOW - 1) is None


@pytest.mark.parametrize(
    "expires",
    [f"{NOW + 1:d}", f"0{NOW}", f"{NOW}0", f"+{NOW}", f" {NOW}", "18_00000000", "١٨٠٠٠٠٠٠٠٠", ""],
)
def test_the_time_of_a_value_cannot_be_rewritten(expires: str) -> None:
    kind, _, mac = SIGNER.sign(Kind.COOKIE, NOW).split(".")
    assert SIGNER.expiry(Kind.COOKIE, f"{kind}.{expires}.{mac}", NOW - 1) is None


@examples()
@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    assert SIGNER.expiry(Kind.TOKEN, text, 0) is None


@pytest.mark.parametrize("kind", Kind)
def test_a_value_needs_no_escape_in_a_url_or_cookie(kind: Kind) -> None:
    value = SIGNER.sign(kind, NOW)
    assert quote(value, safe="") == value
    assert SimpleCookie(f"name={value}")["name"].value == value
    assert re.fullmatch(r"(cookie|token)\.\d+\.[\w-]{43}", value)
