"""The file of principals, and the hashes of their passwords."""

import hashlib
import re

import pytest

from oplogd.model.names import TopicName
from oplogd.web.access.keys import scrypt
from oplogd.web.access.keys.principals import MAX_HASHES, MAX_PRINCIPALS, principals_in
from oplogd.web.access.keys.scrypt import hashed, parse_hash

# Of the password "sesame", cheap: of one block.
CHEAP = "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHQ$JI3Qpr7Fqtxk5rLZMuIhJJqMcTzHBTq5w0dNY2Zo0ps"


def test_a_hash_fits_its_password_only() -> None:
    text = hashed("sésame")
    parsed = parse_hash(text)
    assert parsed.fits("sésame".encode())
    assert not parsed.fits(b"sesame")
    assert hashed("sésame") != text, "the salt is random"


def test_a_hash_of_another_tool_is_understood() -> None:
    # RFC 7914, section 12: P=password, S=NaCl, N=1024, r=8, p=16.
    text = (
        "$scrypt$ln=10,r=8,p=16$TmFDbA$"
        "/bq+HJ00cgB4VucZDQHp/nxq18vII3gw53N2Y0s3MWIurzDZLiKjiG/xCSedmDDaxyevuUqD7m2DYMvfoswGQA"
    )
    with pytest.raises(ValueError, match="must be a hash"):
        parse_hash(text)  # a salt of four bytes is too short
    longer = text.replace("TmFDbA", "TmFDbE5hQ2w")
    assert not parse_hash(longer).fits(b"password")
    key = hashlib.scrypt(b"password", salt=b"NaClNaCl", n=1024, r=8, p=16, dklen=64)
    own = f"$scrypt$ln=10,r=8,p=16$TmFDbE5hQ2w${scrypt._text(key)}"
    assert parse_hash(own).fits(b"password")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sesame",
        CHEAP.replace("scrypt", "argon2id"),
        CHEAP.replace("ln=4", "ln=0"),
        CHEAP.replace("ln=4", "ln=25"),
        CHEAP.replace("ln=4", "ln=16"),
        CHEAP.replace("ln=4,r=1,p=1", "ln=16,r=8,p=8"),
        CHEAP.replace("ln=4,r=1,p=1", "ln=15,r=16,p=16"),
        CHEAP.replace("r=1", "r=0"),
        CHEAP.replace("p=1", "p=0"),
        CHEAP.replace("ln=4,r=1", "ln=17,r=8"),
        CHEAP + "\n",
        CHEAP + "=",
        CHEAP[:-40],
    ],
)
def test_a_hash_that_is_none_or_too_costly_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|out of range|too costly") as refused:
        parse_hash(text)
    assert text == "" or text not in str(refused.value)


def test_principals_have_names_hashes_and_rights() -> None:
    found = principals_in(
        f"""
        [ada]
        password_hash = "{CHEAP}"
        read = ["shop/*"]
        ["bob@example.com"]
        password_hash = ["{CHEAP}", "{hashed("other")}"]
        parents = ["user/bob"]
        """.encode()
    )
    assert list(found) == ["ada", "bob@example.com"]
    ada, bob = found.values()
    assert TopicName("shop", "x") in ada.right.read
    assert [len(each.hashes) for each in (ada, bob)] == [1, 2]
    assert bob.right.parents == frozenset({"user/bob"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no principal"),
        ("# nothing", "names no principal"),
        ("[ada\nsesame", "is no TOML (at line 1, column 5)"),
        ("[ada]\npassword_hash = 'sesame", "is no TOML (at end of document)"),
        ("ada = 1", "must have tables only: [ada]"),
        ("[ada]", "[ada] password_hash: must be a hash, or a list of 1 to 4"),
        ("[ada]\npassword_hash = []", "[ada] password_hash: must be a hash, or a list of 1 to 4"),
        ("[ada]\npassword_hash = 'sesame'", "[ada] password_hash: must be a hash as"),
        ("[ada]\npassword_hash = [1]", "[ada] password_hash: must be a hash as"),
        (f"[ada]\npassword_hash = '{CHEAP}'\nreed = []", "[ada] reed: there is no such member"),
        (f"[ada]\npassword_hash = '{CHEAP}'\nread = ['x']", "[ada] read: a pattern must be"),
        (f"[a.b]\npassword_hash = '{CHEAP}'", "[a] password_hash: must be a hash"),
        (f"['a b']\npassword_hash = '{CHEAP}'", "has a name that is not 1 to 100"),
        (f"['']\npassword_hash = '{CHEAP}'", "has a name that is not 1 to 100"),
        ("".join(f"[a{n}]\n" for n in range(MAX_PRINCIPALS + 1)), "has 1,001 principals"),
        ("a = " + "[" * 100_000, "is no TOML"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused_without_repeating_a_secret(
    text: str, reason: str
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(reason)) as refused:
        principals_in(text.encode())
    assert "sesame" not in str(refused.value)
    assert CHEAP not in str(refused.value)


def test_the_limits_of_a_file_can_be_used_up() -> None:
    costliest = CHEAP.replace("ln=4,r=1,p=1", "ln=16,r=8,p=4")
    for hashes in ([costliest], [CHEAP] * MAX_HASHES):
        assert len(principals_in(f"[a]\npassword_hash = {hashes}".encode())["a"].hashes) == len(
            hashes
        )
    with pytest.raises(ValueError, match=r"a list of 1 to 4$"):
        principals_in(f"[a]\npassword_hash = {[CHEAP] * (MAX_HASHES + 1)}".encode())
    text = "".join(f'[a{n}]\npassword_hash = "{CHEAP}"\n' for n in range(MAX_PRINCIPALS))
    assert len(principals_in(text.encode())) == MAX_PRINCIPALS
