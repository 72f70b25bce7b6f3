"""An event loop for a thread of this package."""

import asyncio
import socket
from typing import Any


class OwnLoop(asyncio.SelectorEventLoop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Look up a host in this thread, which has nothing else to do.

        The loop's own way needs another thread. At the end of the interpreter none can be started,
        and one that waits for a name server would delay it.
        """
        return socket.getaddrinfo(host, port, **options)
