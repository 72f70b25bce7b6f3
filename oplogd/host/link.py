"""The line between a worker and its supervisor: a few words, one message each.

    worker              supervisor
      ready  ->                      it serves
             <-  stop [NUMBERS]      stop in order; the second time: at once. The worker also
                                     takes the datagrams of these places: theirs do not serve
      shut   ->                      it takes nothing more, and its queue is stored
             <-  drain               so it is at all workers: end the streams

Each end learns at once that the other process has ended.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

READY, STOP, SHUT, DRAIN = b"ready", b"stop", b"shut", b"drain"

MAX_WORD = 4096


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends, the supervisor's first."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, word: bytes) -> None:
    """Send a word. Nothing happens if the other process has ended."""
    with contextlib.suppress(OSError):
        sock.send(word)


class Link:
    """A worker's end. Used in the event loop."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._drain = asyncio.Event()
        self._on_stop: Callable[[], None] = lambda: None
        # The supervisor has asked for a stop, or has ended.
        self.is_stopping = False
        self.is_cut = False
        self.orphans: list[int] = []

    def listen(self, on_stop: Callable[[], None]) -> None:
        """Call ``on_stop`` for each order to stop, and when the supervisor has ended."""
        self._on_stop = on_stop
        asyncio.get_running_loop().add_reader(self._sock, self._read)

    def ready(self, told: bytes) -> None:
        """Tell that this worker serves. ``told``: for the supervisor, at most 4,000 bytes."""
        send(self._sock, READY + b" " + told)

    async def shut(self) -> None:
        """Tell that this worker takes nothing more. Return when no worker does.

        A worker that ends alone, or has lost its supervisor, does not wait for the others.
        """
        if self.is_stopping and not self.is_cut:
            send(self._sock, SHUT)
            await self._drain.wait()

    def _read(self) -> None:
        try:
            word = self._sock.recv(MAX_WORD)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            word = b""
        if word == DRAIN:
            self._drain.set()
        elif word.startswith(STOP):
            self.is_stopping = True
            self.orphans += map(int, word.split()[1:])
            self._on_stop()
        elif not word:
            asyncio.get_running_loop().remove_reader(self._sock)
            self.is_cut = True
            self._drain.set()
            if not self.is_stopping:
                self.is_stopping = True
                self._on_stop()
