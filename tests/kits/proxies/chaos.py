"""A proxy that cuts connections in the middle."""

import socket
from contextlib import suppress

from tests.kits.models.properties import chance
from tests.kits.proxies.proxy import Proxy, end


class ChaosProxy(Proxy):
    """Passes bytes on. Each connection ends after a random number of bytes towards the client.

    After few bytes, the answer to a request is lost. ``cuts``: ended connections.
    """

    def __init__(self, port: int, seed: int, most_bytes: int) -> None:
        self.cuts = 0
        self._choose = chance(seed)
        self._most_bytes = most_bytes
        super().__init__(port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            left = self._choose.randrange(1, self._most_bytes)
        requests = self._start(self._pass_on, client, server)
        with suppress(OSError):
            while left and (piece := server.recv(min(left, 1 << 16))):
                client.sendall(piece)
                left -= len(piece)
        with self._lock:
            self.cuts += not left
        end(client, server)
        requests.join()
