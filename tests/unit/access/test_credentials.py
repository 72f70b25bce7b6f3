"""Clients with tokens: also with known ones, which end as others do, in bounded memory."""

import jwt
import msgspec
import pytest

from oplogd.web.access.claims import Asked
from oplogd.web.access.content import Content
from oplogd.web.access.credentials import Credentials
from oplogd.web.access.keys.key_files import keys_in
from oplogd.web.access.keys.principals import principals_in
from oplogd.web.access.keys.signing import Purpose
from oplogd.web.access.keys.tokens import TokenError, TokenKey
from oplogd.web.access.right_bodies import right_of

SECRET = b"a secret of more than 32 bytes, for tests"
# Of the password "ada's".
ADA = b"""
[ada]
password_hash = "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$eZrN9+Lobgu+oFGuitRRHArZSn9Kn/Z9aIz3/C4UQsc"
read = ["*"]
write = ["*"]
"""
END = 1_800_000_000


def credentials(*audiences: str) -> Credentials:
    principals = {name: msgspec.msgpack.encode(each) for name, each in principals_in(ADA).items()}
    content = Content(
        reading={},
        writing=[],
        principals=principals,
        decoys=[],
        keys=keys_in(SECRET),
        audiences=list(audiences),
        is_closed=True,
        files=[],
    )
    return Credentials(content, lambda password: password, lambda: b"of the store")


def own_token(of: Credentials) -> str:
    """Return a token of POST /token for reading all that Ada may."""
    ada = of.check("ada", b"ada's")
    assert ada is not None
    return of.sign(ada, Purpose.TOKEN, END)


def test_a_narrowed_token_is_a_client_of_its_own() -> None:
    of = credentials()
    ada = of.check("ada", b"ada's")
    assert ada is not None
    asked = [Asked(right_of({"read": [name], "manage": ["*"]}), END - 60) for name in ("a/x", "*")]
    made = [of.token(of.sign(ada, Purpose.TOKEN, END, each), END - 1, "reading") for each in asked]
    names = {each.name for each in made}
    assert len(names) == 2
    assert all(str(name).startswith("token:") for name in names)
    value = of.sign(ada, Purpose.TOKEN, END, asked[1])
    assert of.token(value, END - 1, "writing") == of.known_token(value, END - 1, "writing")
    for caller, each in zip(made, asked, strict=True):
        assert caller.right == ada.right.narrowed(each.right)
        assert (caller.until, caller.life, caller.credential) == (END, 60, ada.credential)


def jwt_with(*parents: str) -> str:
    return jwt.encode({"exp": END, "oplog": {"parents": ["x", *parents]}}, SECRET, "HS256")


def test_a_token_for_reading_does_not_write_also_when_it_is_known() -> None:
    of = credentials()
    value = own_token(of)
    for _ in range(2):
        with pytest.raises(TokenError, match=r"^it is for reading$"):
            of.token(value, END - 1, "writing")
        assert of.known_token(value, END - 1, "writing") is None
        of.token(value, END - 1, "reading")
        assert of.known_token(value, END - 1, "reading") is not None


def test_a_known_token_ends_in_its_second() -> None:
    of = credentials()
    for value in (own_token(of), jwt_with()):
        of.token(value, END - 1, "reading")
        assert of.known_token(value, END - 0.001, "reading") is not None
        assert of.known_token(value, END, "reading") is None
        with pytest.raises(TokenError, match=r"^it has expired$"):
            of.token(value, END, "reading")


def test_a_token_counts_with_all_parts_of_its_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.web.access.credentials._MAX_TOKEN_BYTES", 20_000)
    of = credentials()
    small, large = jwt_with(), jwt_with(*map(str, range(90)))
    for value, is_kept in ((large, False), (small, True)):
        of.token(value, 0, "reading")
        assert (of.known_token(value, 0, "reading") is not None) == is_kept


def test_the_life_of_a_jwt_is_from_its_iat_if_it_has_one() -> None:
    claims = {"exp": END, "oplog": {"read": ["*"]}}
    for more, life in (({"iat": END - 600}, 600), ({}, 100)):
        value = jwt.encode({**claims, **more}, SECRET, "HS256")
        assert credentials().token(value, END - 100, "reading").life == life


def test_a_token_of_a_jwt_is_for_the_first_audience_and_ends_with_the_key() -> None:
    of = credentials("one", "two")
    claims = {"exp": END, "aud": "two", "oplog": {"read": ["*"]}}
    caller = of.token(jwt.encode(claims, SECRET, "HS256"), 0, "reading")
    made = of.sign(caller, Purpose.TOKEN, END)
    assert jwt.decode(made, options={"verify_signature": False})["aud"] == "one"
    assert of.token(made, 0, "reading").right == caller.right
    gone = TokenKey("HS256", b"of another application, 32 bytes")
    with pytest.raises(KeyError):
        of.sign(caller._replace(credential=gone), Purpose.TOKEN, END)


@pytest.mark.parametrize("sub", [{}, {"sub": "ada"}])
def test_a_token_of_a_jwt_has_its_subject(sub: dict[str, str]) -> None:
    of = credentials()
    claims = {"exp": END, "oplog": {"read": ["*"], "write": ["*"]}, **sub}
    caller = of.token(jwt.encode(claims, SECRET, "HS256"), 0, "writing")
    made = of.token(of.sign(caller, Purpose.TOKEN, END), 0, "reading")
    assert made.right == caller.right.reading() != caller.right
    assert made.named("chosen") == sub.get("sub", "chosen")
    assert made.subject == sub.get("sub")
    assert str(made.name).startswith("sub:" if sub else "token:")


def test_a_token_ends_with_the_password_with_which_it_was_made() -> None:
    both = with_passwords("ab", "")
    for password in "ab":
        value = both.sign(both.shared["reading"][password.encode()], Purpose.TOKEN, END)
        for kept in ("ab", "a", "b"):
            found = with_passwords(kept, "").signed(Purpose.TOKEN, value, END - 60)
            assert (found is not None) == (password in kept)


def with_passwords(reading: str, writing: str) -> Credentials:
    """Return credentials with passwords of one letter each."""
    content = Content(
        reading={each: f"key {each}".encode() for each in reading},
        writing=list(writing),
        principals={},
        decoys=[],
        keys=[],
        audiences=[],
        is_closed=False,
        files=[],
    )
    return Credentials(content, lambda password: password)


def test_a_password_closes_its_own_side_only() -> None:
    for reading, writing in (("a", ""), ("", "a"), ("a", "a"), ("", "")):
        of = with_passwords(reading, writing)
        assert (of.is_open("reading"), of.is_open("writing")) == (not reading, not writing)


def test_a_password_that_is_gone_from_its_side_is_not_valid_for_the_other_one() -> None:
    before = with_passwords("a", "a")
    reader, writer = before.shared["reading"][b"a"], before.shared["writing"][b"a"]
    for of, reads, writes in (
        (before, True, True),
        (with_passwords("b", "a"), False, True),
        (with_passwords("a", "b"), True, False),
    ):
        assert (of.is_valid(reader.credential), of.is_valid(writer.credential)) == (reads, writes)
