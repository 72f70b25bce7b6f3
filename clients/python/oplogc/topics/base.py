"""The arguments of both clients of topics."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

from oplogc.http.address import agent_urls
from oplogc.http.backoff import BACKOFF
from oplogc.http.token import Token
from oplogc.topics.calls.agents import ClientOptions
from oplogc.topics.calls.topics import READ_COMMITTED, Isolation
from oplogc.topics.consumer import TopicConsumer


class TopicsBase:
    def __init__(
        self,
        url: str | Sequence[str] = "http://localhost:8042",
        *,
        password: str | None = None,
        ingest_password: str | None = None,
        token: Token | None = None,
        proxy: str | None = None,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        backoff: tuple[float, float] = BACKOFF,
        batch_size: int = 1000,
        max_buffered: int = 100_000,
        max_buffered_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """``url``: an agent, or a list of agents on the same store. A request goes to the next
        agent when one is unreachable or busy.

        - ``password``: for reading. It overrides user and password of the URL.
          ``ingest_password``: for publishing, creating, changing, deleting and transactions. None:
          the same.
        - ``token``: instead of passwords. Or a function, plain or async, that returns a fresh
          token. It is called before the first request, again if an agent refuses its token (401),
          and before each connection of a stream. A request raises its errors. A plain function
          holds up other requests.
        - ``proxy``: URL of an HTTP proxy. None: the environment's.
        - ``timeout``: seconds for one attempt in total. ``retry_for``: seconds for all attempts of
          a call. ``backoff``: seconds between attempts, the first and the longest. They double,
          with jitter. A ``Retry-After`` of the agent is heeded.
        - ``batch_size``: messages in a request at most, unless one call has more.
        - ``max_buffered``, ``max_buffered_bytes``: limits of the messages in the buffer.

        Raises ValueError for a bad argument.
        """
        self._options = ClientOptions(
            agent_urls(url),
            password,
            ingest_password,
            proxy,
            timeout,
            retry_for,
            backoff,
            batch_size,
            max_buffered,
            max_buffered_bytes,
            token,
        )
        self._begin()

    @classmethod
    def _of(cls, options: ClientOptions) -> Self:
        """Return a client with these arguments."""
        made = cls.__new__(cls)
        made._options = options
        made._begin()
        return made

    def _begin(self) -> None:
        """Make the parts of a client without buffered messages."""
        raise NotImplementedError

    def stream(
        self,
        topic: str,
        *,
        start: str | datetime | None = None,
        isolation: Isolation = READ_COMMITTED,
        shard: str | None = None,
        name: str | None = None,
        state_file: str | Path | None = None,
        heartbeat_timeout: float = 40.0,
        save_interval: float = 1.0,
        max_unacked: int = 10_000,
    ) -> TopicConsumer:
        """Follow a topic with the address and password of this object, see ``TopicConsumer``."""
        options = self._options
        return TopicConsumer(
            options.urls,
            topic,
            start=start,
            isolation=isolation,
            shard=shard,
            name=name,
            state_file=state_file,
            password=options.password,
            token=options.token,
            proxy=options.proxy,
            timeout=options.timeout,
            heartbeat_timeout=heartbeat_timeout,
            backoff=options.backoff,
            save_interval=save_interval,
            max_unacked=max_unacked,
        )
