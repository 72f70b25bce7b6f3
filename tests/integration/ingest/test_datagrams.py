"""Datagrams are read whole, in their order, and with their senders, one or many at a time."""

import ctypes
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from oplogd.host.datagrams import AT_ONCE, Datagrams, ManyAtOnce, OneByOne, datagrams_of

Make = Callable[[socket.socket], Datagrams]


def many_at_once(sock: socket.socket) -> ManyAtOnce:
    return ManyAtOnce(sock, ctypes.PyDLL(None, use_errno=True).recvmmsg)


@pytest.fixture(params=[many_at_once, OneByOne])
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def bound(stack: ExitStack, family: socket.AddressFamily, host: str) -> socket.socket:
    sock = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
    sock.bind((host, 0))
    sock.setblocking(False)
    return sock


def test_linux_reads_many_at_once(stack: ExitStack) -> None:
    assert type(datagrams_of(bound(stack, socket.AF_INET, "127.0.0.1"))) is ManyAtOnce


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM])
def test_a_system_that_refuses_the_call_reads_one_by_one(
    refusal: int, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "get_errno", lambda: refusal)
    monkeypatch.setattr(ManyAtOnce, "_call", lambda *_: -1)
    assert type(datagrams_of(bound(stack, socket.AF_INET, "127.0.0.1"))) is OneByOne


def test_datagrams_are_whole_and_in_their_order(make: Make, stack: ExitStack) -> None:
    datagrams = make(bound(stack, socket.AF_INET, "127.0.0.1"))
    sender = bound(stack, socket.AF_INET, "127.0.0.1")
    assert datagrams.receive() is None
    sent = [b"", b"a" * 65_507, *(b"%d" % number for number in range(AT_ONCE))]
    for raw in sent:
        sender.sendto(raw, datagrams.sock.getsockname())
    assert [datagrams.receive() for _ in sent] == sent
    assert datagrams.receive() is None
    assert not datagrams.has_more
    sender.sendto(b"later", datagrams.sock.getsockname())
    assert datagrams.receive() == b"later"


@pytest.mark.parametrize(
    ("family", "host", "other"),
    [
        (socket.AF_INET, "127.0.0.1", (socket.AF_INET, "127.0.0.1")),
        (socket.AF_INET6, "::1", (socket.AF_INET6, "::1")),
        (socket.AF_INET6, "::", (socket.AF_INET, "127.0.0.1")),
    ],
    ids=["IPv4", "IPv6", "IPv4 mapped"],
)
def test_each_datagram_has_its_sender(
    family: socket.AddressFamily,
    host: str,
    other: tuple[socket.AddressFamily, str],
    make: Make,
    stack: ExitStack,
) -> None:
    datagrams = make(bound(stack, family, host))
    port = datagrams.sock.getsockname()[1]
    senders = [bound(stack, *other) for _ in range(3)]
    mapped = "::ffff:" if other[0] != family else ""
    for number in range(6):
        senders[number % 3].sendto(b"%d" % number, (other[1], port))
    for number in range(6):
        assert datagrams.receive() == b"%d" % number
        address = senders[number % 3].getsockname()
        assert datagrams.sender()[:2] == (mapped + address[0], address[1])


def test_an_error_of_the_socket_is_raised(make: Make, stack: ExitStack) -> None:
    datagrams = make(bound(stack, socket.AF_INET, "127.0.0.1"))
    datagrams.sock.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        datagrams.receive()
