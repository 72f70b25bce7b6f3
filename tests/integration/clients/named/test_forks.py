"""The reader of a named consumer in the child of a fork."""

import subprocess
import sys

from tests.kits.agents.agent import DEADLINE
from tests.kits.clients.named_streams import NamedStreams
from tests.kits.clients.streams import operation
from tests.kits.processes.forked import run

TWO = operation("a") + operation("b", number=1)
PROGRAM = """
import os, sys
from oplogc.topics import NamedConsumer

with NamedConsumer(sys.argv[1], "search", shard=3) as consumer:
    events = iter(consumer)
    next(events)
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        print(next(events).id)
    else:
        for events in events, consumer:
            try:
                for event in events:
                    print("child", event)
            except ValueError as error:
                print(error, flush=True)
        os._exit(0)
"""


def test_the_child_gets_a_sentence_and_the_parent_goes_on() -> None:
    with NamedStreams(TWO) as server:
        done = run(
            [sys.executable, "-c", PROGRAM, server.url],
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
    sentence = "the child of a fork cannot use its parent's consumer: make another one"
    assert done.stdout.splitlines() == [sentence, sentence, "b"]
