"""Servers whose streams send their heads and wait: the limits of a server in Python.

``uvicorn`` runs an ASGI application, ``uvloop`` a protocol without HTTP. Prints its port:
``python -m tests.bench.bare_streams uvicorn``.
"""

import asyncio
import socket
import sys
from typing import cast

import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from oplogd.server import raise_file_limit

KINDS = ("uvicorn", "uvloop")


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while (await receive())["type"] != "http.disconnect":
        pass


class BareStream(asyncio.Protocol):
    __slots__ = ("_transport",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\n\r\n")


async def serve(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        print(listener.getsockname()[1], flush=True)
        if kind == "uvicorn":
            config = uvicorn.Config(
                stream, http="httptools", ws="none", lifespan="off",
                log_level="warning", access_log=False, proxy_headers=False,
            )  # fmt: skip
            await uvicorn.Server(config).serve(sockets=[listener])
        else:
            server = await asyncio.get_running_loop().create_server(BareStream, sock=listener)
            await server.serve_forever()


if __name__ == "__main__":
    raise_file_limit()
    uvloop.run(serve(sys.argv[1]))
