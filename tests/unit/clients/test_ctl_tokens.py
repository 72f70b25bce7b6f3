"""``oplogctl token``: tokens are signed and shown, and no secret is in an error."""

import io
import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from oplogc.ctl import cli
from oplogd.web.access.claims import Asked, claims_of
from oplogd.web.access.keys.key_files import keys_in
from oplogd.web.access.keys.signing import ExpiringSigner, Purpose
from oplogd.web.access.keys.tokens import TokenKeys
from oplogd.web.access.right_bodies import body_of, right_of
from tests.kits.web.token_keys import KINDS, private, private_pem, public_pem

SECRET = b"a secret of more than 32 bytes, for tests"
NOW = 1_800_000_000.0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """``oplogctl token`` in this process."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._folder, self._capsys, self._monkeypatch = folder, capsys, monkeypatch

    def file(self, content: bytes, name: str = "key") -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)

    def run(self, *arguments: str, stdin: str = "") -> Ended:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = cli.main(["token", *arguments])
        return Ended(code, *self._capsys.readouterr())

    def create(self, *arguments: str, key: bytes = SECRET) -> str:
        ended = self.run("create", "--key", self.file(key), *arguments)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.count("\n") == 1
        return ended.out.rstrip("\n")

    def refusal(self, *arguments: str, key: bytes = SECRET) -> str:
        ended = self.run("create", "--key", self.file(key), *arguments)
        assert (ended.code, ended.out) == (2, "")
        return ended.err.removeprefix("oplogctl: ").rstrip("\n")

    def shown(self, token: str, *arguments: str) -> dict[str, Any]:
        ended = self.run("show", "--json", *arguments, stdin=f"{token}\n")
        assert (ended.code, ended.err) == (0, "")
        found: dict[str, Any] = json.loads(ended.out)
        return found


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    level = logging.getLogger("oplogc").level
    monkeypatch.setattr(time, "time", lambda: NOW)
    yield Command(tmp_path, capsys, monkeypatch)
    logging.getLogger("oplogc").setLevel(level)


@pytest.mark.parametrize("kind", ["HS256", *KINDS])
def test_a_created_token_is_as_an_agent_takes_it(command: Command, kind: str) -> None:
    key = SECRET if kind == "HS256" else private_pem(private(kind))
    public = SECRET if kind == "HS256" else public_pem(private(kind))
    token = command.create(
        *("--read", "shop/*,system/oplog", "--read", "a/b", "--write", "a/b", "--manage", "*"),
        *("--leases", "orders*", "--types", "Video,user", "--parents", "user/ada,user/bob"),
        *("--sub", "ada", "--audience", "shop", "--seconds", "60", "--kid", "k1"),
        key=key,
    )
    assert jwt.get_unverified_header(token) == {"alg": kind, "typ": "JWT", "kid": "k1"}
    assert jwt.decode(token, options={"verify_signature": False}) == {
        "exp": NOW + 60,
        "oplog": {
            "read": ["shop/*", "system/oplog", "a/b"],
            "write": ["a/b"],
            "manage": ["*"],
            "leases": ["orders*"],
            "types": ["Video", "user"],
            "parents": ["user/ada", "user/bob"],
        },
        "sub": "ada",
        "aud": "shop",
    }
    verified = TokenKeys(keys_in(public), ["shop"]).verify(token, NOW)
    assert verified.subject == "ada"
    assert verified.expires == NOW + 60
    for file in (key, public):
        assert command.shown(token, "--key", command.file(file))["verified"] is True


def test_a_token_names_no_more_than_was_given_and_lasts_for_15_minutes(command: Command) -> None:
    token = command.create("--parents", "user/a,b", "--parents", "c", key=SECRET + b"\n")
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    options: Any = {"verify_exp": False}
    assert jwt.decode(token, SECRET, ["HS256"], options) == {
        "exp": NOW + 900,
        "oplog": {"parents": ["user/a,b", "c"]},
    }
    assert command.shown(token)["right"] == {
        "read": ["system/oplog"],
        "parents": ["user/a,b", "c"],
    }
    long = command.create("--read", "*", "--seconds", "31536000")
    assert command.shown(long)["seconds"] == 31_536_000


PATTERN = "a pattern must be NAMESPACE/TOPIC, NAMESPACE/* or *"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            [],
            "give one or more of --read, --write, --manage, --leases, --types, --parents:"
            " nothing else is granted",
        ),
        (["--read", "hunter2"], f"--read: {PATTERN}"),
        (["--write", "a/b,"], f"--write: {PATTERN}"),
        (["--manage", "a/*x"], f"--manage: {PATTERN}"),
        (["--leases", "a/b"], "--leases: a pattern must be a NAME, PREFIX* or *"),
        (["--types", "a/b"], "--types: a type contains neither '/' nor ','"),
        (["--types", ""], "--types: a value must not be empty"),
        (["--types", "x" * 256], "--types: a value has more than 255 bytes"),
        (["--parents", "a,"], "--parents: a value must not be empty"),
        (
            ["--read", ",".join(["a/b"] * 60), "--leases", ",".join(["a"] * 41)],
            "--read, --leases: 101 patterns, at most 100 are possible",
        ),
        (
            ["--parents", ",".join(["a"] * 1_001)],
            "--parents: 1,001 values, at most 1,000 are possible",
        ),
        (
            ["--read", "*", "--parents", "x" * 7_000],
            "--parents: the token has 9,489 bytes, at most 8,192 are possible",
        ),
        (["--read", "*", "--sub", ""], "--sub: is not 1 to 250 printable characters"),
        (["--read", "*", "--sub", "a\nb"], "--sub: is not 1 to 250 printable characters"),
        (["--read", "*", "--audience", ""], "--audience: must not be empty"),
        (["--read", "*", "--kid", ""], "--kid: must not be empty"),
        (["--read", "*", "--seconds", "0"], "--seconds: '0' is not a whole number of at least 1"),
        (
            ["--read", "*", "--seconds", "999999999999"],
            "--seconds: '999999999999' is more than 100,000,000,000",
        ),
        (["--read", "*", "--key"], "--key: needs a value (--flag=VALUE if it begins with -)"),
        (["--read", "*", "hunter2"], "unknown argument; it is not repeated, it may be a secret"),
    ],
)
def test_a_mistake_names_its_flag_and_no_value(
    command: Command, arguments: list[str], sentence: str
) -> None:
    assert command.refusal(*arguments) == sentence


def encrypted() -> bytes:
    raw: bytes = private("EdDSA").private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2")
    )
    return raw


UNUSABLE = {
    "short": (b"x" * 31, "the file has a secret of fewer than 32 bytes"),
    "empty": (b"\n", "the file has a secret of fewer than 32 bytes"),
    "large": (b"x" * 262_145, "the file has more than 262,144 bytes"),
    "long": (b"x" * 4_097, "the file has a secret of more than 4,096 bytes"),
    "JWKS": (b'{"keys": []}', "the file has JSON, as a JWKS; give a secret, or a key in PEM"),
    "SSH": (b"ssh-ed25519 " + b"A" * 68, "the file has neither a secret nor a key in PEM"),
    "public": (
        public_pem(private("EdDSA")),
        "the file has a public key; a token is signed with the private one",
    ),
    "encrypted": (encrypted(), "the private key is encrypted; give it without a passphrase"),
    "small": (
        private_pem(rsa.generate_private_key(65_537, 1_024)),
        "the file has no private key (PEM) of RSA with 2,048 bits or more, P-256 or Ed25519",
    ),
    "P-384": (
        private_pem(ec.generate_private_key(ec.SECP384R1())),
        "the file has no private key (PEM) of RSA with 2,048 bits or more, P-256 or Ed25519",
    ),
    "broken": (
        private_pem(private("EdDSA")).replace(b"M", b"!"),
        "the file has no private key (PEM) of RSA with 2,048 bits or more, P-256 or Ed25519",
    ),
}


@pytest.mark.parametrize(("content", "sentence"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_key_is_told_without_its_content(
    command: Command, content: bytes, sentence: str
) -> None:
    assert command.refusal("--read", "*", key=content) == f"--key: {sentence}"


def test_a_secret_in_place_of_a_file_is_not_repeated(command: Command) -> None:
    for given in ("hunter2", "hunter2/" * 1_000, "-----BEGIN hunter2"):
        for name in ("create", "show"):
            ended = command.run(name, "--key", given)
            assert ended.code == 2
            assert ended.err.startswith("oplogctl: --key: cannot read the file: ")
            assert "hunter2" not in ended.out + ended.err
    words = ("-----BEGIN", "PRIVATE", "KEY-----", "hunter2", "hunter3")
    for name in ("create", "show"):
        ended = command.run(name, "--key", command.file(SECRET), *words[1:])
        assert (ended.code, "hunter" in ended.out + ended.err) == (2, False)


@pytest.mark.parametrize(
    ("missing", "works"),
    [("jwt", []), ("cryptography", ["HS256"])],
)
def test_without_the_library_the_command_tells_how_to_install_it(
    command: Command, monkeypatch: pytest.MonkeyPatch, missing: str, works: list[str]
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, missing, None)
    for kind in ("HS256", "ES256"):
        key = SECRET if kind == "HS256" else private_pem(private(kind))
        if kind in works:
            assert command.create("--read", "*", key=key)
            continue
        assert command.refusal("--read", "*", key=key) == (
            "--key: needs PyJWT; in the checkout of oplog, run:"
            " pip install -c constraints.txt './clients/python[jwt]'"
        )
    token = jwt.encode({"exp": NOW + 1, "oplog": {"read": ["*"]}}, SECRET, "HS256")
    assert command.shown(token)["right"] == {"read": ["*"]}


def test_a_token_is_shown_in_words_and_says_that_nobody_verified_it(command: Command) -> None:
    claims = {
        "exp": NOW + 60,
        "nbf": NOW - 60,
        "iat": NOW - 30,
        "oplog": {"read": ["shop/*"], "types": ["video"], "parents": ["user/\x1b[1m"]},
        "sub": "ada",
        "aud": ["a", "b"],
    }
    token = jwt.encode(claims, SECRET, "HS256", {"kid": "k"})
    lines = [
        "read      shop/*",
        "narrowed  only operations on objects of these types: video",
        "narrowed  reads only operations with one of these parents: user/\\x1b[1m",
        "until     2027-01-15T08:01:00.000Z, in 60 s",
        "from      2027-01-15T07:59:00.000Z, 60 s ago",
        "issued    2027-01-15T07:59:30.000Z, 30 s ago",
        "sub       ada",
        "aud       a, b",
        "signed    HS256",
        "kid       k",
    ]
    unverified = (
        "signature NOT verified: anybody can write such a token; give --key FILE to verify it"
    )
    for ended in (command.run("show", stdin=token), command.run("show", token)):
        assert (ended.code, ended.out.splitlines(), ended.err) == (0, [*lines, unverified], "")
    ended = command.run("show", "--key", command.file(SECRET), stdin=token)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [*lines, "signature verified with the key"]
    ended = command.run("show", "--key", command.file(b"x" * 40), stdin=token)
    assert (ended.code, ended.err) == (1, "oplogctl: the signature of the token is wrong\n")
    assert ended.out.splitlines() == [*lines, "signature WRONG: not made with this key"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": NOW, "oplog": {"read": ["*"]}}, "it has expired"),
    "early": ({"exp": NOW + 9, "nbf": NOW + 5, "oplog": {}}, "it is not yet valid"),
    "issued later": ({"exp": NOW + 9, "iat": NOW + 5, "oplog": {}}, "it is not yet valid"),
    "for ever": ({"oplog": {"read": ["*"]}}, "it has no exp"),
    "no time": ({"exp": 10**400, "oplog": {}}, "its exp is no time"),
    "in the year 10000": ({"exp": 253_402_300_800, "oplog": {}}, "its exp is no time"),
    "not a number": ({"exp": float("nan"), "oplog": {}}, "its exp is no time"),
    "without a right": ({"exp": NOW + 9}, "it has no claim oplog"),
    "list": ({"exp": NOW + 9, "oplog": ["*"]}, "its claim oplog: must be an object"),
    "bad pattern": (
        {"exp": NOW + 9, "oplog": {"read": ["hunter2"]}},
        f"its claim oplog read: {PATTERN}",
    ),
    "bad member": (
        {"exp": NOW + 9, "oplog": {"hunter2": ["*"]}},
        "its claim oplog: has a member that a right does not have",
    ),
    "sub": (
        {"exp": NOW + 9, "oplog": {}, "sub": ""},
        "its sub is not 1 to 250 printable characters",
    ),
}


@pytest.mark.parametrize(("claims", "fault"), REFUSED.values(), ids=REFUSED)
def test_a_token_that_every_agent_refuses_ends_with_1_if_there_is_a_key(
    command: Command, claims: dict[str, Any], fault: str
) -> None:
    token = jwt.encode(claims, SECRET, "HS256")
    assert command.shown(token)["refused"] == fault
    ended = command.run("show", "--key", command.file(SECRET), stdin=token)
    assert ended.code == 1
    assert ended.err == f"oplogctl: every agent refuses the token: {fault}\n"
    assert f"refused   by every agent: {fault}" in ended.out.splitlines()


def test_a_key_of_another_algorithm_verifies_nothing(command: Command) -> None:
    token = jwt.encode({"exp": NOW + 9, "oplog": {}}, public_pem(private("EdDSA"))[30:70], "HS256")
    none = jwt.encode({"exp": NOW + 9, "oplog": {}}, "", "none")
    for each in (token, none):
        for key in (public_pem(private("EdDSA")), SECRET):
            assert command.run("show", "--key", command.file(key), stdin=each).code == 1


def test_a_time_before_all_dates_is_shown_in_seconds(command: Command) -> None:
    token = jwt.encode({"exp": -(10**11), "oplog": {}}, SECRET, "HS256")
    shown = command.shown(token)
    assert (shown["expires"], shown["seconds"]) == (None, -(10**11) - NOW)
    assert command.run("show", stdin=token).out.splitlines()[:2] == [
        "grants    nothing",
        "until     -100000000000 seconds after 1970, 101,800,000,000 s ago",
    ]


def test_the_help_fits_into_80_columns(command: Command) -> None:
    for words in ([], ["create"], ["show"]):
        ended = command.run(*words, "--help")
        assert ended.code == 0
        assert [line for line in ended.out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("text", ["", "hunter2", "a.b.c", "1.hunter2", "1900000000.x~!.y", "é.e.e"])
def test_a_text_that_is_no_token_is_not_repeated(command: Command, text: str) -> None:
    ended = command.run("show", stdin=text)
    assert ended == (1, "", "oplogctl: this is no token\n")


def test_no_more_is_read_than_a_token_may_have(command: Command) -> None:
    ended = command.run("show", stdin="x" * 65_537)
    assert (ended.code, ended.out) == (2, "")
    assert "stdin has more than 65,536 characters" in ended.err


@pytest.mark.parametrize("name", ["", "ada.b@c"])
def test_a_token_of_an_agent_is_shown(command: Command, name: str) -> None:
    signer = ExpiringSigner(b"k" * 32, name)
    right = right_of({"parents": ["user/ada"]})
    narrowed = signer.sign(Purpose.TOKEN, int(NOW) + 60, claims_of(Asked(right, int(NOW))))
    plain = signer.sign(Purpose.TOKEN, int(NOW) - 1)
    assert command.shown(narrowed) == {
        "kind": "agent",
        "verified": None,
        "refused": None,
        "right": body_of(right),
        "expires": "2027-01-15T08:01:00.000Z",
        "seconds": 60,
        "begins": None,
        "issued": "2027-01-15T08:00:00.000Z",
        "sub": name or None,
        "aud": [],
        "algorithm": None,
        "kid": None,
    }
    of_maker = [f"maker     {name}"] if name else []
    assert command.run("show", stdin=plain).out.splitlines() == [
        "read      all that its maker may read",
        "until     2027-01-15T07:59:59.000Z, 1 s ago",
        *of_maker,
        "signed    by an agent, with a password (POST /token)",
        "refused   by every agent: it has expired",
        "signature NOT verified: anybody can write such a token; only an agent can verify it",
    ]
    ended = command.run("show", "--key", command.file(SECRET), stdin=narrowed)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("oplogctl: --key: an agent signed this token with a password")
