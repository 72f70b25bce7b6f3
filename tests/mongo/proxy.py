"""A connection to a MongoDB server that a test disturbs, one command at a time."""

import contextlib
import socket
from collections.abc import Iterator

from tests.mongo.relay import Relay, command_collection, command_name, read_message


class CommandProxy(Relay):
    """Passes on every message between the clients of ``url`` and the server.

    ``hold`` keeps commands from the server. ``cut_answers`` ends the connection instead of passing
    on an answer: the command was carried out, and its client does not know.
    """

    def __init__(self, server_url: str) -> None:
        self._held = ""
        self._cut = ("", "")
        self.cuts = 0
        # Number of commands that were held and then carried out.
        self.late = 0
        super().__init__(server_url)

    @contextlib.contextmanager
    def hold(self, command: str) -> Iterator[None]:
        """Keep these commands from the server. Afterwards those of open connections reach it."""
        with self._lock:
            self._held = command
        try:
            yield
        finally:
            with self._lock:
                self._held = ""
                self._lock.notify_all()

    def cut_answers(self, command: str, collection: str, times: int) -> None:
        """End the connection before the answer to such a command, ``times`` times.

        ``cuts`` counts from ``-times`` up to 0.
        """
        with self._lock:
            self._cut, self.cuts = (command, collection), -times

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
                if self.cuts < 0 and (command, command_collection(request)) == self._cut:
                    self.cuts += 1
                    return
            client.sendall(answer)
