"""Files with the keys of tokens: a secret, a public key in PEM, or a JWKS (RFC 7517). No I/O."""

import base64
import binascii
import json
import re
from typing import Any

from oplogd.web.access.keys.tokens import EC, EDWARDS, HMAC, RSA, TokenKey

# Of one JWKS.
MAX_KEYS = 100
MAX_FILE_BYTES = 256 * 1024
MIN_SECRET_BYTES = 32
MAX_SECRET_BYTES = 4_096
_MIN_RSA_BITS = 2048
_MAX_KID = 1_000

# Marks of pages, damaged public keys and other texts that are no secret: everybody may know them.
_MARKS = (b"-----", b"kty", b"PUBLIC KEY", b"</")
_DER = re.compile(rb"(?<![A-Za-z0-9+/])(?:MII|MFkw|MCow)")
_BEGINS = (b"<", b"[", b'"', b"'", b"http:", b"https:", b"\xef\xbb\xbf")
# The same in other encodings, and in a compressed file.
_BINARY_MARKS = (b"P\0U\0B\0L\0I\0C", b"k\0t\0y")
_GZIP = b"\x1f\x8b\x08"
# A file of a disk that was full has the same byte many times.
_MIN_DISTINCT = 8


def keys_in(content: bytes) -> list[TokenKey]:
    """Return the keys in a file: a public key in PEM, a JWKS, or else a secret for HMAC.

    Raises ValueError. The message continues the name of the file, and repeats no secret.
    """
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"has more than {MAX_FILE_BYTES:,} bytes")
    kind = kind_of(content)
    if kind == "PEM":
        return [_pem_key(content)]
    if kind == "JWKS":
        return _jwks(content)
    newline = b"\r\n" if content.endswith(b"\r\n") else b"\n"
    secret = content.removesuffix(newline)
    if not secret.strip():
        raise ValueError("is empty")
    if _is_known(content):
        raise ValueError("has neither a secret nor a public key that is understood")
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        few = len(secret) < MIN_SECRET_BYTES
        bound = f"fewer than {MIN_SECRET_BYTES}" if few else f"more than {MAX_SECRET_BYTES:,}"
        raise ValueError(f"has a secret of {bound} bytes")
    if len(set(secret)) < _MIN_DISTINCT:
        raise ValueError(f"has a secret of fewer than {_MIN_DISTINCT} different bytes")
    _require_secret(secret)
    return [TokenKey(HMAC, secret)]


def kind_of(content: bytes) -> str:
    """Return the kind of a file with a key: PEM, JWKS or secret."""
    text = content.strip()
    if text.startswith(b"-----BEGIN"):
        return "PEM"
    return "JWKS" if text.startswith(b"{") and _is_text(content) else "secret"


def _is_known(content: bytes) -> bool:
    """Return whether a content is a public key in some form, a page, or another known file."""
    if _has_marks(content) or _is_public_key(content):
        return True
    if not _is_text(content):
        return False
    # A secret that was encoded twice, as in some stores of secrets.
    text = b"".join(content.split())
    padded = (bare := text.rstrip(b"=")) + b"=" * (-len(bare) % 4)
    for decode in (binascii.unhexlify, _of_base64, _of_base64url):
        try:
            decoded = decode(text if decode is binascii.unhexlify else padded)
        except ValueError:
            continue
        is_inner_text = _is_text(decoded) and _has_marks(decoded)
        if is_inner_text or decoded.lstrip().startswith(b'{"') or _is_public_key(decoded):
            return True
    return False


def _of_base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


def _of_base64url(text: bytes) -> bytes:
    return base64.b64decode(text, b"-_", validate=True)


def _has_marks(content: bytes) -> bool:
    if not _is_text(content):
        is_compressed = content.startswith(_GZIP)
        return is_compressed or any(mark in content for mark in _BINARY_MARKS)
    if content.strip().startswith(_BEGINS) or _DER.search(content):
        return True
    return any(mark in content for mark in _MARKS)


def _is_text(content: bytes) -> bool:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each.isspace() for each in text)


def _is_public_key(content: bytes) -> bool:
    """Return whether a content is a public key in DER."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        load_der_public_key(content)
    except UnsupportedAlgorithm:
        return True
    except ValueError:
        return False
    return True


def _require_secret(secret: bytes) -> None:
    """Raise ValueError for a secret that PyJWT takes for another kind of key."""
    from jwt import InvalidKeyError
    from jwt.algorithms import HMACAlgorithm

    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret)
    except InvalidKeyError:
        raise ValueError("has a key that is neither a secret nor a public key in PEM") from None


def _pem_key(content: bytes, kid: str | None = None) -> TokenKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in content:
        raise ValueError("has a private key; give the agent the public one")
    try:
        return _public_key(load_pem_public_key(content), kid)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(
            f"has no public key (PEM) of RSA with {_MIN_RSA_BITS} bits, P-256 or Ed25519"
        ) from None


def _public_key(key: Any, kid: str | None) -> TokenKey:
    """Return a key of cryptography as ours. Raises ValueError for a kind that is not supported."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    match key:
        case rsa.RSAPublicKey() if key.key_size >= _MIN_RSA_BITS:
            algorithm = RSA
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP256R1):
            algorithm = EC
        case ed25519.Ed25519PublicKey():
            algorithm = EDWARDS
        case _:
            raise ValueError
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return TokenKey(algorithm, pem, kid)


def _jwks(content: bytes) -> list[TokenKey]:
    """Return the keys of a JWKS (RFC 7517). Those of other algorithms or for encryption are not."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("begins as a JWKS, but is no JSON") from None
    entries = found.get("keys", [found])
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise ValueError(f"must have a list of at most {MAX_KEYS} keys")
    keys = [_jwk(entry, f"key {number}") for number, entry in enumerate(entries, 1)]
    usable = [key for key in keys if key is not None]
    if not usable:
        raise ValueError(f"has no key for {HMAC}, {RSA}, {EC} or {EDWARDS}")
    return usable


def _jwk(entry: Any, name: str) -> TokenKey | None:
    from jwt import PyJWK, PyJWTError

    if not isinstance(entry, dict):
        raise ValueError(f"{name}: must be an object")
    kid = entry.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= _MAX_KID):
        raise ValueError(f"{name}: kid must be a text of at most {_MAX_KID:,} characters")
    algorithm = {"oct": HMAC, "RSA": RSA, "EC": EC, "OKP": EDWARDS}.get(str(entry.get("kty")))
    if algorithm is None or entry.get("use", "sig") != "sig":
        return None
    if entry.get("alg", algorithm) != algorithm:
        return None
    if algorithm != HMAC and "d" in entry:
        raise ValueError(f"{name}: is a private key; give the agent the public one")
    try:
        key = PyJWK(entry, algorithm).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        raise ValueError(f"{name}: is invalid") from None
    if algorithm == HMAC:
        if len(key) < MIN_SECRET_BYTES:
            raise ValueError(f"{name}: has fewer than {MIN_SECRET_BYTES} bytes")
        return TokenKey(HMAC, key, kid)
    try:
        return _public_key(key, kid)
    except ValueError:
        return None
