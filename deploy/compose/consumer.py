"""Prints the operations on videos from the agent at OPLOG_URL. Resumes after a restart."""

import os
import signal

from oplogc import Consumer, Live, Operation, Reset


def main() -> None:
    url = os.environ.get("OPLOG_URL", "http://localhost:8042")
    with Consumer(url, types=["video"], start="0", state_file="videos.state") as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: consumer.stop())
        for event in consumer:
            match event:
                case Reset():
                    print("forget everything: a copy of all videos follows", flush=True)
                case Live():
                    print("the copy is complete", flush=True)
                case Operation():
                    print(event.event, event.key, *event.parents, flush=True)
            consumer.ack(event)


if __name__ == "__main__":
    main()
