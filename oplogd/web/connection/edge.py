"""The outermost layer of the app: clients behind proxies, and requests at work during a stop."""

import asyncio
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oplogd.web.connection.forwarded import LOOPBACK, VARIABLE, TrustedProxies, set_client
from oplogd.web.http.problem import not_confirmed_at_stop


class Edge:
    """Sets the client of each request, and ends those at work at the end of the server."""

    def __init__(self, app: ASGIApp, environ: Mapping[str, str]) -> None:
        self._app = app
        self._proxies = TrustedProxies(environ.get(VARIABLE, LOOPBACK))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        set_client(scope, self._proxies)
        await end_in_order(self._app, scope, receive, send)


async def end_in_order(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run an app for a request. If the end of the server cancels it, answer with 503.

    uvicorn would log a traceback and answer with 500 as plain text.
    """
    begun = False

    async def sending(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    try:
        await app(scope, receive, sending)
    except asyncio.CancelledError:
        if begun:
            scope["extensions"]["oplog.abort"]()
            await asyncio.sleep(0)  # the connection notes its end
        else:
            await not_confirmed_at_stop().response()(scope, receive, send)
