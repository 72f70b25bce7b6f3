"""HTTP requests of synchronous code, one after another, each with a bound for its time."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

import httpx

from oplog_kit.tls import tls_context
from oplog_pipe.errors import SinkError
from oplog_pipe.model.options import TlsOptions
from oplogc.http.address import Endpoint, base_endpoint, shown
from oplogc.http.answers import Answer
from oplogc.http.client import Http, NoAnswer

# Idle connections are closed before the server does so: a request at that moment has no answer.
_IDLE_SECONDS = 3.0
# An answer to a bulk request may have 300 bytes per item.
_MAX_ANSWER_BYTES = 64_000_000
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?|")


def check_headers(headers: Mapping[str, str], setting: str) -> None:
    """Raise ValueError, which names the setting, for an invalid header.

    The HTTP client would tell the value, which may be a secret.
    """
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{setting}: {name!r} is no name of a header")
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"{setting}: the value of {name} must be printable ASCII, without white space at"
                " its ends"
            )


class Requests:
    """Sends requests. ``timeout``: seconds for one, its answer included.

    Of an answer ``max_bytes`` are read. Raises ValueError for an unusable file.
    """

    def __init__(self, tls: TlsOptions, timeout: float, max_bytes: int) -> None:
        self._http = Http(
            None,
            timeout,
            max_bytes,
            verify=tls_context(tls.ca_file, tls.cert_file, tls.key_file),
            limits=httpx.Limits(keepalive_expiry=_IDLE_SECONDS),
        )
        self._runner = asyncio.Runner()
        self._closed = False

    def ask(
        self, method: str, to: Endpoint, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer | NoAnswer:
        return self._runner.run(self._http.ask(method, to, body, dict(headers)))

    def close(self) -> None:
        """Close the connections. Nothing can be sent any more."""
        if not self._closed:
            self._closed = True
            self._runner.run(self._http.aclose())
            self._runner.close()


class Calls:
    """Sends requests to the present one of several servers.

    ``timeout``: seconds for a request, its answer included. ``user``, ``password``: take precedence
    over an address. Raises ValueError for an address or an unusable file.
    """

    def __init__(
        self,
        urls: Sequence[str],
        tls: TlsOptions,
        timeout: float,
        *,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        if not urls:
            raise ValueError("give at least one address")
        auth = basic_auth(user, password)
        bases = [base_endpoint(url, None) for url in urls]
        self._bases = [each._replace(auth=auth or each.auth) for each in bases]
        self._present = 0
        self._requests = Requests(tls, timeout, _MAX_ANSWER_BYTES)

    @property
    def server(self) -> str:
        """Return the address of the present server, as it may be shown."""
        return shown(self._bases[self._present].url)

    def first_answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        fault: Callable[[Answer], str | None],
    ) -> Answer:
        """Send a request to one server after the other until one answers without a fault.

        ``path``: escaped, with its query. ``fault``: returns the reason to ask the next server;
        None: none. Raises SinkError after the last server.
        """
        reason: str | None = None
        for _ in self._bases:
            base = self._bases[self._present]
            raw_path = base.url.raw_path.partition(b"?")[0].rstrip(b"/") + path.encode()
            to = base._replace(url=base.url.copy_with(raw_path=raw_path))
            answer = self._requests.ask(method, to, body, headers)
            if isinstance(answer, NoAnswer):
                reason = answer.reason
            elif (reason := fault(answer)) is None:
                return answer
            reason = f"{self.server}: {reason}"
            self._present = (self._present + 1) % len(self._bases)
        raise SinkError(str(reason), transient=True)

    def close(self) -> None:
        self._requests.close()


def basic_auth(user: str | None, password: str | None) -> httpx.BasicAuth | None:
    if user is None and password is None:
        return None
    return httpx.BasicAuth(user or "", password or "")
