"""A server that a test kills and suspends, before one that other tests use too."""

import socket

from tests.kits.processes.logged import DEADLINE
from tests.kits.proxies.mongo import MongoProxy
from tests.kits.proxies.proxy import end


class InterruptedServer(MongoProxy):
    """The server of ``url``, as its clients see it.

    After ``kill``, connections end and are refused, until ``start``. While it is frozen, the server
    accepts connections and answers nothing, until ``thaw``.
    """

    def kill(self) -> None:
        end(self._listener)
        self._accepting.join(DEADLINE)
        self._listener.close()
        self.end_connections()

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self._accepting = self._start(self._accept)
