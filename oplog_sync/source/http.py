"""Requests to the agents of a store, with the standard library only: they run in Spark's workers.

Agents on one store are equal. While one does not answer, the next one is asked.
"""

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from oplog_kit.command.convert import Secret
from oplog_sync.errors import AgentRefusedError, OptionError, SyncError, UnreachableError

# Longest silence of an agent. In a stream it sends a heartbeat at least every 25 s.
SILENCE_SECONDS = 60.0
# How long an answer may take. An agent without a store answers 503 earlier.
ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10.0

# The agent is away, busy, or its store is; a proxy answers for it.
_LATER = frozenset({408, 429, 500, 502, 503, 504})
_MAX_DETAIL = 300
_MAX_ANSWER = 64 << 20

_T = TypeVar("_T")


class Tls(NamedTuple):
    """PEM texts: of the authorities, and of the client's certificate and key. None: the usual."""

    authorities: str | None = None
    certificate: str | None = None
    key: Secret | None = None

    def context(self) -> ssl.SSLContext:
        """Raise OptionError if a text is no PEM."""
        try:
            context = ssl.create_default_context(cadata=self.authorities)
        except (ssl.SSLError, ValueError):
            raise OptionError("option caFile: the file does not hold certificates in PEM") from None
        if self.certificate is not None:
            # OpenSSL reads them from a file only. It has gone when this returns.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(self.certificate + "\n" + (self.key.reveal() if self.key else ""))
                file.flush()
                try:
                    context.load_cert_chain(file.name, password=lambda: "")
                except (ssl.SSLError, ValueError):
                    raise OptionError(
                        "option certFile: with keyFile it does not hold a certificate and its "
                        "private key in PEM, without a pass phrase"
                    ) from None
        return context


USUAL_TLS = Tls()


class Answer(NamedTuple):
    """``headers``: by their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of agents, separated by commas. Raises ValueError.

    No message repeats an address: a wrong one may hold a password.
    """
    found = []
    for number, address in enumerate((part.strip() for part in text.split(",")), 1):
        if "@" in address:
            raise ValueError(
                "an address may hold no user and no password, which Spark would show; "
                "give passwordFile or password"
            )
        try:
            parts = urlsplit(address)
            is_right = parts.scheme in ("http", "https") and bool(parts.hostname)
            (parts.hostname or "").encode("idna")
            is_right = is_right and parts.port != 0 and not (parts.query or parts.fragment)
        except ValueError:
            is_right = False
        if not is_right:
            raise ValueError(
                f"address {number} is not the address of an agent, such as http://host:8042"
            )
        found.append(address.rstrip("/"))
    return tuple(dict.fromkeys(found))


