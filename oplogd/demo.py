"""``make demo``: an agent on SQLite, and a producer that behaves like a small video site."""

import errno
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from oplogd import server
from oplogd.config.command import parse
from oplogd.errors import StartupError
from oplogd.host import logs

_WELCOME = """
  oplog runs, with a small producer that sends operations over UDP.

    {url}/          the dashboard, for a browser
    {url}/docs      the HTTP API
    {url}/status    the counters

  In another terminal, send an operation (one line), which is answered with 204:
    {send}
  and follow the log, live or (with Last-Event-ID: 0) from a full copy of what exists:
    curl -sN -H 'Accept: text/event-stream' {url}/
    curl -sN -H 'Accept: text/event-stream' -H 'Last-Event-ID: 0' {url}/

  Ctrl-C ends it.
"""
_SEND = (
    r"curl -s -w '%{{http_code}}\n' -H 'Content-Type: application/json'"
    """ -d '{{"event":"insert","type":"video","id":"mine"}}' {url}/"""
)
_PAUSE = 0.4


def operations(seed: int) -> Iterator[dict[str, object]]:
    """Yield operations without end: users upload, change, comment on and delete videos."""
    choose = random.Random(seed)
    users = [f"user/{name}" for name in ("ada", "grace", "linus", "margaret", "barbara", "ken")]
    videos: list[tuple[str, str]] = []
    number = 0
    while True:
        number += 1
        roll = choose.random()
        if len(videos) < 5 or roll < 0.25:
            video = (f"x{choose.randrange(36**4):04x}", choose.choice(users))
            videos.append(video)
            yield {"event": "insert", "type": "video", "id": video[0], "parents": [video[1]]}
        elif roll < 0.55:
            id_, user = choose.choice(videos)
            yield {"event": "update", "type": "video", "id": id_, "parents": [user]}
        elif roll < 0.9 or len(videos) < 30:
            id_, user = choose.choice(videos)
            parents = [f"video/{id_}", choose.choice(users)]
            yield {"event": "insert", "type": "comment", "id": f"c{number}", "parents": parents}
        else:
            id_, user = videos.pop(choose.randrange(len(videos)))
            yield {"event": "delete", "type": "video", "id": id_, "parents": [user]}


def _produce(host: str, port: int) -> None:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        for operation in operations(seed=int(time.time())):
            sock.sendto(json.dumps(operation).encode(), address)
            time.sleep(random.uniform(0, 2 * _PAUSE))


def _on_ready(url: str) -> None:
    address = urlsplit(url)
    print(_WELCOME.format(url=url, send=_SEND.format(url=url)), flush=True)
    producer = threading.Thread(target=_produce, args=(address.hostname, address.port), daemon=True)
    producer.start()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="oplog-demo-") as folder:
        arguments = ["--store", str(Path(folder) / "demo.db"), *sys.argv[1:]]
        settings = parse(arguments, os.environ)
        if settings.workers > 1:
            print("oplogd: the demo runs in one process; leave out --workers", file=sys.stderr)
            return server.EXIT_USAGE
        logs.configure(settings.log_format, settings.debug)
        try:
            if not _port_is_free(settings.http_address.port):
                print(f"Port {settings.http_address.port} is in use, taking a free one.")
                settings = parse([*arguments, "--listen", "localhost:0"], os.environ)
            return server.run(settings, _on_ready)
        except StartupError as error:
            print(f"oplogd: {error}", file=sys.stderr)
            return server.EXIT_FAILED


def _port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


if __name__ == "__main__":
    sys.exit(main())
