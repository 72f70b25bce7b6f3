"""Authentication of requests. No I/O.

Passwords come by HTTP Basic with any user name, as clients of the first server send them. Reading
is also possible with a signed cookie or token, which a client gets for the password.
"""

import base64
import binascii
import hmac
import ipaddress
import logging
import math
from collections.abc import Collection
from ctypes import c_int64
from typing import Literal

from starlette.requests import HTTPConnection

from oplog_kit.command.convert import Secret
from oplogd.clock import Clock
from oplogd.host.logs import Episode
from oplogd.host.senders import SenderEpisodes
from oplogd.web.access.attempts import AttemptLimiter
from oplogd.web.access.origin import is_from_page, is_own_host
from oplogd.web.access.shared_attempts import Limiter, SharedAttempts
from oplogd.web.access.signing import ExpiringSigner, Purpose
from oplogd.web.http.plain import PlainRequest
from oplogd.web.http.problem import Problem
from oplogd.workers.workers import Workers

COOKIE = "oplog"
COOKIE_SECONDS = 8 * 3600
TOKEN_SECONDS = 15 * 60

_BASIC = {"WWW-Authenticate": 'Basic realm="oplog", charset="UTF-8"'}

# For browsers with our cookie: with Basic a browser would open its own dialog over the page's form.
_SESSION = {"WWW-Authenticate": 'OplogSession realm="oplog"'}

# Requests with one of these headers come through a proxy, or from a page of another origin in a
# browser on this machine.
_NOT_LOCAL = ("forwarded", "x-forwarded-for", "x-real-ip", "via", "origin")

_QUIET_SECONDS = 60.0

logger = logging.getLogger("oplogd.password")


class Authenticator:
    """Checks one password. Without a password every request passes. No message holds a password.

    ``subject`` names the protected thing in messages. ``workers``: they limit guesses together;
    None: there is one process.
    """

    subject: str

    def __init__(
        self,
        password: Secret | None,
        allowed_hosts: Collection[str],
        clock: Clock,
        refused: c_int64 | None = None,
        *,
        workers: Workers | None = None,
    ) -> None:
        """``refused`` counts requests refused for their password."""
        self._clock = clock
        self._allowed_hosts = allowed_hosts
        workers = workers or Workers()
        self._key = workers.secret_of(f"{self.subject}: passwords")
        self._limiter: Limiter
        if workers.count == 1:
            self._limiter = AttemptLimiter(clock.monotonic)
        else:
            cells = workers.secret_of(f"{self.subject}: cells of networks")
            journal = workers.attempts[self.subject]
            self._limiter = SharedAttempts(journal, cells, clock.monotonic)
        self._expected = self._digest(password.reveal().encode()) if password else None
        self._refused = SenderEpisodes(
            logger,
            f"{self.subject}: refusing passwords from",
            quiet=_QUIET_SECONDS,
            clock=clock.monotonic,
            counted=refused,
        )
        self._guessing = Episode(
            logger, f"{self.subject}: too many wrong passwords", quiet=_QUIET_SECONDS
        )

    @property
    def refused(self) -> int:
        """Return the number of requests refused for their password."""
        return self._refused.count

    @property
    def is_open(self) -> bool:
        """Return whether no password is set."""
        return self._expected is None

    def require(self, request: HTTPConnection) -> None:
        """Raise Problem 401 unless the request carries the password.

        Raise Problem 429 after too many wrong passwords from its address.
        """
        if self._expected is None:
            return
        given = _basic_password(request.headers.get("authorization", ""))
        if given is None:
            raise self._unauthorized(_BASIC)
        self.check_password(request, given, _BASIC)

    def check_password(
        self, request: HTTPConnection, given: bytes, challenge: dict[str, str] = _SESSION
    ) -> None:
        """Raise the Problems of ``require`` unless ``given`` is the password."""
        attempt, address = self._digest(given), request.client.host if request.client else ""
        is_right = self._expected is None or hmac.compare_digest(attempt, self._expected)
        if wait := self._limiter.judge(address, attempt, is_right=is_right):
            self._refused.occurred(address, "too many wrong ones")
            self._guessing.occurred(
                detail=f"passwords from {address or 'an unknown address'} are not checked"
                f" for {wait:.0f} s"
            )
            raise Problem(
                429,
                "too many wrong passwords came from this address or from others; try again later",
                {"Retry-After": str(math.ceil(wait))},
            )
        if is_right:
            self._succeeded()
            return
        self._refused.occurred(address, "it is wrong")
        raise self._unauthorized(challenge)

    def admits_plain(self, request: PlainRequest) -> bool:
        """Return whether a request of the short way passes ``require``.

        Counts nothing for one that does not.
        """
        if self._expected is None:
            return True
        address = request.address
        given = _basic_password(request.headers.get(b"authorization", b"").decode("latin-1"))
        if given is None:
            return False
        attempt = self._digest(given)
        if not hmac.compare_digest(attempt, self._expected):
            return False
        if self._limiter.judge(address, attempt, is_right=True):
            return False
        self._succeeded()
        return True

    def _succeeded(self) -> None:
        self._guessing.end()
        self._refused.ended()

    def _unauthorized(self, challenge: dict[str, str]) -> Problem:
        return Problem(
            401,
            f"{self.subject} needs the password: HTTP Basic authentication with any user name",
            challenge,
        )

    def _has_own_host(self, request: HTTPConnection) -> bool:
        return is_own_host(request.headers.getlist("host"), self._allowed_hosts)

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")


