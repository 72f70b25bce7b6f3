"""What a supervisor tells its workers, without processes."""

import socket
from collections.abc import Iterator

import pytest

from oplogd.config.command import parse
from oplogd.host.link import DRAIN, MAX_WORD, READY, SHUT, STOP, pair
from oplogd.listen import Listeners
from oplogd.supervise.place import Place, State
from oplogd.supervise.supervisor import Supervisor

NO_PROCESS = (1 << 22) + 1  # larger than any process id


class Bench:
    """A supervisor of two workers that serve. ``links``: their ends of the lines."""

    def __init__(self) -> None:
        self.supervisor = Supervisor(parse(["--workers", "2"], {}))
        self.links: list[socket.socket] = []
        for number in range(2):
            ours, theirs = pair()
            for sock in (ours, theirs):
                sock.setblocking(False)
            place = Place(number, Listeners([], []))
            place.began(NO_PROCESS, ours)
            place.state = State.SERVES
            self.supervisor._places.append(place)
            self.links.append(theirs)

    @property
    def places(self) -> list[Place]:
        return self.supervisor._places

    def ask(self) -> None:
        """Let a signal come."""
        self.supervisor._signals.asked += 1
        self.supervisor._advance()

    def tell(self, number: int, word: bytes) -> None:
        self.links[number].send(word)
        self.supervisor._read(self.places[number])

    def told(self, number: int) -> list[bytes]:
        """Return the words that a worker has got since the last call."""
        words = []
        while True:
            try:
                words.append(self.links[number].recv(MAX_WORD))
            except BlockingIOError:
                return words


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("oplogd.supervise.signals.Signals.set_timer", lambda self: None)
    made = Bench()
    yield made
    for sock in (*made.links, *(each.link for each in made.places if each.link)):
        sock.close()
    made.supervisor._workers.close()
    made.supervisor._selector.close()
    for sock in (made.supervisor._signals._woken, made.supervisor._signals._wake):
        sock.close()


def test_each_signal_is_one_order_and_streams_end_when_all_are_shut(bench: Bench) -> None:
    bench.ask()
    assert [bench.told(number) for number in range(2)] == [[STOP], [STOP]]
    bench.tell(0, SHUT)
    bench.supervisor._advance()
    assert bench.told(0) == []
    bench.ask()
    assert bench.told(0) == [STOP]
    bench.tell(1, SHUT)
    bench.supervisor._advance()
    assert bench.told(0) == [DRAIN]
    assert bench.told(1) == [STOP, DRAIN]


def test_the_first_signal_joins_a_stop_that_has_begun_by_itself(bench: Bench) -> None:
    bench.supervisor._end(7)
    bench.supervisor._advance()
    bench.ask()
    assert bench.told(0) == [STOP]
    bench.ask()
    assert bench.told(0) == [STOP]
    assert bench.supervisor._code == 7


def test_a_worker_that_serves_only_after_the_stop_began_is_not_announced(bench: Bench) -> None:
    bench.places[1].state = State.STARTS
    bench.ask()
    bench.tell(1, READY + b'{"database":null,"was_written":false}')
    bench.supervisor._advance()
    assert bench.places[1].state is State.STARTS
    assert not bench.supervisor._is_announced


@pytest.mark.parametrize("state", [State.STARTS, State.WAITS])
def test_a_worker_takes_the_datagrams_of_a_place_without_one(bench: Bench, state: State) -> None:
    bench.places[0].state = state
    bench.ask()
    assert bench.told(1) == [STOP + b" 0"]
    assert bench.told(0) == [STOP]
    assert bench.places[0].state is (State.ENDED if state is State.WAITS else state)


def test_a_worker_that_hangs_does_not_hold_up_the_streams_of_others_for_ever(bench: Bench) -> None:
    bench.ask()
    bench.tell(0, SHUT)
    bench.supervisor._drain_at = 0.0
    bench.supervisor._advance()
    assert bench.told(0) == [STOP, DRAIN]
    bench.supervisor._advance()
    assert bench.told(0) == []


def test_a_process_that_has_ended_meanwhile_is_not_killed(bench: Bench) -> None:
    bench.supervisor._kill()
    bench.places[0].pid = 0
    bench.supervisor._kill()
