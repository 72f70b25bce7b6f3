"""Public keys in any form are no secrets, and what tools make as secrets is one."""

import base64
import bz2
import gzip
import json
import lzma
import random
import string

import pytest

from oplogd.web.access.keys.key_files import keys_in
from tests.kits.web.token_keys import private, public_pem
from tests.unit.access.test_tokens import SECRET, jwk


def in_other_forms() -> list[bytes]:
    """Return a public key, and pages, in forms that are no PEM and no JWKS."""
    pem = public_pem(private("ES256"))
    body = b"".join(pem.splitlines()[1:-1])
    der = base64.b64decode(body)
    key = json.dumps(jwk(private("ES256"))).encode()
    b64 = base64.b64encode
    return [
        b64(pem),
        base64.urlsafe_b64encode(pem).rstrip(b"="),
        base64.encodebytes(pem),
        b64(key),
        b64(b64(key)),
        b64(b64(pem)),
        b64(b64(der)),
        b64(der.hex().encode().hex().encode()),
        base64.encodebytes(b64(der)),
        b"KEY='" + der.hex().encode() + b"'",
        # Base64 with one "=" at its end, which is no name of a value.
        b64(b'{"issuer": "a server of others", "keys": []}'),
        b64(b64(base64.b64decode(b"".join(public_pem(private("RS256")).splitlines()[1:-1])))),
        b64(b'{"issuer": "the server of others", "keys": []}'),
        base64.urlsafe_b64encode(b'{"issuer": "a server ???", "keys": []}__'),
        b64(pem)[:61],
        body[:-8],
        public_pem(private("EdDSA")).splitlines()[1][:-8],
        der,
        der.hex().encode(),
        b"0x" + der.hex().encode(),
        der.hex(":").encode(),
        pem.hex().encode(),
        b"KEY=" + body,
        b"OPLOG_KEY=" + b64(pem),
        b'key: "' + b64(pem) + b'"',
        b"'" + body + b"'",
        b64(pem) + b"\0",
        body.decode().encode("utf-16"),
        body.decode().encode("utf-16-le"),
        b"\xfe\xff" + body.decode().encode("utf-16-be"),
        gzip.compress(pem),
        b"https://login.example.com/.well-known/jwks.json",
        b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ",
        b"AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ",
        b"AAAAB3NzaC1yc2EAAAADAQABAAABAQC7dPmWj4Lk1Qv0",
        b"AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBE1",
        b"---- BEGIN SSH2 PUBLIC KEY ----\nComment: cut off after this line",
        b"MIIDazCCAlOgAwIBAgIUWf3vJ8sUZl0n1m4cN0v5yQbq0ZkwDQYJ",
        b"<b>502 Bad Gateway</b> of the proxy before the server",
        b"<html lang=en>502 Bad Gateway of the proxy, cut off",
        b"<?xml version='1.0'?>502 Bad Gateway of the proxy",
        b"<!DOCTYPE html><title>502 Bad Gateway</title>",
        "<html>502, später noch einmal</html>".encode("latin-1"),
        "<html>502, später noch einmal</html>".encode("utf-16"),
        "<html>502, später noch einmal</html>".encode("utf-32"),
        b"<html>\x1b[31m502 Bad Gateway of the proxy\x1b[0m</html>",
        b"502 Bad Gateway of the proxy before the server</h1>",
        b'["error", "not found", "message", "there is no such secret"]',
        b"{'keys': [{'kty': 'EC', 'crv': 'P-256', 'x': 'a', 'y': 'b'}]}",
        bz2.compress(pem),
        lzma.compress(pem),
        b"\n" + der + b"\r\n\n",
        b"\xef\xbb\xbf" + SECRET,
        SECRET + b"\0" * 20,
    ]


@pytest.mark.parametrize("number", range(len(in_other_forms())))
def test_what_everybody_may_know_is_no_secret(number: int) -> None:
    with pytest.raises(ValueError, match=r"^has neither a secret nor a public key"):
        keys_in(in_other_forms()[number])


def test_letters_of_a_public_key_within_a_secret_do_not_matter() -> None:
    secret = b"0123456789abcdefMIIBCgKCAQEA0123456789"
    assert [key.material for key in keys_in(secret)] == [secret]


def test_what_tools_make_is_a_secret() -> None:
    source = random.Random(1)
    printable = (string.ascii_letters + string.digits + string.punctuation).encode()
    for _ in range(2_000):
        secret = source.randbytes(32)
        texts = [
            secret.hex().encode(),
            base64.b64encode(secret),
            base64.urlsafe_b64encode(source.randbytes(64)).rstrip(b"="),
            bytes(source.choices(printable, k=40)),
        ]
        for text in texts:
            assert [key.material for key in keys_in(text + b"\n")] == [text]
        if not secret.endswith(b"\n"):
            assert [key.material for key in keys_in(secret)] == [secret]
