"""Authentication of requests.

Passwords come by HTTP Basic. The user name of a principal chooses its password. Any other name
stands for the shared password, because clients of the first server send any name. Tokens come as
Bearer. Reading is also possible with a cookie, or with a token in the URL.
"""

import logging
import math
from collections.abc import Collection
from ctypes import c_int64
from functools import partial
from typing import ClassVar

from starlette.requests import HTTPConnection

from oplogd.clock import Clock
from oplogd.host.logs import Episode
from oplogd.host.senders import SenderEpisodes
from oplogd.web.access.caller import Caller
from oplogd.web.access.carried import Given, basic, bearer
from oplogd.web.access.credentials import Credentials, Side
from oplogd.web.access.guesses.attempts import AttemptLimiter
from oplogd.web.access.guesses.shared_attempts import Limiter, SharedAttempts
from oplogd.web.access.keeper import Keeper
from oplogd.web.access.keys.signing import is_own
from oplogd.web.access.keys.tokens import TokenError
from oplogd.web.access.origin import is_own_host
from oplogd.web.http.plain import PlainRequest
from oplogd.web.http.problem import Problem
from oplogd.workers.workers import Workers

REFUSED_TOKEN = "the token is invalid or has expired; get a new one"

BASIC = {"WWW-Authenticate": 'Basic realm="oplog", charset="UTF-8"'}

_BEARER = {"WWW-Authenticate": 'Bearer realm="oplog", error="invalid_token"'}

# For browsers with our cookie: with Basic a browser would open its own dialog over the page's form.
SESSION = {"WWW-Authenticate": 'OplogSession realm="oplog"'}

_QUIET_SECONDS = 60.0

logger = logging.getLogger("oplogd.password")


