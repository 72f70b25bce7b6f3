"""A connection to a MongoDB server that a test can disturb, one command at a time."""

import contextlib
import socket
from collections.abc import Iterator

from tests.mongo.relay import Relay, command_name, read_message


class Proxy(Relay):
    """Passes on every message between the clients of ``url`` and the server.

    ``hold`` keeps commands from the server; ``cut_answers`` ends the connection when the answer has come, so that the command
    was carried out and its client does not know.
    """

    def __init__(self, server_url: str) -> None:
        self._held = ""
        self._cut = ""
        self.cuts = 0
        self.late = 0
        """How many commands were held and then carried out."""
        super().__init__(server_url)

    @contextlib.contextmanager
    def hold(self, command: str) -> Iterator[None]:
        """Meanwhile these commands do not reach the server; those of connections that are still open do afterwards."""
        with self._lock:
            self._held = command
        try:
            yield
        finally:
            with self._lock:
                self._held = ""
                self._lock.notify_all()

    def cut_answers(self, command: str, times: int) -> None:
        """So many times a connection ends before the answer to such a command; ``cuts`` counts them."""
        with self._lock:
            self._cut, self.cuts = command, -times

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while request := read_message(client):
            command = command_name(request)
            with self._lock:
                late = command == self._held
                self._lock.wait_for(lambda command=command: command != self._held)  # type: ignore[misc]
            server.sendall(request)
            answer = read_message(server)
            with self._lock:
                self.late += late
                if command == self._cut and self.cuts < 0:
                    self.cuts += 1
                    return
            client.sendall(answer)
