"""Print each handled event in a random order, then kill the process.

The program prints "at live" when the copy is complete. It ends when it has handled an operation of
type "last" and all events before it.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from oplogc import Consumer, Event, Live, Operation

# Unhandled events at a time. Any of them may be handled next.
HELD = 40


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
