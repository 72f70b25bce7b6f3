"""The arguments of both producers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from oplogc.http.address import Endpoint, check_proxy, is_udp, ops_endpoint
from oplogc.http.backoff import BACKOFF, Backoff
from oplogc.http.token import Token, token_source
from oplogc.producers.outbox import OVERFLOWS, Counters, OperationOutbox, Overflow

CLOSED = "the producer is closed"


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The arguments of a producer over HTTP. Raises ValueError."""

    endpoint: Endpoint
    proxy: str | None
    timeout: float
    batch_size: int
    max_buffered: int
    max_buffered_bytes: int
    overflow: Overflow
    block_timeout: float | None
    backoff: tuple[float, float]

    def __post_init__(self) -> None:
        check_proxy(self.proxy)
        if not self.timeout > 0:
            raise ValueError("timeout: give seconds, more than 0")
        if self.overflow not in OVERFLOWS:
            raise ValueError(f"overflow: {self.overflow!r} is none of {', '.join(OVERFLOWS)}")

    def outbox(self) -> OperationOutbox:
        backoff = Backoff(*self.backoff)
        return OperationOutbox(self.max_buffered, self.max_buffered_bytes, self.batch_size, backoff)


class Way(Protocol):
    def counters(self) -> Counters: ...


W = TypeVar("W", bound=Way)


class ProducerBase(Generic[W]):
    _udp: Callable[[str], W]
    _http: Callable[[ProducerOptions], W]

    def __init__(
        self,
        url: str = "udp://localhost:8042",
        *,
        password: str | None = None,
        token: Token | None = None,
        proxy: str | None = None,
        timeout: float = 30.0,
        batch_size: int = 1000,
        max_buffered: int = 10_000,
        max_buffered_bytes: int = 64 * 1024 * 1024,
        overflow: Overflow = "block",
        block_timeout: float | None = None,
        backoff: tuple[float, float] = BACKOFF,
    ) -> None:
        """``url``: ``udp://host:8042`` or ``http://host:8042``. The rest is for HTTP only.

        - ``password``: the agent's ingest password. User and password of the URL count, too.
        - ``token``: instead of a password. Or a function, plain or async, that returns a fresh
          token. It is called before the first request, and again if the agent refuses its token
          (401). If it fails, the operations wait and are tried again.
        - ``proxy``: the URL of an HTTP proxy. None: the environment's.
        - ``timeout``: seconds for a request in total. ``batch_size``: operations in a request at
          most.
        - ``max_buffered``, ``max_buffered_bytes``: limits of the buffer. ``overflow``: policy of
          ``send`` when the buffer is full: ``block`` (until there is room, at most
          ``block_timeout`` seconds, None: for ever), ``raise`` BufferFullError, ``drop_new`` or
          ``drop_old``. Dropped operations are counted.
        - ``backoff``: seconds between attempts, the first and the longest. They double, with
          jitter. A ``Retry-After`` of the agent is heeded.

        Raises ValueError for a bad argument.
        """
        self._way: W
        if is_udp(url):
            self._way = self._udp(url)
            return
        options = ProducerOptions(
            ops_endpoint(url, password, token_source(token, password=password)),
            proxy,
            timeout,
            batch_size,
            max_buffered,
            max_buffered_bytes,
            overflow,
            block_timeout,
            backoff,
        )
        self._way = self._http(options)

    @property
    def counters(self) -> Counters:
        """Return a copy of the counters."""
        return self._way.counters()
