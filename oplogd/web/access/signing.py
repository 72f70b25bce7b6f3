"""Signed values that give the right to read until they expire: cookies and tokens. No I/O.

The key is derived from the password. So all agents with one password accept each other's values,
also after a restart, and a new password invalidates all of them. Nothing is stored, so a single
value cannot be revoked.
"""

import hashlib
import re
from enum import StrEnum

from itsdangerous import BadSignature, Signer

# Canonical decimal seconds, a dot, and the 32 bytes of a MAC in base64url.
_SHAPE = re.compile(r"(?:0|[1-9][0-9]{0,11})\.[A-Za-z0-9_-]{43}", re.ASCII)

# A signed value lets its holder test passwords offline, so each test must be expensive:
# about 50 ms and 16 MB. The agent pays this once.
_KEY_SALT = b"oplog signing key 1"
_SCRYPT_N, _SCRYPT_R = 1 << 14, 8


class Purpose(StrEnum):
    """Use of a signed value. A value for one use is invalid for the other."""

    COOKIE = "cookie"
    TOKEN = "token"


class ExpiringSigner:
    """Signs and verifies expiry times. Signers with equal passwords have equal keys.

    A value holds its expiry, not its time of signing: an agent whose clock is behind must accept it
    too.
    """

    def __init__(self, password: str) -> None:
        key = hashlib.scrypt(
            password.encode(), salt=_KEY_SALT, n=_SCRYPT_N, r=_SCRYPT_R, p=1, dklen=32
        )
        self._signers = {
            purpose: Signer(
                key,
                salt=f"oplog {purpose}",
                key_derivation="hmac",
                digest_method=hashlib.sha256,
            )
            for purpose in Purpose
        }

    def sign(self, purpose: Purpose, expires: int) -> str:
        """Return a value that is valid before ``expires``, in seconds since 1970.

        It needs no escaping in a URL or a cookie.
        """
        return self._signers[purpose].sign(str(expires)).decode()

    def expiry(self, purpose: Purpose, value: str, now: float) -> int | None:
        """Return when a value expires, in seconds since 1970.

        Return None if it has expired, has another purpose, or was not signed with this key.
        """
        if not _SHAPE.fullmatch(value):
            return None
        signer = self._signers[purpose]
        try:
            expires = signer.unsign(value)
        except BadSignature:
            return None
        # Base64 can spell the MAC in more than one way. Only the spelling of ``sign`` is valid.
        if signer.sign(expires) != value.encode():
            return None
        return int(expires) if now < int(expires) else None
