"""Files with the keys of tokens: a secret, a public key in PEM, or a JWKS (RFC 7517). No I/O."""

import json
from typing import Any

from oplogd.web.access.keys.known import is_json_object, is_known
from oplogd.web.access.keys.tokens import EC, EDWARDS, HMAC, RSA, TokenKey

# Of one JWKS.
MAX_KEYS = 100
MAX_FILE_BYTES = 256 * 1024
MIN_SECRET_BYTES = 32
MAX_SECRET_BYTES = 4_096
_MIN_RSA_BITS = 2048
_MAX_KID = 1_000

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
    _require_secret(secret)
    return [TokenKey(HMAC, secret)]


def kind_of(content: bytes) -> str:
    """Return the kind of a file with a key: PEM, JWKS or secret."""
    text = content.strip()
    if text.startswith(b"-----BEGIN"):
        return "PEM"
    return "JWKS" if is_json_object(text) else "secret"


def _require_secret(secret: bytes) -> None:
    """Raise ValueError for what is no secret: it is too short, too long, or everybody knows it."""
    from jwt import InvalidKeyError
    from jwt.algorithms import HMACAlgorithm

    if not secret.strip():
        raise ValueError("is empty")
    if not MIN_SECRET_BYTES <= len(secret) <= MAX_SECRET_BYTES:
        few = len(secret) < MIN_SECRET_BYTES
        bound = f"fewer than {MIN_SECRET_BYTES}" if few else f"more than {MAX_SECRET_BYTES:,}"
        raise ValueError(f"has a secret of {bound} bytes")
    if len(set(secret)) < _MIN_DISTINCT:
        raise ValueError(f"has a secret of fewer than {_MIN_DISTINCT} different bytes")
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret)
    except InvalidKeyError:  # PyJWT takes it for another kind of key
        is_secret = False
    else:
        is_secret = not is_known(secret)
    if not is_secret:
        raise ValueError("has neither a secret nor a public key that is understood")


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
        raise ValueError(f"has no usable key for {HMAC}, {RSA}, {EC} or {EDWARDS}")
    return usable


def _jwk(entry: Any, name: str) -> TokenKey | None:
    """Return a key. None: it is for others, or invalid, as RFC 7517 (5.) wants it.

    Raises ValueError for a private key.
    """
    from jwt import PyJWK, PyJWTError

    if not isinstance(entry, dict):
        return None
    kid = entry.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= _MAX_KID):
        return None
    if kid is not None and any("\ud800" <= each <= "\udfff" for each in kid):
        return None  # a half of a pair, which is no text
    algorithm = {"oct": HMAC, "RSA": RSA, "EC": EC, "OKP": EDWARDS}.get(str(entry.get("kty")))
    if algorithm is None or entry.get("use", "sig") != "sig":
        return None
    if entry.get("alg", algorithm) != algorithm:
        return None
    if algorithm != HMAC and "d" in entry:
        raise ValueError(f"{name}: is a private key; give the agent the public one")
    try:
        key = PyJWK(entry, algorithm).key
        if algorithm != HMAC:
            return _public_key(key, kid)
        _require_secret(key)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    return TokenKey(HMAC, key, kid)
