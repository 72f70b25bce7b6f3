"""Access control: passwords by HTTP Basic with any user name, as the first server's clients send them, and for reading also
cookies and tokens signed for a holder of the password. No I/O.
"""

import base64
import binascii
import hmac
import ipaddress
import logging
import math
import secrets
import time
from collections.abc import Collection
from typing import Literal

from starlette.requests import HTTPConnection

from oplogd.logs import Episode
from oplogd.values import Secret
from oplogd.web.brake import Brake
from oplogd.web.origin import is_from_page, is_own_host
from oplogd.web.problem import Problem
from oplogd.web.signing import Kind, Signer

COOKIE = "oplog"
COOKIE_SECONDS = 8 * 3600
TOKEN_SECONDS = 15 * 60

_BASIC = {"WWW-Authenticate": 'Basic realm="oplog", charset="UTF-8"'}
_SESSION = {"WWW-Authenticate": 'OplogSession realm="oplog"'}
"""For browsers with our cookie: a browser would answer Basic with a dialog of its own over the page's form."""

_FROM_ELSEWHERE = ("forwarded", "x-forwarded-for", "x-real-ip", "via", "origin")
"""Headers of proxies, and of pages of other origins in a browser on this machine."""

_QUIET_SECONDS = 60.0

logger = logging.getLogger("oplogd.password")


class Guard:
    """Checks one password; without one everybody passes. ``what`` names the guarded thing in messages."""

    def __init__(self, password: Secret | None, what: str) -> None:
        self._what = what
        self._brake = Brake()
        self._process_key = secrets.token_bytes(32)
        self._right = self._digest(password.reveal().encode()) if password else None
        self._guessing = Episode(logger, f"{what}: too many wrong passwords", quiet=_QUIET_SECONDS)

    @property
    def is_open(self) -> bool:
        """No password is set."""
        return self._right is None

    def demand(self, request: HTTPConnection) -> None:
        """Raise Problem 401 unless the request carries the password, 429 after too many wrong ones from its address."""
        if self._right is None:
            return
        given = _basic_password(request.headers.get("authorization", ""))
        if given is None:
            raise self._refused(_BASIC)
        self.demand_password(request, given, _BASIC)

    def demand_password(
        self, request: HTTPConnection, given: bytes, challenge: dict[str, str] = _SESSION
    ) -> None:
        """The same for a password that came in another way."""
        attempt, address = self._digest(given), request.client.host if request.client else ""
        if wait := self._brake.wait(address, attempt):
            self._guessing.again(
                detail=f"those of {address or 'an unknown address'} are not looked at for {wait:.0f} s"
            )
            raise Problem(
                429,
                "too many wrong passwords came from this address or from others; try again later",
                {"Retry-After": str(math.ceil(wait))},
            )
        if self._right is None or hmac.compare_digest(attempt, self._right):
            self._guessing.end()
            self._brake.passed(address)
            return
        self._brake.missed(address, attempt)
        raise self._refused(challenge)

    def _refused(self, challenge: dict[str, str]) -> Problem:
        return Problem(
            401,
            f"{self._what} needs the password: HTTP Basic authentication with any user name",
            challenge,
        )

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._process_key, password, "sha256")


class WriteGuard(Guard):
    """Without a password it keeps out web pages under names that may be anybody's (``origin``)."""

    def __init__(self, password: Secret | None, allowed_hosts: Collection[str]) -> None:
        super().__init__(password, "sending operations")
        self._allowed_hosts = allowed_hosts

    def demand(self, request: HTTPConnection) -> None:
        """As ``Guard.demand``; without a password, raise Problem 403 for such a page."""
        if (
            self.is_open
            and is_from_page(request.headers)
            and not _has_own_host(request, self._allowed_hosts)
        ):
            raise Problem(
                403,
                "a web page may send operations only under localhost, an IP address, or a name of this agent that"
                " --allowed-hosts lists",
            )
        super().demand(request)


class ReadGuard(Guard):
    """Also accepts a cookie or token that is signed with a key made from the password."""

    def __init__(self, password: Secret | None, allowed_hosts: Collection[str]) -> None:
        super().__init__(password, "the stream")
        self._allowed_hosts = allowed_hosts
        self._signer = Signer(password.reveal()) if password else None

    def demand(self, request: HTTPConnection) -> None:
        if self.signed_until(request) is not None:
            return
        try:
            super().demand(request)
        except Problem as problem:
            if problem.status == 401 and COOKIE in request.cookies:
                problem.headers.update(_SESSION)
            if problem.status == 401 and request.query_params.get("token"):
                problem.detail = "the token is not or no longer good; ask for a new one"
            raise

    def demand_basic(self, request: HTTPConnection) -> None:
        """Demand the password itself: a cookie or token must not buy another one."""
        super().demand(request)

    def admits(self, request: HTTPConnection) -> bool:
        """Whether the request carries the right to read; without a password, whether it comes from this machine."""
        if self.is_open:
            return _is_local(request) and _has_own_host(request, self._allowed_hosts)
        try:
            self.demand(request)
        except Problem:
            return False
        return True

    def signed_until(self, request: HTTPConnection) -> int | None:
        """When the cookie or token of a request expires, in seconds since 1970; None without a good one."""
        if self._signer is None:
            return None
        now = time.time()
        cookie = self._signer.expiry(Kind.COOKIE, request.cookies.get(COOKIE, ""), now)
        return cookie or self._signer.expiry(Kind.TOKEN, request.query_params.get("token", ""), now)

    def sign(self, kind: Kind, seconds: int) -> tuple[str, int]:
        """A value for ``seconds`` from now, and when it expires. Needs a password."""
        assert self._signer is not None
        expires = int(time.time()) + seconds
        return self._signer.sign(kind, expires), expires


def credentials(request: HTTPConnection) -> Literal["password", "session", "no_password"]:
    """Return what a request carries, right or wrong: a password, a cookie or token (``session``), or neither."""
    if "authorization" in request.headers:
        return "password"
    return (
        "session"
        if COOKIE in request.cookies or request.query_params.get("token")
        else "no_password"
    )


def _has_own_host(request: HTTPConnection, allowed: Collection[str]) -> bool:
    return is_own_host(request.headers.getlist("host"), allowed)


def _is_local(request: HTTPConnection) -> bool:
    if request.client is None or any(name in request.headers for name in _FROM_ELSEWHERE):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _basic_password(authorization: str) -> bytes | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        _, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return password if colon else None
