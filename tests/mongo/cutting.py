"""A way to a MongoDB server that ends after so many commands: what a process that is killed there leaves behind."""

import socket

from tests.mongo.relay import Relay, command_name, read_message

_NOT_COUNTED = ("hello", "ismaster", "isMaster", "buildInfo", "endSessions", "")


class Cutting(Relay):
    """Carries out ``commands`` commands of its client. Neither the last answer nor anything after it gets through.

    ``was_cut`` tells whether there was a command more; ``names`` are those that were carried out.
    """

    def __init__(self, server_url: str, commands: int) -> None:
        self._left = commands
        self.was_cut = False
        self.names: list[str] = []
        super().__init__(server_url)
        self.address = self.url(
            retryReads="false", retryWrites="false", serverSelectionTimeoutMS="200"
        )

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while request := read_message(client):
            name = command_name(request)
            with self._lock:
                if self.was_cut:
                    return
                last = False
                if name not in _NOT_COUNTED:
                    self._left -= 1
                    last = self._left <= 0
                    self.was_cut = last
                    self.names.append(name)
            server.sendall(request)
            answer = read_message(server)
            if last:
                return
            client.sendall(answer)
