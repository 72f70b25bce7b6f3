"""Authentication of requests.

Passwords come by HTTP Basic. The user name of a principal chooses its password. Any other name
stands for the shared password, because clients of the first server send any name. Reading is also
possible with a signed cookie or token, which a client gets for the password.
"""

import logging
import math
from collections.abc import Collection, Hashable
from ctypes import c_int64
from typing import ClassVar

from starlette.requests import HTTPConnection

from oplogd.clock import Clock
from oplogd.host.logs import Episode
from oplogd.host.senders import SenderEpisodes
from oplogd.web.access.attempts import AttemptLimiter
from oplogd.web.access.caller import ANY_READER, ANY_WRITER, Caller
from oplogd.web.access.carried import COOKIE, Given, basic, is_local
from oplogd.web.access.credentials import Credentials, Subject
from oplogd.web.access.keeper import Keeper
from oplogd.web.access.origin import is_from_page, is_own_host
from oplogd.web.access.shared_attempts import Limiter, SharedAttempts
from oplogd.web.access.signing import Purpose
from oplogd.web.http.plain import PlainRequest
from oplogd.web.http.problem import Problem
from oplogd.workers.workers import Workers

COOKIE_SECONDS = 8 * 3600
TOKEN_SECONDS = 15 * 60

_BASIC = {"WWW-Authenticate": 'Basic realm="oplog", charset="UTF-8"'}

# For browsers with our cookie: with Basic a browser would open its own dialog over the page's form.
_SESSION = {"WWW-Authenticate": 'OplogSession realm="oplog"'}

_QUIET_SECONDS = 60.0

logger = logging.getLogger("oplogd.password")


class Authenticator:
    """Finds the client of a request. While no credential is needed, every request passes.

    No message holds a password. ``subject`` names the protected thing in messages. ``workers``:
    they limit guesses together; None: there is one process.
    """

    subject: ClassVar[Subject]
    anybody: ClassVar[Caller]

    def __init__(
        self,
        keeper: Keeper,
        allowed_hosts: Collection[str],
        clock: Clock,
        refused: c_int64 | None = None,
        *,
        workers: Workers | None = None,
    ) -> None:
        """``refused`` counts requests refused for their password."""
        self._clock = clock
        self._keeper = keeper
        self._allowed_hosts = allowed_hosts
        workers = workers or Workers()
        self._limiter: Limiter
        if workers.count == 1:
            self._limiter = AttemptLimiter(clock.monotonic)
        else:
            cells = workers.secret_of(f"{self.subject}: cells of networks")
            journal = workers.attempts[self.subject]
            self._limiter = SharedAttempts(journal, cells, clock.monotonic)
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
        """Return whether no credential is needed."""
        return self._keeper.credentials.is_open(self.subject)

    async def caller(self, request: HTTPConnection) -> Caller:
        """Return the client of a request.

        Raise Problem 401 unless it carries a password. Raise Problem 429 after too many wrong
        passwords from its address.
        """
        if self.is_open:
            return self.anybody
        given = basic(request.headers.get("authorization", ""))
        if given is None:
            raise self._unauthorized(_BASIC)
        return await self.check_password(request, given, _BASIC)

    async def check_password(
        self, request: HTTPConnection, given: Given, challenge: dict[str, str] = _SESSION
    ) -> Caller:
        """Return the client with this password. Raise the Problems of ``caller``."""
        credentials = self._keeper.credentials
        address = request.client.host if request.client else ""
        attempt, found = self._known(credentials, given)
        if found is None:
            if wait := self._limiter.wait_seconds(address, attempt):
                raise self._too_many(address, wait)
            check = self._keeper.checks.run
            found = (await check(credentials, attempt, given.user, given.password),)
        (caller,) = found
        if wait := self._limiter.judge(address, attempt, is_right=caller is not None):
            raise self._too_many(address, wait)
        if caller is not None:
            self._succeeded()
            return caller
        self._refused.occurred(address, "it is wrong")
        raise self._unauthorized(challenge)

    def plain_caller(self, request: PlainRequest) -> Caller | None:
        """Return the client of a request of the short way, None if ``caller`` must find it.

        Counts nothing in that case.
        """
        credentials = self._keeper.credentials
        if credentials.is_open(self.subject):
            return self.anybody
        given = basic(request.headers.get(b"authorization", b"").decode("latin-1"))
        if given is None:
            return None
        attempt, found = self._known(credentials, given)
        if found is None or found[0] is None:
            return None
        if self._limiter.judge(request.address, attempt, is_right=True):
            return None
        self._succeeded()
        return found[0]

    def _known(
        self, credentials: Credentials, given: Given
    ) -> tuple[bytes, tuple[Caller | None] | None]:
        """Return what stands for a password, and its caller if that costs no check."""
        is_principal = credentials.is_principal(given.user)
        name = given.user if is_principal else ""
        attempt = self._keeper.digest(given.password, name)
        if not is_principal:
            caller = credentials.shared[self.subject].get(attempt)
            if caller is not None or not credentials.has_principals:
                return attempt, (caller,)
        return attempt, credentials.verdict(attempt)

    def _too_many(self, address: str, wait: float) -> Problem:
        self._refused.occurred(address, "too many wrong ones")
        self._guessing.occurred(
            detail=f"passwords from {address or 'an unknown address'} are not checked"
            f" for {wait:.0f} s"
        )
        return Problem(
            429,
            "too many wrong passwords came from this address or from others; try again later",
            {"Retry-After": str(math.ceil(wait))},
        )

    def _succeeded(self) -> None:
        self._guessing.end()
        self._refused.ended()

    def _unauthorized(self, challenge: dict[str, str]) -> Problem:
        users = (
            "the name of a principal, or any" if self._keeper.credentials.has_principals else "any"
        )
        return Problem(
            401,
            f"{self.subject} needs the password: HTTP Basic authentication with {users} user name",
            challenge,
        )

    def _has_own_host(self, request: HTTPConnection) -> bool:
        return is_own_host(request.headers.getlist("host"), self._allowed_hosts)


