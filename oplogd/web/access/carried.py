"""The credentials that a request carries. No I/O."""

import base64
import binascii
import ipaddress
from typing import Literal, NamedTuple

from starlette.requests import HTTPConnection

COOKIE = "oplog"

# Requests with one of these headers come through a proxy, or from a page of another origin in a
# browser on this machine.
_NOT_LOCAL = ("forwarded", "x-forwarded-for", "x-real-ip", "via", "origin")


class Given(NamedTuple):
    """The user name and the password of a request."""

    user: str
    password: bytes


def kind_of_credentials(request: HTTPConnection) -> Literal["password", "session", "no_password"]:
    """Return the kind of credentials of a request, valid or not. ``session``: a cookie or token."""
    if "authorization" in request.headers:
        return "password"
    if COOKIE in request.cookies or request.query_params.get("token"):
        return "session"
    return "no_password"


def is_local(request: HTTPConnection) -> bool:
    """Return whether a program on this machine sent a request, and no page of another origin."""
    if request.client is None or any(name in request.headers for name in _NOT_LOCAL):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def bearer(authorization: str) -> str | None:
    """Return the token in a header of RFC 6750, None for any other text."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def basic(authorization: str) -> Given | None:
    """Return what a header of HTTP Basic holds, None for any other text."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return Given(user.decode("utf-8", "replace"), password) if colon else None
