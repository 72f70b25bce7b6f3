"""Tokens that an application signs itself: JWTs (RFC 7519). No I/O.

The key decides the algorithm, never the token. Times have no leeway.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oplogd.errors import RightError
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.rights import Right

MAX_TOKEN_BYTES = 8 * 1024
_MAX_SUBJECT = 250
# The end of the year 9999: later times have no date.
_MAX_TIME = 253_402_300_799

# Keys that are tried for a token. Those that it names come first. Each takes up to 0.6 ms.
MAX_TRIES = 4

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
        fitting.sort(key=lambda each: each[0].kid != kid)
        if not fitting:
            raise TokenError("no key has its algorithm and kid")
        for key, loaded in fitting[:MAX_TRIES]:
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