class WriteAuthenticator(Authenticator):
    """Finds the client of a request that changes something.

    Without a password it refuses web pages under an unknown host name.
    """

    subject = "writing"
    anybody = ANY_WRITER

    async def caller(self, request: HTTPConnection) -> Caller:
        """Return as ``Authenticator.caller``.

        Without a password, raise Problem 403 for a page under an unknown host name (``origin``).
        """
        if self.is_open and is_from_page(request.headers) and not self._has_own_host(request):
            raise Problem(
                403,
                "a web page may write only under localhost, an IP address,"
                " or a name of this agent that --allowed-hosts lists",
            )
        return await super().caller(request)


class ReadAuthenticator(Authenticator):
    """Finds the client of a request that reads. Also accepts a valid cookie or token."""

    subject = "reading"
    anybody = ANY_READER

    async def caller(self, request: HTTPConnection) -> Caller:
        """Return as ``Authenticator.caller``, also for a valid cookie or token."""
        signed = self.signed(request)
        if signed is not None:
            return signed
        try:
            return await super().caller(request)
        except Problem as problem:
            if problem.status == 401 and COOKIE in request.cookies:
                problem.headers.update(_SESSION)
            if problem.status == 401 and request.query_params.get("token"):
                problem.detail = "the token is invalid or has expired; get a new one"
            raise

    @property
    def is_closed(self) -> bool:
        """Return whether there are clients with different rights to read."""
        return self._keeper.credentials.is_closed

    async def with_password(self, request: HTTPConnection) -> Caller:
        """Accept only the password: a cookie or token must not give its holder another one."""
        return await super().caller(request)

    async def admitted(self, request: HTTPConnection) -> Caller | None:
        """Return the client if it may read, else None.

        Without a password, return None unless it is on this machine.
        """
        if self.is_open:
            return ANY_READER if is_local(request) and self._has_own_host(request) else None
        try:
            return await self.caller(request)
        except Problem:
            return None

    def is_valid(self, credential: Hashable) -> bool:
        """Return whether a credential still lets its holder read, with the same right."""
        return self._keeper.credentials.is_valid(credential)

    def signed(self, request: HTTPConnection) -> Caller | None:
        """Return the client with the cookie or token of a request. None: it has no valid one."""
        credentials = self._keeper.credentials
        if credentials.is_open(self.subject):
            return None
        now = self._clock.now_ms() / 1000
        cookie = request.cookies.get(COOKIE, "")
        token = request.query_params.get("token", "")
        return credentials.signed(Purpose.COOKIE, cookie, now) or credentials.signed(
            Purpose.TOKEN, token, now
        )

    def sign(self, caller: Caller, purpose: Purpose, seconds: int) -> tuple[str, int]:
        """Return a value valid for ``seconds``, and its expiry in seconds since 1970.

        ``caller``: it gave its password. Raises Problem 401 if this is gone.
        """
        expires = self._clock.now_ms() // 1000 + seconds
        try:
            return self._keeper.credentials.sign(caller, purpose, expires), expires
        except KeyError:
            raise self._unauthorized(_SESSION) from None
