"""Signed values that prove the right to read for a while: the dashboard's cookie and the tokens of other pages. No I/O.

The key is made from the password, so every agent with the same password knows what another one has signed, also after a
restart, and a new password ends them all. Nothing is stored, so a single value cannot be taken back before its time.
"""

import base64
import hashlib
import hmac
import re
from enum import StrEnum

_VALUE = re.compile(r"[a-z]{1,16}\.([0-9]{1,12})\.[A-Za-z0-9_-]{43}", re.ASCII)

# A signed value lets its holder try passwords at home, so each try must cost something. About 50 ms and 16 MB, once.
_SALT = b"oplog signing key 1"
_SCRYPT_N, _SCRYPT_R = 1 << 14, 8


class Kind(StrEnum):
    """What a value was signed for; one does not serve as the other."""

    COOKIE = "cookie"
    TOKEN = "token"


class Signer:
    """Signs and checks with a key that equal passwords share."""

    def __init__(self, password: str) -> None:
        self._key = hashlib.scrypt(
            password.encode(), salt=_SALT, n=_SCRYPT_N, r=_SCRYPT_R, p=1, dklen=32
        )

    def sign(self, kind: Kind, expires: int) -> str:
        """A value that holds until ``expires``, in seconds since 1970. Its characters need no escape in a URL or cookie."""
        signed = f"{kind}.{expires}"
        mac = hmac.digest(self._key, signed.encode(), "sha256")
        return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    def expiry(self, kind: Kind, value: str, now: float) -> int | None:
        """When a value expires, in seconds since 1970; None if it has, is of another kind, or was not signed with this key."""
        parts = _VALUE.fullmatch(value)
        if parts is None:
            return None
        expires = int(parts[1])
        # Signed anew and compared whole: there is one spelling of a value only, and the kind is part of it.
        if not hmac.compare_digest(self.sign(kind, expires), value):
            return None
        return expires if now < expires else None
