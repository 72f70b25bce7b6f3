"""Hostile requests and datagrams for as long as it takes, with a clock that jumps beside them."""

import random
import socket
from pathlib import Path
from threading import Event

from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.web.hostile import (
    ENDPOINTS,
    LARGE_TOPIC,
    MB,
    OTHERS,
    TOPIC,
    VALUES,
    case,
    is_too_long,
    random_case,
    send,
)
from tests.kits.web.memory import Memory
from tests.soak.conftest import Rounds

# Memory that may stay after all rounds: the page cache of the store's writer, which the large
# messages fill, and the interpreter's own fragments.
STAYS = (64 + 64) * MB
# Seconds for which the status shows a turn, and a little more.
MINUTE = 61
JUMPS = (0, 0, 3, -3600, 8 * 86_400, 10 * 365 * 86_400)


def test_hostile_requests_cost_what_they_weigh(rounds: Rounds, tmp_path: Path) -> None:
    every = [case(endpoint, value) for endpoint in ENDPOINTS for value in VALUES]
    clock = MovedClock(tmp_path)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        assert agent.request("PUT", TOPIC).status == 200
        for each in OTHERS:
            send(agent, each._replace(body=lambda: b"", packed=False))
        whole = Memory(agent)
        for number in rounds():
            source = random.Random(number)
            agent.request("DELETE", LARGE_TOPIC)
            assert agent.request("PUT", LARGE_TOPIC).status == 200
            clock.set(source.choice(JUMPS))
            mixed = [random_case(source) for _ in range(50)]
            for hostile in source.sample([*every, *OTHERS, *mixed], 100):
                flood(agent.udp_port, source)
                memory = Memory(agent)
                answer = send(agent, hostile)
                assert 200 <= answer.status < 500, (number, hostile.name, answer)
                assert len(answer.body) <= 16 * 1024, (number, hostile.name)
                assert memory.peak() <= 32 * MB, (number, hostile.name)
                for _ in range(2):  # a busy machine makes one turn long, but not each
                    if is_too_long(agent):
                        Event().wait(MINUTE)
                        send(agent, hostile)
                assert not is_too_long(agent), (number, hostile.name)
        assert whole.growth() <= STAYS


def flood(port: int, source: random.Random) -> None:
    """Send datagrams that are dear to refuse, and some that are not."""
    dear = (b"[" * 60_000, b'"[",' * 15_000, b'{"x":' * 10_000, source.randbytes(1000))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(50):
            sender.sendto(source.choice(dear), ("127.0.0.1", port))
