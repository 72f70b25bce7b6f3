"""A consumer's stream as an HTTP response."""

from collections.abc import Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oplogd.decode.media_types import EVENT_STREAM
from oplogd.stream.connection import Outlet, StreamConnection
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.hub import Hub

# The extension of an ASGI scope with which the connection takes over the body of an answer. It gets
# the function that makes the stream for its outlet.
TAKE_OVER = "oplog.stream"

TakeOver = Callable[[Callable[[Outlet], StreamConnection]], None]


class EventStream(Response):
    """The stream of ``consumer``; None answers HEAD with an empty body.

    Ends after the head of a stream. The connection writes its body, without a task
    (docs/internals/decisions/0091), and disconnects the consumer.
    """

    def __init__(
        self, hub: Hub, consumer: StreamConsumer | None, headers: Mapping[str, str]
    ) -> None:
        self.status_code = 200
        self.media_type = EVENT_STREAM
        self.background = None
        # Without a body there is no Content-Length.
        self.init_headers({**headers, "X-Accel-Buffering": "no"})
        self._hub = hub
        self._consumer = consumer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hub, consumer = self._hub, self._consumer
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        if consumer is None:
            await send(head)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        try:
            await send(head)
            take_over: TakeOver = scope["extensions"][TAKE_OVER]
            take_over(lambda outlet: StreamConnection(hub, consumer, outlet))
        except BaseException:
            hub.disconnect(consumer)
            raise
