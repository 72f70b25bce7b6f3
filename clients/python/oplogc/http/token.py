"""Tokens of requests, and the functions that give them. No message shows a token."""

import re
from collections.abc import Awaitable, Callable, Generator
from inspect import isawaitable

import httpx

Token = str | Callable[[], str | Awaitable[str]]
"""A token, or a function, plain or async, that returns a fresh one."""

_TOKEN = re.compile(r"[!-~]+", re.ASCII)


class Bearer(httpx.Auth):
    """Sends one token. Raises ValueError unless it is text that a header can hold."""

    def __init__(self, token: object) -> None:
        text = token.strip() if isinstance(token, str) else ""
        if not _TOKEN.fullmatch(text):
            raise ValueError("token: give printable ASCII text without a space")
        self._header = f"Bearer {text}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = self._header
        yield request


class TokenSource:
    """Gives the token of each request. Raises ValueError for a bad token.

    For one event loop at a time. Calls raise the errors of the function, and ValueError if it
    returns no token.
    """

    def __init__(self, given: Token) -> None:
        self._function = given if callable(given) else None
        self._last = None if callable(given) else Bearer(given)

    @property
    def is_function(self) -> bool:
        """Whether there may be another token after a refusal."""
        return self._function is not None

    async def current(self, refused: Bearer | None = None) -> Bearer:
        """Return the last token, unless there is none yet or it is the ``refused`` one."""
        if self._last is None or self._last is refused:
            return await self.fresh()
        return self._last

    async def fresh(self) -> Bearer:
        """Call the function, and return its token. Without a function return the only token."""
        if self._function is not None:
            given = self._function()
            self._last = Bearer(await given if isawaitable(given) else given)
        assert self._last is not None
        return self._last


def token_source(token: Token | None, **passwords: str | None) -> TokenSource | None:
    """Return the source of a token. ``passwords``: those that exclude it, by option.

    Raises ValueError for a bad token, and for both a token and a password.
    """
    if token is None:
        return None
    for option, password in passwords.items():
        if password:
            raise ValueError(f"token and {option} exclude each other: give one of them")
    return TokenSource(token)
