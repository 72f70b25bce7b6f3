"""Hashes of passwords: scrypt, as text ``$scrypt$ln=14,r=8,p=1$SALT$HASH``. No I/O.

The form is that of the PHC string format, with base64 without padding. Parameters as in RFC 7914.
"""

import binascii
import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from typing import NamedTuple

# 16 MiB and about 50 ms.
LN, R, P = 14, 8, 1
_SALT_BYTES, _HASH_BYTES = 16, 32

# Two checks run at a time, each with at most this memory.
MAX_MEMORY = 64 << 20
# Sixteen times the work of a hash of ours.
_MAX_COST = 16 * R * P << LN

_FORM = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})"
    r"\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})",
    re.ASCII,
)


class Hash(NamedTuple):
    """A hash. Equal to another one of the same text."""

    ln: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @property
    def cost(self) -> int:
        """The work of a check, as a number to compare."""
        return self.r * self.p << self.ln

    def fits(self, password: bytes) -> bool:
        """Return whether the hash is of this password. Takes 50 ms, and more for a costlier one."""
        return hmac.compare_digest(_derive(password, *self[:4], len(self.key)), self.key)


def hashed(password: str) -> str:
    """Return a new hash of a password as text."""
    salt = secrets.token_bytes(_SALT_BYTES)
    key = _derive(password.encode(), LN, R, P, salt, _HASH_BYTES)
    return f"$scrypt$ln={LN},r={R},p={P}${_text(salt)}${_text(key)}"


def parse_hash(text: str) -> Hash:
    """Parse a hash. Raises ValueError. The message repeats nothing of it."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("must be a hash as `oplogd hash-password` prints it")
    ln, r, p = (int(part) for part in match.groups()[:3])
    if not (r and p and 1 <= ln < 16 * r):  # RFC 7914, section 2
        raise ValueError("has parameters out of range")
    if 128 * r << ln > MAX_MEMORY or r * p << ln > _MAX_COST:
        raise ValueError(
            f"is too costly: at most {MAX_MEMORY >> 20} MiB, and 16 times the work of ln={LN},"
            f"r={R},p={P}, are possible"
        )
    try:
        salt, key = (b64decode(part + "=" * (-len(part) % 4)) for part in match.groups()[3:])
    except binascii.Error:
        raise ValueError("must be a hash as `oplogd hash-password` prints it") from None
    return Hash(ln, r, p, salt, key)


def _derive(password: bytes, ln: int, r: int, p: int, salt: bytes, size: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=1 << ln, r=r, p=p, dklen=size, maxmem=MAX_MEMORY + (4 << 20)
    )


def _text(raw: bytes) -> str:
    return b64encode(raw).decode().rstrip("=")
