"""Keys for tokens, made once in a process."""

from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

KINDS = ("RS256", "ES256", "EdDSA")


@cache
def private(kind: str) -> Any:
    if kind == "RS256":
        return rsa.generate_private_key(65_537, 2_048)
    if kind == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(key: Any) -> bytes:
    raw: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return raw


def private_pem(key: Any) -> bytes:
    raw: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return raw
