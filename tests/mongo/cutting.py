"""A connection to a MongoDB server that ends after some commands, as if its client were killed."""

import socket

from tests.mongo.relay import Relay, command_name, read_message

_NOT_COUNTED = ("hello", "ismaster", "isMaster", "buildInfo", "endSessions", "")


class Cutting(Relay):
    """Carries out ``commands`` commands of its client, and ends before the last answer.

    ``was_cut``: whether the client sent that many. ``names``: the commands carried out.
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
