"""A signed value is valid until its expiry, for its purpose and under its password only."""

import hashlib
import re
from functools import cache, partial
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.web.access.keys.signing import ExpiringSigner, Purpose, signing_key
from oplogd.web.access.sides import ReadAuthenticator
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.properties import examples
from tests.kits.web.keepers import keeper_of


def signer_of(password: str) -> ExpiringSigner:
    return ExpiringSigner(signing_key(password))


# Made by the first test that needs them: a key takes 40 ms.
SIGNER, SAME, OTHER = (
    cache(partial(signer_of, password)) for password in ("gehéim", "gehéim", "geheim")
)
NOW = 1_800_000_000
BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

purposes = st.sampled_from(Purpose)
times = st.integers(0, 10**12 - 1)


@examples()
@given(purposes, times)
def test_every_agent_with_the_password_accepts_a_value_until_it_expires(
    purpose: Purpose, expires: int
) -> None:
    value = SIGNER().sign(purpose, expires)
    assert SAME().expiry(purpose, value, expires - 0.001) == expires
    assert SAME().expiry(purpose, value, expires) is None


@pytest.mark.parametrize("purpose", Purpose)
def test_a_signed_value_is_valid_for_exactly_the_seconds_asked_for(purpose: Purpose) -> None:
    clock = VirtualClock(NOW * 1000 + 999)
    keeper = keeper_of("gehéim", clock.clock)
    reader = ReadAuthenticator(keeper, (), clock.clock)
    (caller,) = keeper.credentials.shared["reading"].values()
    value, expires = reader.sign(caller, purpose, 60)
    assert expires == NOW + 60
    assert SIGNER().expiry(purpose, value, NOW + 59.999) == expires
    assert SIGNER().expiry(purpose, value, NOW + 60) is None


def test_agents_of_all_releases_sign_alike() -> None:
    signer = signer_of("secret")
    assert signer.sign(Purpose.COOKIE, 1_700_000_000) == (
        "1700000000.A2_hbm1xnujGdmOTxcK3FZIhoCNJd-DhN17ZquW5dlQ"
    )
    assert signer.sign(Purpose.TOKEN, 1_700_000_000) == (
        "1700000000.gAWjJCHgu4O1xEzq50x4iUqZM5-oV7xjTaKNOtOcnB0"
    )


@examples()
@given(purposes, times)
def test_another_password_or_another_purpose_refuses_a_value(
    purpose: Purpose, expires: int
) -> None:
    value = SIGNER().sign(purpose, expires)
    assert OTHER().expiry(purpose, value, expires - 1) is None
    (other_purpose,) = set(Purpose) - {purpose}
    assert SIGNER().expiry(other_purpose, value, expires - 1) is None


@examples()
@given(st.integers(0, 200), st.characters(), st.sampled_from(["replace", "insert", "delete"]))
def test_a_value_changed_in_one_place_is_refused(place: int, character: str, change: str) -> None:
    value = SIGNER().sign(Purpose.TOKEN, NOW)
    place %= len(value)
    rest = value[place:] if change == "insert" else value[place + 1 :]
    changed = value[:place] + ("" if change == "delete" else character) + rest
    assert changed == value or SIGNER().expiry(Purpose.TOKEN, changed, NOW - 1) is None


@pytest.mark.parametrize("purpose", Purpose)
def test_a_value_has_one_spelling(purpose: Purpose) -> None:
    value = SIGNER().sign(purpose, NOW)
    spellings = [value[:-1] + last for last in BASE64URL]
    spellings += [value + "=", value + "\n", " " + value, value.replace(".", "..")]
    accepted = [each for each in spellings if SIGNER().expiry(purpose, each, NOW - 1)]
    assert accepted == [value]


@pytest.mark.parametrize(
    "expires",
    [
        f"{NOW + 1:d}",
        f"0{NOW}",
        f"{NOW}0",
        f"+{NOW}",
        f" {NOW}",
        "18_00000000",
        "١٨٠٠٠٠٠٠٠٠",
        "",
        "1" * 5_000,
    ],
)
def test_the_expiry_of_a_value_cannot_be_rewritten(expires: str) -> None:
    _, mac = SIGNER().sign(Purpose.COOKIE, NOW).split(".")
    assert SIGNER().expiry(Purpose.COOKIE, f"{expires}.{mac}", NOW - 1) is None


@examples()
@given(st.text() | st.text(st.characters()))
def test_any_other_text_is_refused(text: str) -> None:
    assert SIGNER().expiry(Purpose.TOKEN, text, 0) is None


@pytest.mark.parametrize("purpose", Purpose)
def test_a_value_of_the_previous_form_is_refused(purpose: Purpose) -> None:
    value = SIGNER().sign(purpose, NOW)
    assert SIGNER().expiry(purpose, f"{purpose}.{value}", NOW - 1) is None


@pytest.mark.parametrize("purpose", Purpose)
def test_a_value_needs_no_escape_in_a_url_or_cookie(purpose: Purpose) -> None:
    value = SIGNER().sign(purpose, NOW)
    assert quote(value, safe="") == value
    assert SimpleCookie(f"name={value}")["name"].value == value
    assert re.fullmatch(r"\d+\.[\w-]{43}", value)


def test_the_costly_key_is_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derive, calls = hashlib.scrypt, []

    def counting(*args: Any, **kwargs: Any) -> bytes:
        calls.append(args)
        return derive(*args, **kwargs)

    monkeypatch.setattr(hashlib, "scrypt", counting)
    signer = signer_of("secret")
    for purpose in Purpose:
        assert signer.expiry(purpose, signer.sign(purpose, NOW), NOW - 1) == NOW
    assert len(calls) == 1
