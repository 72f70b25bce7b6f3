"""A consumer that tells each event on stdout once it has dealt with it, in a random order, until it
kills itself.

It says "at live" when the copy is complete, and ends when it got an operation of type "last" from
the log and dealt with all that came before.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from oplogc import Consumer, Event, Live, Operation

HELD = 40
"""Events in hand at a time, of which any may be the next to be done."""


def main(url: str, state_file: str, seed: int, dies_after: int) -> None:
    choose = random.Random(seed)
    held: list[Event] = []
    consumer = Consumer(
        url, start="0", state_file=state_file, save_interval=0.001, backoff=(0.01, 0.05)
    )
    with consumer:
        for event in consumer:
            held.append(event)
            if isinstance(event, Live):
                print("at live", flush=True)
                dies_after = 1000  # in the log, so that this life ends behind the copy
            is_last = (
                isinstance(event, Operation) and event.type == "last" and len(event.event_id) == 24
            )
            while len(held) == HELD or (is_last and held):
                done = held.pop(choose.randrange(len(held)))
                print(done.key if isinstance(done, Operation) else done.event, flush=True)
                consumer.ack(done)
                dies_after -= 1
                if dies_after == 200 and consumer.position:
                    wait_for_save(
                        Path(state_file), consumer.position
                    )  # else lives on a busy machine get nowhere
                if dies_after == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            if is_last:
                break


def wait_for_save(path: Path, position: str) -> None:
    while not path.exists() or path.read_text() != position:
        time.sleep(0.001)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
