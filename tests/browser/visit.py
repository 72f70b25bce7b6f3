"""A visit of a browser to a page. Records errors and requests to other hosts."""

import re
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Page, Request, Response, ViewportSize

from tests.kits.agents.agent import DEADLINE

# Host name that resolves to this machine, as after DNS rebinding.
REBOUND = "rebound.example"

ARGUMENTS = [
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--in-process-gpu",
    # Fewer processes: pages of one site share a renderer, and none is started in advance.
    "--renderer-process-limit=1",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {
    "desktop": ViewportSize(width=1280, height=800),
    "phone": ViewportSize(width=390, height=844),
}


class Visit:
    """``page`` once entered. ``check`` fails on errors in the console and on requests to other
    hosts.
    """

    page: Page

    def __init__(self, browser: Browser, **context: Any) -> None:
        self._browser = browser
        self._options = {"viewport": SIZES["desktop"], **context}
        self._errors: list[str] = []
        self._hosts: set[str] = set()
        # Allowed targets of requests, as host:port. ``open`` adds its own.
        self.hosts: set[str] = set()

    async def open(self, url: str) -> Page:
        self.hosts.add(urlsplit(url).netloc)
        await self.page.goto(url)
        return self.page

    async def leave(self) -> None:
        """Close the page, before its agent stops and causes errors in the console."""
        await self.page.close()

    def forgive(self, pattern: str) -> int:
        """Remove the errors with these words. Return their number."""
        before = len(self._errors)
        self._errors = [error for error in self._errors if not re.search(pattern, error)]
        return before - len(self._errors)

    def check(self) -> None:
        assert self._errors == []
        assert self._hosts <= self.hosts

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._errors.append(f"{message.text} ({message.location.get('url')})")

    def _on_response(self, response: Response) -> None:
        if response.headers.get("www-authenticate", "").startswith("Basic"):
            self._errors.append(
                f"the browser asks for a password in a dialog of its own ({response.url})"
            )

    def _on_request(self, request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme != "data":
            self._hosts.add(where.netloc)

    async def __aenter__(self) -> Self:
        self._context = await self._browser.new_context(**self._options)
        self._context.set_default_timeout(DEADLINE * 1000)
        self._context.on("request", self._on_request)
        self._context.on("response", self._on_response)
        self._context.on("console", self._on_console)
        self._context.on("weberror", lambda error: self._errors.append(str(error.error)))
        self.page = await self._context.new_page()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._context.close()