class Agents:
    """Asks the agents at ``addresses``, the first one as long as it answers.

    Keeps one connection for requests. Can be pickled: then it connects anew.
    """

    def __init__(self, addresses: Sequence[str], password: str | None = None, tls: Tls = USUAL_TLS):
        self._addresses = tuple(addresses)
        self._password = None if password is None else Secret(password)
        self._tls = tls
        if any(address.startswith("https:") for address in addresses):
            tls.context()  # a wrong file is found on the driver
        elif tls != USUAL_TLS:
            raise OptionError("option caFile, certFile: they are for https:// addresses")
        self._first = 0
        self._kept: tuple[str, http.client.HTTPConnection] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Return the answer of the first agent that gives one. ``body``: bytes, or sent as JSON.

        Raises UnreachableError if none does now, and AgentRefusedError if an agent refuses the
        request.
        """
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        return self._each(lambda address: self._asked(address, method, path, body, sent))

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """Yield the open answer of an agent, on a connection of its own.

        An error of the connection in the block is UnreachableError, and the next stream begins at
        another agent.
        """
        address, connection, response = self._each(lambda each: self._opened(each, path, headers))
        try:
            yield response
        except (OSError, http.client.HTTPException) as error:
            self._first = (self._addresses.index(address) + 1) % len(self._addresses)
            raise UnreachableError(
                f"agent {address}: its stream broke off: {_of(error)}"
            ) from error
        finally:
            response.close()
            connection.close()

    @property
    def answered(self) -> str:
        """The address of the agent that gave the last answer."""
        return self._addresses[self._first]

    def close(self) -> None:
        if self._kept is not None:
            self._kept[1].close()
            self._kept = None

    def _each(self, call: Callable[[str], _T]) -> _T:
        faults: list[str] = []
        for number in range(len(self._addresses)):
            at = (self._first + number) % len(self._addresses)
            try:
                result = call(self._addresses[at])
            except UnreachableError as error:
                faults.append(str(error))
            else:
                self._first = at
                return result
        raise UnreachableError("; ".join(faults))

    def _asked(
        self, address: str, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> Answer:
        kept = self._kept
        if kept is not None and kept[0] == address:
            # An agent closes a connection after a while of silence: that is no fault.
            with suppress(OSError, http.client.HTTPException):
                return self._answer(kept[1], address, method, path, body, headers)
        self.close()
        try:
            connection = self._connect(address, ANSWER_SECONDS)
            self._kept = address, connection
            return self._answer(connection, address, method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _unreachable(address, error) from error

    def _answer(
        self,
        connection: http.client.HTTPConnection,
        address: str,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> Answer:
        connection.request(method, self._path(address, path), body, self._headers(headers))
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.headers.items()}
        answer = Answer(response.status, named, response.read(_MAX_ANSWER))
        _judge(address, response, answer.body)
        return answer

    def _opened(
        self, address: str, path: str, headers: Mapping[str, str]
    ) -> tuple[str, http.client.HTTPConnection, http.client.HTTPResponse]:
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._connect(address, SILENCE_SECONDS)
            connection.request("GET", self._path(address, path), None, self._headers(headers))
            response = connection.getresponse()
            if response.status != 200:
                _judge(address, response, response.read(_MAX_ANSWER))
        except (OSError, http.client.HTTPException) as error:
            if connection is not None:
                connection.close()
            raise _unreachable(address, error) from error
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return address, connection, response

    def _connect(self, address: str, seconds: float) -> http.client.HTTPConnection:
        url = urlsplit(address)
        assert url.hostname is not None
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(
                url.hostname, url.port, timeout=CONNECT_SECONDS, context=self._tls.context()
            )
        else:
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=CONNECT_SECONDS)
        connection.connect()
        connection.sock.settimeout(seconds)
        return connection

    def _path(self, address: str, path: str) -> str:
        return urlsplit(address).path.rstrip("/") + path

    def _headers(self, given: Mapping[str, str]) -> dict[str, str]:
        if self._password is None:
            return dict(given)
        credentials = base64.b64encode(b":" + self._password.reveal().encode()).decode()
        return {**given, "Authorization": f"Basic {credentials}"}


def _judge(address: str, response: http.client.HTTPResponse, body: bytes) -> None:
    """Raise an error unless the answer is a success."""
    if response.status < 300:
        return
    detail = ""
    with suppress(ValueError, AttributeError):
        detail = str(json.loads(body).get("detail") or "")[:_MAX_DETAIL]
    what = f"it answered {response.status} {response.reason}{f': {detail}' if detail else ''}"
    fault = f"agent {address}: {what}"
    if response.status in _LATER:
        raise UnreachableError(fault)
    if response.status == 401:
        fault += "; give its password in passwordFile or password"
    raise AgentRefusedError(fault, response.status)


def _unreachable(address: str, error: Exception) -> SyncError:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is refused: {error.verify_message}"
        return SyncError(f"agent {address}: {reason}; give the authority's in caFile")
    return UnreachableError(f"agent {address}: it does not answer: {_of(error)}")


def _of(error: Exception) -> str:
    return str(error) or type(error).__name__