class Authenticator:
    """Finds the client of a request. While no credential is needed, every request passes.

    No message holds a password. ``side``: also names the protected thing in messages. ``workers``:
    they limit guesses together; None: there is one process.
    """

    side: ClassVar[Side]
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
        """``refused`` counts requests refused for their password or token."""
        self._clock = clock
        self.keeper = keeper
        self._allowed_hosts = allowed_hosts
        workers = workers or Workers()
        self._limiter: Limiter
        if workers.count == 1:
            self._limiter = AttemptLimiter(clock.monotonic)
        else:
            cells = workers.secret_of(f"{self.side}: cells of networks")
            journal = workers.attempts[self.side]
            self._limiter = SharedAttempts(journal, cells, clock.monotonic)
        refusing = partial(
            SenderEpisodes, logger, quiet=_QUIET_SECONDS, clock=clock.monotonic, counted=refused
        )
        self._refused = refusing(f"{self.side}: refusing passwords from")
        self._refused_tokens = refusing(f"{self.side}: refusing tokens from")
        self._guessing = Episode(
            logger, f"{self.side}: too many wrong passwords", quiet=_QUIET_SECONDS
        )

    @property
    def refused(self) -> int:
        """Return the number of requests refused for their password or token."""
        return self._refused.count

    @property
    def is_open(self) -> bool:
        """Return whether no credential is needed."""
        return self.keeper.credentials.is_open(self.side)

    @property
    def is_closed(self) -> bool:
        """Return whether there are clients with rights of their own: principals and tokens."""
        return self.keeper.credentials.is_closed

    @property
    def has_principals(self) -> bool:
        return self.keeper.credentials.has_principals

    async def caller(self, request: HTTPConnection) -> Caller:
        """Return the client of a request.

        Raise Problem 401 unless it carries a valid password or token. Raise Problem 429 after too
        many wrong passwords from its address, 503 while too many passwords wait for their check.
        """
        if self.is_open:
            return self.anybody
        authorization = request.headers.get("authorization", "")
        token = bearer(authorization)
        if token is not None and (self.is_closed or is_own(token)):
            return self.with_token(request, token)
        given = basic(authorization)
        if given is None:
            raise self.unauthorized(BASIC)
        return await self.check_password(request, given, BASIC)

    async def check_password(
        self, request: HTTPConnection, given: Given, challenge: dict[str, str] = SESSION
    ) -> Caller:
        """Return the client with this password. Raise the Problems of ``caller``."""
        credentials = self.keeper.credentials
        address = request.client.host if request.client else ""
        attempt, found = self._known(credentials, given)
        if found is None:
            allow = partial(self._allow, address, attempt)
            found = (await self.keeper.checks.run(credentials, attempt, given, allow),)
        (caller,) = found
        if wait := self._limiter.judge(address, attempt, is_right=caller is not None):
            raise self._too_many(address, wait)
        if caller is not None:
            self._succeeded()
            return caller
        self._refused.occurred(address, "it is wrong")
        raise self.unauthorized(challenge)

    def plain_caller(self, request: PlainRequest) -> Caller | None:
        """Return the client of a request of the short way, None if ``caller`` must find it.

        Counts nothing in that case.
        """
        credentials = self.keeper.credentials
        if credentials.is_open(self.side):
            return self.anybody
        if b"token=" in request.query or b"%" in request.query:
            return None  # which of the two counts is the business of ``caller``
        authorization = request.headers.get(b"authorization", b"").decode("latin-1")
        if (token := bearer(authorization)) is not None:
            return credentials.known_token(token, self.now(), self.side)
        given = basic(authorization)
        if given is None:
            return None
        attempt, found = self._known(credentials, given)
        if found is None or found[0] is None:
            return None
        if self._limiter.judge(request.address, attempt, is_right=True):
            return None
        self._succeeded()
        return found[0]

    def with_token(self, request: HTTPConnection, token: str) -> Caller:
        """Return the client with a token. Raise Problem 401 if it is refused."""
        try:
            return self.keeper.credentials.token(token, self.now(), self.side)
        except TokenError as refusal:
            self.note_refused(request, refusal)
            raise Problem(401, REFUSED_TOKEN, _BEARER) from None

    def note_refused(self, request: HTTPConnection, refusal: TokenError) -> None:
        """Count a refused token. The first of an address and episode is logged with its reason."""
        self._refused_tokens.occurred(request.client.host if request.client else "", str(refusal))

    def require_still(self, caller: Caller) -> None:
        """Raise Problem 401 if the credential of a client has ended since it was found.

        Call it after a wait for a body, which may take long.
        """
        if caller.is_over(self.now()) or not self.keeper.credentials.is_valid(caller.credential):
            raise self.unauthorized(SESSION)

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock.now_ms() / 1000

    def _known(
        self, credentials: Credentials, given: Given
    ) -> tuple[bytes, tuple[Caller | None] | None]:
        """Return what stands for a password, and the client with it if that costs no check."""
        if not credentials.is_principal(given.user):
            attempt = self.keeper.digest(given.password)
            caller = credentials.shared[self.side].get(attempt)
            if caller is not None or not credentials.has_principals:
                return attempt, (caller,)
        # A guess under another name is another guess, whether it is a principal's or not.
        attempt = self.keeper.digest(given.password, given.user)
        return attempt, credentials.verdict(attempt)

    def _allow(self, address: str, attempt: bytes) -> None:
        """Raise Problem 429 after too many wrong passwords from an address."""
        if wait := self._limiter.wait_seconds(address, attempt):
            raise self._too_many(address, wait)

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

    def unauthorized(self, challenge: dict[str, str]) -> Problem:
        """Return the refusal of a request without a credential, or with a wrong password."""
        credentials = self.keeper.credentials
        if not (credentials.has_principals or credentials.shared[self.side]):
            return Problem(401, f"{self.side} needs a token: Authorization: Bearer", challenge)
        users = "the name of a principal, or any" if credentials.has_principals else "any"
        tokens = ", or a token: Authorization: Bearer" if credentials.takes_tokens else ""
        return Problem(
            401,
            f"{self.side} needs the password: HTTP Basic authentication with {users} user name"
            f"{tokens}",
            challenge,
        )

    def has_own_host(self, request: HTTPConnection) -> bool:
        """Return whether a request came to a name of this agent."""
        return is_own_host(request.headers.getlist("host"), self._allowed_hosts)
