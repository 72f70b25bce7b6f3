"""Signed values that give the right to read until they expire: cookies and tokens. No I/O.

The key is derived from the password, or from the hash of a principal's password and the secret of
the store. So all agents with one password, or with one file of principals on one store, accept each
other's values, also after a restart. All values are invalid when the password is gone. No value is
stored, so a single one cannot be revoked.
"""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from enum import StrEnum

# A signed value lets its holder test passwords offline, so each test must be expensive:
# about 50 ms and 16 MB. The agent pays this once.
_KEY_SALT = b"oplog signing key 1"
_SCRYPT_N, _SCRYPT_R = 1 << 14, 8

_MAX_DIGITS = 12


class Purpose(StrEnum):
    """Use of a signed value. A value for one use is invalid for the other."""

    COOKIE = "cookie"
    TOKEN = "token"


def signing_key(password: str) -> bytes:
    """Return the key that a password has. Takes 50 ms."""
    return hashlib.scrypt(
        password.encode(), salt=_KEY_SALT, n=_SCRYPT_N, r=_SCRYPT_R, p=1, dklen=32
    )


class ExpiringSigner:
    """Signs and verifies expiry times with a key.

    A value holds its expiry, not its time of signing: an agent whose clock is behind must accept it
    too. ``name``: of a principal, which its values name. Empty for a password without a name. A
    value may also hold ``claims``, a text in base64url.
    """

    def __init__(self, key: bytes, name: str = "") -> None:
        self._name = name
        self._keys = {
            purpose: hmac.digest(key, f"oplog {purpose}".encode(), "sha256") for purpose in Purpose
        }

    def sign(self, purpose: Purpose, expires: int, claims: str = "") -> str:
        """Return a value valid before ``expires``, in seconds since 1970.

        It needs no escaping in a URL or a cookie.
        """
        middle = f"{self._name}~{claims}" if claims else self._name
        signed = f"{expires}.{middle}" if middle else f"{expires}"
        mac = hmac.digest(self._keys[purpose], signed.encode(), "sha256")
        return f"{signed}.{urlsafe_b64encode(mac).decode().rstrip('=')}"

    def expiry(self, purpose: Purpose, value: str, now: float) -> int | None:
        """Return when a value expires, in seconds since 1970.

        Return None if it has expired, has another purpose, or was not signed with this key.
        """
        seconds = value.partition(".")[0]
        if not (value.isascii() and seconds.isdecimal() and len(seconds) <= _MAX_DIGITS):
            return None
        expires = int(seconds)
        # The whole text is compared: base64 and numbers can be spelt in more than one way.
        if not hmac.compare_digest(self.sign(purpose, expires, claims_in(value)), value):
            return None
        return expires if now < expires else None


def is_own(value: str) -> bool:
    """Return whether a cookie or token may be one that an agent has signed, and no JWT."""
    return value[:1].isdecimal()


def principal_in(value: str) -> str:
    """Return the principal that a value names, empty without one. It may be any text."""
    return _middle(value).partition("~")[0]


def claims_in(value: str) -> str:
    """Return the claims that a value holds, empty without any. They may be any text."""
    return _middle(value).partition("~")[2]


def _middle(value: str) -> str:
    return value.partition(".")[2].rpartition(".")[0]
