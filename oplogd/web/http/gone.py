"""Work for a client that may leave before its end."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

# Between two looks at the connection.
_LOOK_SECONDS = 0.2

_T = TypeVar("_T")


async def while_connected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of work. Cancel it and raise ClientDisconnect if its client has gone.

    For long reads: the whole body of the request must have been read.
    """
    task = asyncio.create_task(work, name="long read")
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_SECONDS)
            if not task.done() and await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
