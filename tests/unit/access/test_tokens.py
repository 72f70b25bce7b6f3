"""JWTs: the key decides the algorithm, times have no leeway, and known attacks are refused."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from oplogd.web.access.keys.key_files import MAX_KEYS, keys_in
from oplogd.web.access.keys.tokens import (
    MAX_TOKEN_BYTES,
    TokenError,
    TokenKey,
    TokenKeys,
    signed,
)
from tests.kits.web.token_keys import KINDS, private, private_pem, public_pem

SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_800_000_000
RIGHT = {"read": ["shop/*"]}


def jwk(key: Any, **members: Any) -> dict[str, Any]:
    algorithms: dict[type, Any] = {
        rsa.RSAPublicKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePublicKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PublicKey: jwt.algorithms.OKPAlgorithm,
    }
    public = key.public_key()
    (found,) = (each for kind, each in algorithms.items() if isinstance(public, kind))
    return {**found.to_jwk(public, as_dict=True), **members}


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(**others: Any) -> dict[str, Any]:
    return {"exp": NOW + 60, "oplog": RIGHT, **others}


def keys(*files: bytes, audiences: tuple[str, ...] = ()) -> TokenKeys:
    return TokenKeys([key for file in files for key in keys_in(file)], audiences)


def reason(of: TokenKeys, token: str, now: float = NOW) -> str:
    with pytest.raises(TokenError) as refused:
        of.verify(token, now)
    return str(refused.value)


def b64(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def hand_made(header: Any, body: Any, secret: bytes = SECRET) -> str:
    """Return a token with any header and claims, signed for HS256."""
    parts = [
        b64(each if isinstance(each, bytes) else json.dumps(each).encode())
        for each in (header, body)
    ]
    mac = hmac.digest(secret, ".".join(parts).encode(), hashlib.sha256)
    return ".".join([*parts, b64(mac)])


def test_a_secret_verifies_and_its_last_newline_does_not_count() -> None:
    token = jwt.encode(claims(sub="ada", iat=NOW - 5), SECRET, "HS256")
    for file in (SECRET, SECRET + b"\n", SECRET + b"\r\n"):
        found = keys(file).verify(token, NOW)
        assert (found.subject, found.expires, found.issued) == ("ada", NOW + 60, NOW - 5)
        assert found.right.read.namespaces == frozenset({"shop"})
    for file in (SECRET + b"\n\n", SECRET + b"\r", SECRET + b"\n\r\n"):
        assert reason(keys(file), token) == "its signature is wrong"
    binary = bytes(range(128, 160))
    assert keys(binary).verify(jwt.encode(claims(), binary, "HS256"), NOW).subject is None


def test_the_shortest_the_longest_and_the_least_various_secret_verify() -> None:
    for secret in (SECRET, SECRET * 128, b"abcdefgh" * 4):
        keys(secret).verify(jwt.encode(claims(), secret, "HS256"), NOW)


def test_space_around_a_public_key_does_not_matter() -> None:
    pem = b"\r\n " + public_pem(private("ES256")) + b"\n"
    keys(pem).verify(jwt.encode(claims(), private("ES256"), "ES256"), NOW)


@pytest.mark.parametrize("kind", KINDS)
def test_public_keys_verify_from_pem_and_from_a_jwks(kind: str) -> None:
    key = private(kind)
    token = jwt.encode(claims(), key, kind)
    named = jwt.encode(claims(), key, kind, headers={"kid": "one"})
    for of in (keys(public_pem(key)), keys(jwks(jwk(key))), keys(jwks(jwk(key, kid="one")))):
        assert of.verify(token, NOW).right.read.namespaces == frozenset({"shop"})
        of.verify(named, NOW)
    other = keys(jwks(jwk(key, kid="two")))
    other.verify(token, NOW)
    assert reason(other, named) == "no key has its algorithm and kid"


def test_several_keys_are_tried_and_a_removed_one_is_refused() -> None:
    new = b"another secret of the application"
    both = keys(SECRET, new, *(public_pem(private(kind)) for kind in KINDS))
    for secret in (SECRET, new):
        both.verify(jwt.encode(claims(), secret, "HS256"), NOW)
    for kind in KINDS:
        both.verify(jwt.encode(claims(), private(kind), kind), NOW)
    assert reason(keys(new), jwt.encode(claims(), SECRET, "HS256")) == "its signature is wrong"


def test_few_keys_are_tried_for_a_token_that_names_none() -> None:
    made = [ec.generate_private_key(ec.SECP256R1()) for _ in range(5)]
    of = keys(jwks(*(jwk(key, kid=str(number)) for number, key in enumerate(made))))
    of.verify(jwt.encode(claims(), made[3], "ES256"), NOW)
    assert reason(of, jwt.encode(claims(), made[4], "ES256")) == "its signature is wrong"
    of.verify(jwt.encode(claims(), made[4], "ES256", headers={"kid": "4"}), NOW)


def test_the_key_that_a_token_names_is_tried_before_those_without_a_name() -> None:
    secrets = [bytes([65 + number]) * 8 + SECRET for number in range(4)]
    named = jwks({"kty": "oct", "k": b64(SECRET), "kid": "z"})
    of = keys(*secrets, named)
    of.verify(jwt.encode(claims(), SECRET, "HS256", headers={"kid": "z"}), NOW)
    of.verify(jwt.encode(claims(), secrets[2], "HS256", headers={"kid": "other"}), NOW)
    assert reason(of, jwt.encode(claims(), SECRET, "HS256")) == "its signature is wrong"


def test_times_have_no_leeway() -> None:
    of = keys(SECRET)
    token = jwt.encode(claims(nbf=NOW - 10, iat=NOW - 20), SECRET, "HS256")
    of.verify(token, NOW + 59.999)
    assert reason(of, token, NOW + 60) == "it has expired"
    assert reason(of, token, NOW - 10.001) == "it is not yet valid"
    of.verify(token, NOW - 10)
    late = jwt.encode(claims(iat=NOW + 1), SECRET, "HS256")
    assert reason(of, late) == "it is not yet valid"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"exp": None}, "its exp is no time"),
        ({"exp": "1900000000"}, "its exp is no time"),
        ({"exp": True}, "its exp is no time"),
        ({"exp": 253_402_300_800}, "its exp is no time"),
        ({"exp": 10**15}, "its exp is no time"),
        ({"exp": 10**400}, "its exp is no time"),
        ({"iat": -(10**400)}, "its iat is no time"),
        ({"exp": float("inf")}, "its exp is no time"),
        ({"exp": float("nan")}, "its exp is no time"),
        ({"nbf": "soon"}, "its nbf is no time"),
        ({"iat": []}, "its iat is no time"),
        ({"sub": 7}, "its sub is not 1 to 250 printable characters"),
        ({"sub": ""}, "its sub is not 1 to 250 printable characters"),
        ({"sub": "a\nb"}, "its sub is not 1 to 250 printable characters"),
        ({"sub": "a" * 251}, "its sub is not 1 to 250 printable characters"),
        ({"oplog": None}, "its claim oplog: right: must be an object"),
        ({"oplog": "shop/*"}, "its claim oplog: right: must be an object"),
        ({"oplog": {"reed": []}}, "its claim oplog: reed: there is no such member of a right"),
        ({"oplog": {"types": []}}, "its claim oplog: types: must be a list of one or more"),
    ],
)
def test_a_malformed_claim_is_refused_with_its_name(changed: dict[str, Any], expected: str) -> None:
    token = hand_made({"alg": "HS256"}, {**claims(), **changed})
    assert reason(keys(SECRET), token).startswith(expected)


def test_a_token_without_end_or_right_is_refused() -> None:
    of = keys(SECRET)
    assert reason(of, hand_made({"alg": "HS256"}, {"oplog": RIGHT})) == "it has no exp"
    assert reason(of, hand_made({"alg": "HS256"}, {"exp": NOW + 1})) == "it has no claim oplog"
    for body in (b"[]", b"1", b"null", b"{", b"[" * 3_000, b"\xff", b"{}{}"):
        assert reason(of, hand_made({"alg": "HS256"}, body)) == "it is no valid token", body


def test_the_audience_counts_if_one_is_expected() -> None:
    of = keys(SECRET, audiences=("oplog", "old"))
    wrong = "it is for another audience (--token-audience)"
    for aud in ("oplog", ["x", "old"]):
        of.verify(jwt.encode(claims(aud=aud), SECRET, "HS256"), NOW)
    for aud in ("x", ["x"], [], ""):
        assert reason(of, jwt.encode(claims(aud=aud), SECRET, "HS256")) == wrong
    assert reason(of, jwt.encode(claims(), SECRET, "HS256")) == wrong
    keys(SECRET).verify(jwt.encode(claims(aud="x"), SECRET, "HS256"), NOW)


def test_known_attacks_are_refused() -> None:
    rsa_key, of = private("RS256"), keys(SECRET, public_pem(private("RS256")))
    no_key = "no key has its algorithm and kid"
    for alg in ("none", "None", "NONE", "", "HS384", "HS512", "RS512", "PS256", 1, None, ["HS256"]):
        token = hand_made({"alg": alg}, claims())
        assert reason(of, token) in (no_key, "it is no token"), alg
        assert reason(of, token.rpartition(".")[0] + ".") in (no_key, "it is no token"), alg
    assert reason(of, hand_made({}, claims())) == no_key
    # The public key as a secret.
    only_public = keys(public_pem(rsa_key))
    for secret in (public_pem(rsa_key), public_pem(rsa_key).strip()):
        assert reason(only_public, hand_made({"alg": "HS256"}, claims(), secret)) == no_key
        assert reason(of, hand_made({"alg": "HS256"}, claims(), secret)) == "its signature is wrong"
    # A key of the attacker, in the header.
    own = jwk(private("ES256"))
    for member in ({"jwk": own}, {"jku": "https://evil.example/"}, {"x5c": ["x"]}, {"kid": "../x"}):
        token = jwt.encode(claims(), private("ES256"), "ES256", headers=member)
        assert reason(of, token) == no_key
        token = hand_made({"alg": "HS256", **member}, claims(), b"x" * 32)
        assert reason(of, token) == "its signature is wrong"
    kids: list[Any] = ["/dev/null", "../../etc/passwd", "'; --", 5, None, {}]
    for kid in kids:
        assert reason(of, hand_made({"alg": "HS256", "kid": kid}, claims(), b"x" * 32)) in (
            "its signature is wrong",
            "it is no token",
        )
    headers: list[dict[str, Any]] = [{"crit": ["exp"]}, {"b64": True}, {"b64": False}, {"crit": []}]
    for header in headers:
        assert reason(of, hand_made({"alg": "HS256", **header}, claims())) in (
            "its header has members that must be understood",
            "it is no token",
        )


def test_what_is_no_token_is_refused_cheaply() -> None:
    of = keys(SECRET)
    good = jwt.encode(claims(), SECRET, "HS256")
    for token in ("", ".", "..", "a.b.c", "ey", good + ".x", good[:-1] + "!", " " + good):
        assert reason(of, token) in ("it is no token", "its signature is wrong"), token
    assert reason(of, "x" * (MAX_TOKEN_BYTES + 1)) == "it has more than 8,192 bytes"
    deep = hand_made(b"[" * 3_000, claims())
    assert reason(of, deep) == "it is no token"
    for place in range(0, len(good), 7):
        changed = good[:place] + ("A" if good[place] != "A" else "B") + good[place + 1 :]
        assert reason(of, changed)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (b"", "is empty"),
        (b" " * 40, "is empty"),
        (b"<html><title>502 Bad Gateway</title></html>", "has neither a secret nor"),
        (lambda: public_pem(private("ES256")).decode().encode("utf-16"), "has neither a secret"),
        (lambda: jwks(jwk(private("RS256")))[1:], "has neither a secret nor a public key"),
        (lambda: b"".join(public_pem(private("RS256")).splitlines()[1:-1]), "has neither a secret"),
        (lambda: public_pem(private("RS256"))[5:], "has neither a secret nor a public key"),
        (b"\0" * 64, "has a secret of fewer than 8 different bytes"),
        (b"a" * 64, "has a secret of fewer than 8 different bytes"),
        (b"abcdefg" * 9, "has a secret of fewer than 8 different bytes"),
        (SECRET * 128 + b"x", "has a secret of more than 4,096 bytes"),
        (SECRET * 8_193, "has more than 262,144 bytes"),
        (b"\n", "is empty"),
        (SECRET[:31], "has a secret of fewer than 32 bytes"),
        (SECRET[:31] + b"\n", "has a secret of fewer than 32 bytes"),
        (lambda: private_pem(private("ES256")), "has a private key; give the agent the public one"),
        (b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----", "has no public key (PEM)"),
        (lambda: public_pem(ec.generate_private_key(ec.SECP384R1())), "has no public key (PEM)"),
        (lambda: public_pem(rsa.generate_private_key(65_537, 1_024)), "has no public key (PEM)"),
        (b'{"', "begins as a JWKS, but is no JSON"),
        (b'{"a":' * 5_000, "begins as a JWKS, but is no JSON"),
        (b'{"keys": 1}', f"must have a list of at most {MAX_KEYS} keys"),
        (jwks(*[{"kty": "oct"}] * (MAX_KEYS + 1)), f"must have a list of at most {MAX_KEYS} keys"),
        (jwks(), "has no usable key for HS256, RS256, ES256 or EdDSA"),
        (jwks({"kty": "oct", "alg": "HS512", "k": "x"}), "has no usable key for"),
        (jwks({"kty": "EC", "use": "enc"}), "has no usable key for"),
        (b'{"keys": [1]}', "has no usable key for"),
        (jwks({"kty": "oct", "k": "c2hvcnQ"}), "has no usable key for"),
        (jwks({"kty": "oct", "k": b64(b"\0" * 40)}), "has no usable key for"),
        (jwks({"kty": "oct", "k": b64(SECRET * 129)}), "has no usable key for"),
        (lambda: jwks({"kty": "oct", "k": b64(public_pem(private("ES256")))}), "has no usable key"),
        (jwks({"kty": "oct"}), "has no usable key for"),
        (jwks({"kty": "RSA", "n": "!", "e": "AQAB"}), "has no usable key for"),
        (lambda: jwks(jwk(private("ES256"), kid=5)), "has no usable key for"),
        (lambda: jwks(jwk(private("ES256"), kid="x" * 1_001)), "has no usable key for"),
        (lambda: jwks(jwk(private("ES256"), kid="\ud800")), "has no usable key for"),
        # In DER, of a kind that nobody knows.
        (b"\x300\x30\5\6\3\x2a\3\4\3\x27\0" + bytes(range(100, 138)), "has neither a secret nor"),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtrZXkga2V5", "has neither a secret nor"),
        (
            lambda: jwks({**jwk(private("ES256")), "d": "AAAA"}),
            "key 1: is a private key; give the agent the public one",
        ),
    ],
)
def test_a_file_without_a_usable_key_is_refused(
    file: bytes | Callable[[], bytes], expected: str
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(expected)) as refused:
        keys_in(file() if callable(file) else file)
    assert SECRET.decode()[:31] not in str(refused.value)


def test_the_keys_of_a_jwks_that_are_not_for_us_are_left_out() -> None:
    found = keys_in(
        jwks(
            jwk(private("RS256"), alg="RS512"),
            jwk(private("EdDSA"), use="enc"),
            {"kty": "future"},
            {"kty": "OKP", "crv": "X25519", "x": b64(SECRET)},
            {"kty": "EC", "crv": "P-224", "x": "AA", "y": "AA"},
            {"kty": "oct", "k": "c2hvcnQ"},
            jwk(private("ES256"), kid=7),
            "none",
            jwk(private("ES256"), alg="ES256", use="sig", kid="a"),
            {"kty": "oct", "k": b64(SECRET), "kid": "b"},
        )
    )
    assert [(key.algorithm, key.kid) for key in found] == [("ES256", "a"), ("HS256", "b")]
    assert found[1].material == SECRET
    (single,) = keys_in(json.dumps(jwk(private("ES256"))).encode())
    assert single.algorithm == "ES256"


def test_a_token_of_the_agent_is_one_of_the_application() -> None:
    key = TokenKey("HS256", SECRET, "b")
    token = signed(key, claims(sub="ada"))
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT", "kid": "b"}
    assert jwt.decode(token, SECRET, ["HS256"], options={"verify_exp": False})["sub"] == "ada"
