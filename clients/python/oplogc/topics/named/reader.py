"""The reader of one shard of a named consumer, without its acknowledgements' event loop."""

import math
import re
from collections.abc import Mapping, Sequence

from oplogc.follow.following import Following, FollowOptions
from oplogc.follow.format import StreamFormat
from oplogc.follow.stream import DisconnectedError
from oplogc.http.address import Endpoint, agent_urls, base_endpoint, below
from oplogc.http.token import Token, token_source
from oplogc.topics import consumer as messages
from oplogc.topics.calls import consumers
from oplogc.topics.calls.agents import ClientOptions
from oplogc.topics.calls.topics import refused
from oplogc.topics.messages.message import ReceivedMessage
from oplogc.topics.named.acknowledger import Acknowledger, stale
from oplogc.wire import events
from oplogc.wire.errors import OplogError, RefusedError
from oplogc.wire.events import Checkpoint, Event
from oplogc.wire.shard import SHARD
from oplogc.wire.sse import Block

TERM = "oplog-term"
NamedEvent = Event | ReceivedMessage
_MESSAGE_DIGITS = 40
_NO_POSITION = re.compile(r"(?!)")


class NamedReader(Following[NamedEvent]):
    """The part of ``NamedConsumer`` and ``AsyncNamedConsumer`` that they have in common."""

    def __init__(
        self,
        url: str | Sequence[str],
        name: str,
        shard: int,
        ack_seconds: float,
        password: str | None,
        token: Token | None,
        proxy: str | None,
        timeout: float,
        heartbeat_timeout: float,
        backoff: tuple[float, float],
    ) -> None:
        path = f"{consumers.path(name)}/stream"
        number = consumers.check_number(shard)
        if math.isnan(ack_seconds) or ack_seconds < 0:
            raise ValueError("ack_seconds: give seconds, 0 or more")
        source = token_source(token, password=password)
        urls = agent_urls(url)
        endpoints = [below(base_endpoint(each, password, source), path) for each in urls]

        def refusal(status: int, detail: str) -> OplogError:
            if status == 412:
                return stale(name, shard, detail)
            # Not the topic: the consumer was deleted, or never was.
            return RefusedError(status, detail) if status == 404 else refused(status, detail)

        read_format: StreamFormat[NamedEvent] = StreamFormat(
            read, messages.is_known, refusal, _NO_POSITION, messages.MAX_BLOCK_BYTES
        )
        options = FollowOptions(None, proxy, timeout, heartbeat_timeout, backoff, 1.0, 1)
        query = {SHARD: str(number)}
        super().__init__(
            [each._replace(url=each.url.copy_merge_params(query)) for each in endpoints],
            read_format,
            "",
            options,
            reader=self,
        )
        self._acknowledger = Acknowledger(
            ClientOptions(
                urls, password, None, proxy, timeout=timeout, backoff=backoff, token=token
            ),
            name,
            shard,
            ack_seconds,
            self._wake_up.wake,
            self._fail,
        )
        self._acks_each = not ack_seconds
        self._in_hand: NamedEvent | None = None
        self._failure: Exception | None = None

    @property
    def term(self) -> int:
        """The term of this reader. 0 before its first stream."""
        return self._acknowledger.term

    @property
    def position(self) -> str:
        """The newest id up to which everything is handled. Empty before the first one."""
        return self._acknowledger.position

    def ack(self, event: NamedEvent) -> None:
        """Tell that the present event is handled, such as before ``break``.

        Otherwise it is handled when the next event is asked for.
        """
        if event is self._in_hand:
            self._done()

    # For the receiver

    async def asked(self, endpoint: Endpoint) -> Endpoint:
        if not self.term:
            return endpoint
        if not await self._confirm():  # otherwise handled events would come again
            raise DisconnectedError("the last acknowledgement is not confirmed")
        return endpoint._replace(url=endpoint.url.copy_merge_params({"term": str(self.term)}))

    def opened(self, headers: Mapping[str, str], url: str) -> None:
        term = headers.get(TERM, "")
        if not re.fullmatch(r"[1-9][0-9]{0,17}", term, re.ASCII):
            # An agent that is stopping ends the stream at once, without a term.
            raise DisconnectedError(f"{url} sends no term: it is stopping, or it is no agent")
        self._acknowledger.term = int(term)

    async def _confirm(self) -> bool:
        """Send the newest acknowledgement once. Return whether it is confirmed.

        Everything received is handled: the loop has asked for the next event.
        """
        raise NotImplementedError

    # Parts of the iteration

    def _done(self) -> None:
        """The event in hand is handled."""
        event, self._in_hand = self._in_hand, None
        if event is not None:
            self._acknowledger.handled(event.event_id)

    def _give_back(self) -> None:
        """The event in hand was not handled: it is the next one."""
        event, self._in_hand = self._in_hand, None
        if event is not None:
            self._pending.appendleft(event)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self.stop()

    def _check(self) -> None:
        """Raise the error of an acknowledgement that was refused for good."""
        if self._failure is not None:
            raise self._failure

    def _passed(self, event_id: str) -> None:
        self._acknowledger.handled(event_id)  # asked for behind it: all before it is handled

    def _has_room(self) -> bool:
        return not self._acks_each or self._acknowledger.is_confirmed

    def _warn_of_unacked(self) -> None:
        """The pause is part of the wish: the acknowledger logs its failures."""


def read(block: Block, sequence: int) -> NamedEvent | Checkpoint | None:
    """Return the event of a block of the oplog or of a topic, or its position. Else None.

    Raises ProtocolError.
    """
    is_message = block.event == "message" or len(block.id) == _MESSAGE_DIGITS
    return (messages.read if is_message else events.read)(block, sequence)
