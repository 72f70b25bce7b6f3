"""The sockets of several workers on one port."""

import socket
from collections.abc import Iterator

import pytest

from oplogd.config.command import parse
from oplogd.errors import StartupError
from oplogd.listen import Listeners, open_listeners


@pytest.fixture(params=["127.0.0.1:0", "localhost:0", ":0"])
def listeners(request: pytest.FixtureRequest) -> Iterator[list[Listeners]]:
    found = open_listeners(parse(["--listen", request.param, "--workers", "3"], {}))
    yield found
    for each in found:
        each.close()


def addresses(sockets: list[socket.socket]) -> list[tuple[str, int]]:
    return [sock.getsockname()[:2] for sock in sockets]


def test_all_have_the_same_addresses(listeners: list[Listeners]) -> None:
    first, *others = listeners
    assert len(others) == 2
    assert len({port for _, port in addresses([*first.http, *first.udp])}) == 1
    for each in others:
        assert addresses(each.http) == addresses(first.http)
        assert addresses(each.udp) == addresses(first.udp)


def test_the_kernel_gives_each_its_share(listeners: list[Listeners]) -> None:
    port = listeners[0].http[0].getsockname()[1]
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(120)]
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(120)]
    for sender in senders:
        sender.sendto(b"x", ("127.0.0.1", port))
    accepted, received = [], []
    for each in listeners:
        accepted.append(sum(drain(sock.accept, sock) for sock in each.http))
        received.append(sum(drain(lambda sock=sock: sock.recv(10), sock) for sock in each.udp))
    for sock in (*connections, *senders):
        sock.close()
    # One of three gets none of 120 with a probability of 3 * (2 / 3) ** 120, 10 ** -20.
    assert (sum(accepted), sum(received)) == (120, 120)
    assert min(*accepted, *received) > 0


def drain(take: object, sock: socket.socket) -> int:
    assert callable(take)
    sock.setblocking(False)
    count = 0
    while True:
        try:
            taken = take()
        except BlockingIOError:
            return count
        if isinstance(taken, tuple):
            taken[0].close()
        count += 1


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kind", ["http", "udp"])
def test_another_agent_is_refused(listeners: list[Listeners], workers: str, kind: str) -> None:
    port = listeners[0].http[0].getsockname()[1]
    flags = ["--listen", f"127.0.0.1:{port if kind == 'http' else 0}", "--workers", workers]
    if kind == "udp":
        flags += ["--udp-listen", f"127.0.0.1:{port}"]
    with pytest.raises(StartupError, match="cannot listen on"):
        open_listeners(parse(flags, {}))


def test_an_agent_without_workers_shares_with_nobody() -> None:
    (alone,) = open_listeners(parse(["--listen", "127.0.0.1:0"], {}))
    for sock in (*alone.http, *alone.udp):
        with socket.socket(sock.family, sock.type) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(sock.getsockname())
    alone.close()
