"""Print each event of a named consumer, then kill the process in the loop's body."""

import os
import signal
import sys

from oplogc import Operation
from oplogc.topics import NamedConsumer, ReceivedMessage


def main(url: str, name: str, shard: int, dies_after: int) -> None:
    with NamedConsumer(url, name, shard=shard, ack_seconds=0) as consumer:
        for event in consumer:
            match event:
                case Operation():
                    print(event.key, flush=True)
                case ReceivedMessage():
                    print(event.text, flush=True)
                case _:
                    print(event.event, flush=True)
            dies_after -= 1
            if dies_after == 0:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
