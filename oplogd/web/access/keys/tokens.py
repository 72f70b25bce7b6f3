"""Tokens that an application signs itself: JWTs (RFC 7519). No I/O.

The key decides the algorithm, never the token. Times have no leeway.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from oplogd.errors import RightError
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.rights import Right

MAX_TOKEN_BYTES = 8 * 1024
# Of all files together.
MAX_KEYS = 100
MIN_SECRET_BYTES = 32
_MIN_RSA_BITS = 2048
_MAX_KID = 1_000
_MAX_SUBJECT = 250
_MAX_TIME = 10**12

# Marks of pages, damaged public keys and other files that are no secret: everybody may know them.
_MARKS = (b"-----", b"kty", b"PUBLIC KEY", b"P\0U\0B\0L\0I\0C", b"k\0t\0y", b"</")
_BEGINS = (b"<", b"[", b'"', b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"MII", b"MFkw", b"MCow")

# Keys that are tried for a token without the name of one. Each takes up to 0.6 ms.
_MAX_TRIES = 4

# The claim with the right.
CLAIM = "oplog"
HMAC, RSA, EC, EDWARDS = "HS256", "RS256", "ES256", "EdDSA"

# Nothing but the signature and the audience: the agent's clock judges times.
_WITH_AUDIENCE: Any = dict.fromkeys(
    ("verify_exp", "verify_nbf", "verify_iat", "verify_iss", "verify_sub", "verify_jti"), False
)
_OPTIONS: Any = {**_WITH_AUDIENCE, "verify_aud": False}


class TokenError(Exception):
    """A token is refused. The message is the reason for the log, and repeats nothing of it."""


class TokenKey(NamedTuple):
    """A key. ``material``: a secret for HMAC, else a public key in PEM."""

    algorithm: str
    material: bytes
    kid: str | None = None


class Verified(NamedTuple):
    """A valid token. Times are in seconds since 1970. ``issued``: None without ``iat``."""

    key: TokenKey
    subject: str | None
    right: Right
    expires: float
    issued: float | None


class TokenKeys:
    """Verifies tokens. ``audiences``: one of them must be the token's; empty: any token."""

    def __init__(self, keys: Sequence[TokenKey], audiences: Sequence[str]) -> None:
        self.keys = keys
        self._audiences = list(audiences)
        self._loaded = [(key, _loaded(key)) for key in keys]

    def verify(self, token: str, now: float) -> Verified:
        """Return the content of a valid token. ``now``: seconds since 1970. Raises TokenError."""
        key, claims = self._signed(token)
        if not isinstance(claims, dict):
            raise TokenError("its claims are no object")
        expires = _time(claims, "exp")
        if expires is None:
            raise TokenError("it has no exp")
        if now >= expires:
            raise TokenError("it has expired")
        begins, issued = _time(claims, "nbf"), _time(claims, "iat")
        if max(begins or 0, issued or 0) > now:
            raise TokenError("it is not yet valid")
        subject = claims.get("sub")
        if subject is not None and not (
            isinstance(subject, str) and 0 < len(subject) <= _MAX_SUBJECT and subject.isprintable()
        ):
            raise TokenError(f"its sub is not 1 to {_MAX_SUBJECT} printable characters")
        if CLAIM not in claims:
            raise TokenError(f"it has no claim {CLAIM}")
        try:
            right = right_of(claims[CLAIM])
        except RightError as error:
            raise TokenError(f"its claim {CLAIM}: {error}") from None
        return Verified(key, subject, right, expires, issued)

    def _signed(self, token: str) -> tuple[TokenKey, Any]:
        """Return the key of a token's signature, and its claims."""
        import jwt

        if len(token) > MAX_TOKEN_BYTES:
            raise TokenError(f"it has more than {MAX_TOKEN_BYTES:,} bytes")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenError("it is no token") from None
        if "crit" in header or "b64" in header:
            raise TokenError("its header has members that must be understood")
        kid = header.get("kid")
        fitting = [
            (key, loaded)
            for key, loaded in self._loaded
            if key.algorithm == header.get("alg") and (None in (kid, key.kid) or key.kid == kid)
        ]
        if not fitting:
            raise TokenError("no key has its algorithm and kid")
        for key, loaded in fitting[:_MAX_TRIES]:
            try:
                claims = jwt.decode(
                    token,
                    loaded,
                    algorithms=[key.algorithm],
                    audience=self._audiences or None,
                    options=_WITH_AUDIENCE if self._audiences else _OPTIONS,
                )
            except jwt.InvalidSignatureError:
                continue
            except (jwt.InvalidAudienceError, jwt.MissingRequiredClaimError):
                raise TokenError("it is for another audience (--token-audience)") from None
            except (jwt.PyJWTError, ValueError, RecursionError):
                raise TokenError("it is no valid token") from None
            return key, claims
        raise TokenError("its signature is wrong")


def signed(key: TokenKey, claims: dict[str, Any]) -> str:
    """Return a token. ``key``: for HMAC."""
    import jwt

    headers = {"kid": key.kid} if key.kid is not None else None
    return jwt.encode(claims, key.material, algorithm=HMAC, headers=headers)


def keys_in(content: bytes) -> list[TokenKey]:
    """Return the keys in a file: a public key in PEM, a JWKS, or else a secret for HMAC.

    Raises ValueError. The message continues the name of the file, and repeats no secret.
    """
    kind = kind_of(content)
    if kind == "PEM":
        return [_pem_key(content)]
    if kind == "JWKS":
        return _jwks(content)
    if any(mark in content for mark in _MARKS) or content.strip().startswith(_BEGINS):
        raise ValueError("has neither a secret nor a public key that is understood")
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if not secret.strip():
        raise ValueError("is empty")
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"has a secret of fewer than {MIN_SECRET_BYTES} bytes")
    _require_secret(secret)
    return [TokenKey(HMAC, secret)]


def kind_of(content: bytes) -> str:
    """Return the kind of a file with a key: PEM, JWKS or secret."""
    text = content.strip()
    if text.startswith(b"-----BEGIN"):
        return "PEM"
    return "JWKS" if text.startswith(b"{") else "secret"


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


def _loaded(key: TokenKey) -> Any:
    if key.algorithm == HMAC:
        return key.material
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    return load_pem_public_key(key.material)


def _time(claims: dict[str, Any], name: str) -> float | None:
    """Return a time of a token. Raises TokenError for anything but a number."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) <= _MAX_TIME  # NaN is not
    ):
        raise TokenError(f"its {name} is no time")
    return value
