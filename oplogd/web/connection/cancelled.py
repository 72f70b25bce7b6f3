"""Requests that are still at work when the agent stops."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oplogd.web.connection import refusals


class AnsweredWhenCancelled:
    """Answers a request that the end of the server cancels with 503.

    uvicorn would log a traceback and answer with 500 as plain text.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if begun:
                scope["extensions"]["oplog.abort"]()
                await asyncio.sleep(0)  # the connection notes its end
            else:
                await refusals.unconfirmed().response()(scope, receive, send)
