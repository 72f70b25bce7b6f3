"""The two sides of access: reading, and changing something."""

import math
from collections.abc import Hashable

from starlette.requests import HTTPConnection

from oplogd.web.access.authentication import BASIC, REFUSED_TOKEN, SESSION, Authenticator
from oplogd.web.access.caller import ANY_READER, ANY_WRITER, Caller
from oplogd.web.access.carried import COOKIE, bearer, is_local
from oplogd.web.access.claims import Asked
from oplogd.web.access.keys.signing import Purpose, is_own
from oplogd.web.access.keys.tokens import TokenError
from oplogd.web.access.origin import is_from_elsewhere, is_from_page
from oplogd.web.access.right_bodies import require_bounded
from oplogd.web.access.rights import Right
from oplogd.web.http.problem import Problem


def require_own_page(side: Authenticator, request: HTTPConnection) -> None:
    """Raise Problem 403 for a page that may not change anything, while access is open.

    Pages of other origins cannot send a POST with the right type: no preflight allows it.
    """
    if not side.is_open or not is_from_page(request.headers):
        return
    if not side.has_own_host(request):
        raise Problem(
            403,
            "a web page may write only under localhost, an IP address,"
            " or a name of this agent that --allowed-hosts lists",
        )
    if request.scope["method"] == "GET" and is_from_elsewhere(request.headers):
        raise Problem(403, "a web page of another origin may not take a shard without a password")


class WriteAuthenticator(Authenticator):
    """Finds the client of a request that changes something.

    Without a password it refuses web pages under an unknown host name.
    """

    side = "writing"
    anybody = ANY_WRITER

    async def caller(self, request: HTTPConnection) -> Caller:
        """Return as ``Authenticator.caller``.

        Without a password, raise Problem 403 for a page under an unknown host name (``origin``).
        """
        require_own_page(self, request)
        return await super().caller(request)


class ReadAuthenticator(Authenticator):
    """Finds the client of a request that reads. Also accepts a valid cookie or token."""

    side = "reading"
    anybody = ANY_READER

    async def caller(self, request: HTTPConnection) -> Caller:
        """Return as ``Authenticator.caller``, also for a valid cookie or token."""
        signed = self._signed(request)
        if signed is not None:
            return signed
        try:
            return await super().caller(request)
        except Problem as problem:
            if problem.status == 401 and COOKIE in request.cookies:
                problem.headers.update(SESSION)
            if problem.status == 401 and request.query_params.get("token"):
                problem.detail = REFUSED_TOKEN
            raise

    async def mover(self, request: HTTPConnection) -> Caller:
        """Return the client of a request that moves or takes the position of a reader.

        Raises as ``caller``, and as ``require_own_page``.
        """
        require_own_page(self, request)
        return await self.caller(request)

    async def maker(self, request: HTTPConnection) -> Caller:
        """Return the client that asks for a token. Accept only a password or a JWT.

        A cookie, or a token that an agent has made, must not give its holder another one.
        """
        token = bearer(request.headers.get("authorization", ""))
        if token is not None and is_own(token):
            raise self.unauthorized(BASIC)
        return await super().caller(request)

    async def admitted(self, request: HTTPConnection) -> Caller | None:
        """Return the client if it may read, else None.

        Without a password, return None unless it is on this machine.
        """
        if self.is_open:
            return ANY_READER if is_local(request) and self.has_own_host(request) else None
        try:
            return await self.caller(request)
        except Problem:
            return None

    def is_valid(self, credential: Hashable) -> bool:
        """Return whether a credential still lets its holder read, with the same right."""
        return self.keeper.credentials.is_valid(credential)

    def _signed(self, request: HTTPConnection) -> Caller | None:
        """Return the client with the cookie or token of a request. None: it has no valid one."""
        credentials = self.keeper.credentials
        if credentials.is_open(self.side):
            return None
        now = self.now()
        cookie, token = request.cookies.get(COOKIE, ""), request.query_params.get("token", "")
        if is_own(cookie) and (found := credentials.signed(Purpose.COOKIE, cookie, now)):
            return found
        for value in ("" if is_own(cookie) else cookie, token):
            if value:
                try:
                    return credentials.token(value, now, self.side)
                except TokenError as refusal:
                    if self.is_closed:
                        self.note_refused(request, refusal)
        return None

    def sign(
        self, caller: Caller, purpose: Purpose, seconds: int, granted: Right | None = None
    ) -> tuple[str, int]:
        """Return a value valid for ``seconds``, and its expiry in seconds since 1970.

        It is not valid for longer than the credential of ``caller``, which is a password or a
        token in Authorization. ``granted``: its right; None: reading all that the caller may.
        Raises Problem 401 if this credential is gone, 403 for a right to nothing, 409 if its key
        cannot sign, and RightError for a right that is too large.
        """
        now = int(self.now())
        if granted is None and caller.until is not None:
            granted = caller.right.reading()
        if granted is not None and granted.leaves_nothing:
            raise Problem(403, "the client has no part of the right that it asks for")
        if granted is not None:
            require_bounded(granted)
        expires = int(min(now + seconds, caller.until or math.inf))
        asked = None if granted is None else Asked(granted, now)
        try:
            return self.keeper.credentials.sign(caller, purpose, expires, asked), expires
        except KeyError:
            raise self.unauthorized(SESSION) from None
        except TokenError as error:
            raise Problem(409, str(error)) from None
