"""An agent that takes tokens, and the application that signs them."""

import time
from collections.abc import Callable
from pathlib import Path

import jwt

from tests.kits.agents.agent import Agent
from tests.kits.clock.moved import MovedAgent, MovedClock

SECRET = "a secret of more than 32 bytes, for tests"
ALL = {"read": ["*"], "write": ["*"], "manage": ["*"], "leases": ["*"]}
LIFE = 600
"""Seconds of a token."""


class Issuer:
    """Signs tokens by the clock of its agent. Call it for a fresh token."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = MovedClock(folder)
        self._passed = 0.0
        self._planned: list[float | Exception] = []
        self.given: list[str] = []
        """The tokens, and "" for each failure."""
        self.between: Callable[[], None] = lambda: None
        """Called before a second token is given: a client has no stream then."""

    def agent(self) -> Agent:
        key = self._folder / "key"
        key.write_text(SECRET)
        return MovedAgent(self._folder, "--token-key", str(key), environ=self._clock.environ)

    def token(self, seconds: float = LIFE) -> str:
        """Return a token that ends after these seconds. Below 0: it has ended."""
        ends = time.time() + self._passed + seconds
        return jwt.encode({"exp": ends, "oplog": ALL}, SECRET, "HS256")

    def plan(self, *planned: float | Exception) -> None:
        """Give tokens that end after so many seconds, or fail so, at the next calls."""
        self._planned += planned

    def __call__(self) -> str:
        if len(self.given) == 1:
            self.between()
        planned = self._planned.pop(0) if self._planned else LIFE
        if isinstance(planned, Exception):
            self.given.append("")
            raise planned
        self.given.append(self.token(planned))
        return self.given[-1]

    async def later(self) -> str:
        """Return a fresh token, as an async function."""
        return self()

    def end_tokens(self) -> None:
        """Let the life of all tokens pass."""
        self._clock.move(LIFE)
        self._passed += LIFE

    def authorize(self) -> dict[str, str]:
        """Return the headers of a request."""
        return {"Authorization": f"Bearer {self.token()}"}

    def shows_none(self, text: str) -> bool:
        """Return whether a text shows no token."""
        return not any(part in text for token in self.given if token for part in token.split("."))