class WriteAuthenticator(Authenticator):
    """Checks the right to send operations, and to write topics.

    Without a password it refuses web pages under an unknown host name.
    """

    subject = "writing"

    def require(self, request: HTTPConnection) -> None:
        """Raise as ``Authenticator.require``.

        Without a password, raise Problem 403 for a page under an unknown host name (``origin``).
        """
        if self.is_open and is_from_page(request.headers) and not self._has_own_host(request):
            raise Problem(
                403,
                "a web page may write only under localhost, an IP address,"
                " or a name of this agent that --allowed-hosts lists",
            )
        super().require(request)


class ReadAuthenticator(Authenticator):
    """Checks the right to read. Also accepts a valid cookie or token."""

    subject = "reading"

    def __init__(
        self,
        password: Secret | None,
        allowed_hosts: Collection[str],
        clock: Clock,
        refused: c_int64 | None = None,
        *,
        workers: Workers | None = None,
    ) -> None:
        super().__init__(password, allowed_hosts, clock, refused, workers=workers)
        self._signer = ExpiringSigner(password.reveal()) if password else None

    def require(self, request: HTTPConnection) -> None:
        """Raise as ``Authenticator.require``, unless the request has a valid cookie or token."""
        if self.signed_until(request) is not None:
            return
        try:
            super().require(request)
        except Problem as problem:
            if problem.status == 401 and COOKIE in request.cookies:
                problem.headers.update(_SESSION)
            if problem.status == 401 and request.query_params.get("token"):
                problem.detail = "the token is invalid or has expired; get a new one"
            raise

    def require_password(self, request: HTTPConnection) -> None:
        """Accept only the password: a cookie or token must not give its holder another one."""
        super().require(request)

    def admits(self, request: HTTPConnection) -> bool:
        """Return whether the request may read.

        Without a password, return whether it comes from this machine.
        """
        if self.is_open:
            return _is_local(request) and self._has_own_host(request)
        try:
            self.require(request)
        except Problem:
            return False
        return True

    def signed_until(self, request: HTTPConnection) -> int | None:
        """Return when the cookie or token of a request expires, in seconds since 1970.

        Return None if it has no valid one.
        """
        if self._signer is None:
            return None
        now = self._clock.now_ms() / 1000
        cookie = request.cookies.get(COOKIE, "")
        token = request.query_params.get("token", "")
        return self._signer.expiry(Purpose.COOKIE, cookie, now) or self._signer.expiry(
            Purpose.TOKEN, token, now
        )

    def sign(self, purpose: Purpose, seconds: int) -> tuple[str, int]:
        """Return a value valid for ``seconds``, and its expiry in seconds since 1970.

        A password must be set.
        """
        assert self._signer is not None
        expires = self._clock.now_ms() // 1000 + seconds
        return self._signer.sign(purpose, expires), expires


def credentials(request: HTTPConnection) -> Literal["password", "session", "no_password"]:
    """Return the kind of credentials of a request, valid or not. ``session``: a cookie or token."""
    if "authorization" in request.headers:
        return "password"
    if COOKIE in request.cookies or request.query_params.get("token"):
        return "session"
    return "no_password"


def _is_local(request: HTTPConnection) -> bool:
    if request.client is None or any(name in request.headers for name in _NOT_LOCAL):
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
