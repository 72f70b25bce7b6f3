"""Workers in processes of their own, which fight for the same things. Each program prints JSON.

They run as programs, because a process with threads must not fork.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from oplogd.web.access.guesses.attempts import ADDRESS, EVERYBODY
from oplogd.web.access.guesses.shared_attempts import SharedAttempts
from oplogd.workers.workers import Worker, Workers
from tests.kits.processes.forked import run

ROUNDS = 3_000
KEY = b"of the cells"
GUESSERS = 200
KNOWN = ("198.51.100.1", "198.51.100.2")


def result_of(program: Callable[[], Any]) -> Any:
    """Run a function of this module as a program, and return its result."""
    done = run(
        [sys.executable, "-m", "tests.unit.workers.rivals", program.__name__],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def at_once(count: int, work: Callable[[int], int]) -> list[int]:
    """Fork processes that begin together, and return the result of each."""
    begin, go = os.pipe()
    results = [os.pipe() for _ in range(count)]
    for number in range(count):
        if os.fork() == 0:
            os.close(go)
            os.read(begin, 1)  # until the parent closes its end
            os.write(results[number][1], b"%d" % work(number))
            os._exit(0)
    os.close(go)
    found = []
    for reading, writing in results:
        os.close(writing)
        found.append(int(os.read(reading, 100)))
        os.wait()
    return found


def killed(work: Callable[[], object]) -> None:
    """Fork a process that does some work and kills itself."""
    child = os.fork()
    if child == 0:
        work()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def places_at_once() -> list[list[int]]:
    """Return how often each of two workers found more consumers than a limit of one.

    First the limit of all consumers, then that of a host.
    """
    shared = Workers(2, max_clients=100).places
    assert shared is not None

    def too_many(number: int, most: int, most_per_host: int) -> int:
        places, found = shared.of(number), 0
        for _ in range(ROUNDS):
            if places.take("host", most, most_per_host) is None:
                found += sum(table.total for table in shared.tables) > 1
                places.free("host")
        return found

    return [
        at_once(2, partial(too_many, most=most, most_per_host=most_per_host))
        for most, most_per_host in ((1, 0), (100, 1))
    ]


def places_of_a_killed_worker() -> list[str | None]:
    """Return the results of takes: before the kill, before ``settle``, and after it."""
    workers = Workers(2, max_clients=2)
    here = Worker(workers, 0).places
    there = Worker(workers, 1).places
    assert here is not None
    assert there is not None
    assert workers.places is not None
    lock = workers.places.lock

    def take_all_and_hold_the_lock() -> None:
        there.take("a", 2, 1)
        there.take("b", 2, 1)
        lock.__enter__()

    killed(take_all_and_hold_the_lock)
    results: list[str | None] = [here.take("c", 2, 1), here.take("a", 3, 1)]
    workers.settle(1)
    return [*results, here.take("a", 2, 1), here.take("b", 2, 1), here.take("c", 2, 1)]


def guesses_at_once() -> int:
    """Return how many guesses from GUESSERS known addresses two workers check together."""
    journal = Workers(2).attempts["reading"]
    addresses = [f"192.0.2.{number}" for number in range(GUESSERS)]
    first = SharedAttempts(journal, KEY, lambda: 0.0)
    for address in addresses:
        first.judge(address, b"right", is_right=True)

    def guess(number: int) -> int:
        limiter = SharedAttempts(journal, KEY, lambda: 0.0)
        return sum(
            limiter.judge(address, b"%d %d" % (number, each), is_right=False) == 0
            for address in addresses
            for each in range(ADDRESS.burst)
        )

    return sum(at_once(2, guess))


def guesses_after_a_kill() -> list[float]:
    """Return the judgements of a successor.

    The waits of two known addresses, of which the first has guessed, and how many guesses of a
    stranger it checks.
    """
    workers = Workers(2)
    journal = workers.attempts["reading"]

    def guess_and_hold_the_lock() -> None:
        limiter = SharedAttempts(journal, KEY, lambda: 0.0)
        for known in KNOWN:
            limiter.judge(known, b"right", is_right=True)
        for number in range(EVERYBODY.burst):
            limiter.judge(f"10.{number // 250}.{number % 250}.1", b"%d" % number, is_right=False)
        for number in range(ADDRESS.burst):
            limiter.judge(KNOWN[0], b"known %d" % number, is_right=False)
        journal.lock.__enter__()

    killed(guess_and_hold_the_lock)
    workers.settle(1)
    successor = SharedAttempts(journal, KEY, lambda: 0.0)
    waits = [successor.judge(known, b"right", is_right=True) for known in KNOWN]
    guesses = range(ADDRESS.burst)
    checked = [successor.judge("192.0.2.1", b"new %d" % n, is_right=False) for n in guesses]
    return [*waits, checked.count(0)]


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
