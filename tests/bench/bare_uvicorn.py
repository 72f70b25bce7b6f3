"""A uvicorn application that reads the body and answers 204: the limit of a server in Python.

Prints its port: ``python -m tests.bench.bare_uvicorn``.
"""

import socket

import uvicorn
from starlette.types import Receive, Scope, Send


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def main() -> None:
    config = uvicorn.Config(
        answer, loop="uvloop", http="httptools", ws="none", lifespan="off",
        log_level="warning", access_log=False, proxy_headers=False,
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0), backlog=config.backlog) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
