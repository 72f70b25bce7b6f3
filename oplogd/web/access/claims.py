"""The claims of the tokens that an agent gives: the right that was asked for. No I/O."""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import msgspec

from oplogd.web.access.caller import Caller
from oplogd.web.access.keys.signing import claims_in
from oplogd.web.access.keys.tokens import CLAIM
from oplogd.web.access.right_bodies import body_of, right_of
from oplogd.web.access.rights import Right


class Asked(NamedTuple):
    """A token as it was asked for. ``issued``: seconds since 1970."""

    right: Right
    issued: int


def claims_of(asked: Asked) -> str:
    """Return the claims as text in base64url."""
    body = msgspec.json.encode({CLAIM: body_of(asked.right), "iat": asked.issued})
    return urlsafe_b64encode(body).decode().rstrip("=")


def narrowed(caller: Caller, value: str) -> Caller:
    """Return the maker of a signed value as the client with it."""
    claims = claims_in(value)
    if not claims:
        return caller
    given = msgspec.json.decode(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    right = caller.right.narrowed(right_of(given[CLAIM]))
    name = f"token:{hashlib.sha256(value.encode()).hexdigest()}"
    return caller._replace(name=name, right=right, life=(caller.until or 0) - given["iat"])
