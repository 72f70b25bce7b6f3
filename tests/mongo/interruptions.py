"""A server that a test kills and suspends, before one that other tests use too."""

import contextlib
import socket
import threading
from types import TracebackType

from tests.mongo.relay import Relay, read_message


class InterruptedServer(Relay):
    """The server of ``url``, as its clients see it.

    After ``kill``, connections end and are refused, until ``start``. After ``stop``, the server
    accepts connections and answers nothing, until ``go_on``.
    """

    def __init__(self, server_url: str) -> None:
        self._is_stopped = False
        super().__init__(server_url)
        self._address = self._listener.getsockname()

    def kill(self) -> None:
        # Only a shutdown wakes a thread that waits in accept or recv.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            while self._open:
                with contextlib.suppress(OSError):
                    self._open.pop().shutdown(socket.SHUT_RDWR)

    def start(self) -> None:
        self._listener = socket.create_server(self._address)
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True

    def go_on(self) -> None:
        with self._lock:
            self._is_stopped = False
            self._lock.notify_all()

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while request := read_message(client):
            with self._lock:
                self._lock.wait_for(lambda: not self._is_stopped)
            server.sendall(request)
            client.sendall(read_message(server))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.go_on()
        super().__exit__(kind, error, trace)
