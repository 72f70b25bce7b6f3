"""Cursors of lists: the key of a page's last item, as a text that clients hand back. No I/O."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TypeVar

import msgspec

from oplogd.errors import MessageError

# The header of a page before the last one: ``after`` of the next page.
NEXT = "Oplog-Next"

# Longer than every cursor of names: a name has 249 characters.
_MAX_CURSOR = 600
# No store compares with numbers of more than 64 bits.
_LARGE = 1 << 63

# The key of an item: its place in the list.
_Key = TypeVar("_Key")


def cursor(key: object) -> str:
    """Return a key as ``after`` takes it."""
    return urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def key_in(after: str, type_: type[_Key], most: int = _MAX_CURSOR) -> _Key | None:
    """Return the key encoded by ``cursor``, None for an empty text.

    ``most``: characters of the longest cursor. Raises MessageError.
    """
    if not after:
        return None
    try:
        if len(after) > most or not after.isascii():
            raise ValueError
        key = msgspec.json.decode(urlsafe_b64decode(after + "=" * (-len(after) % 4)), type=type_)
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, int) and not -_LARGE <= part < _LARGE:
                raise ValueError
        return key
    except ValueError:  # msgspec's errors, too
        raise MessageError("after", f"must be what {NEXT} of a page says") from None
