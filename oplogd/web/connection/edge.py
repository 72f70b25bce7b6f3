"""The outermost layer of the app: clients behind proxies, and requests at work during a stop."""

import asyncio
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oplogd.web.connection.forwarded import LOOPBACK, VARIABLE, TrustedProxies, set_client
from oplogd.web.http.problem import RETRY_AFTER, Problem


class Edge:
    """Sets the client of each request, and answers one that the end of the server cancels with 503.

    uvicorn would log a traceback and answer with 500 as plain text.
    """

    def __init__(self, app: ASGIApp, environ: Mapping[str, str]) -> None:
        self._app = app
        self._proxies = TrustedProxies(environ.get(VARIABLE, LOOPBACK))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        set_client(scope, self._proxies)
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
                problem = Problem(
                    503,
                    "not confirmed, it may still be stored: the agent is stopping; try again",
                    RETRY_AFTER,
                )
                await problem.response()(scope, receive, send)
