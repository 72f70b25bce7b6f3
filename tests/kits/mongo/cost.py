"""Round trips per 1,000 operations.

`python -m tests.kits.mongo.cost` prints the table of `docs/operate/mongodb.md`.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pymongo import monitoring

from oplogd.store import BatchId
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.setup.setup import CollectionKind
from oplogd.store.mongo.states.fold import fold, raise_checkpoint
from tests.kits.mongo.operations import op
from tests.kits.servers.mongo import MongoServer, ferretdb, java_server

COMMANDS: Counter[str] = Counter()
_BACKGROUND = ("hello", "isMaster", "buildInfo", "endSessions")


class _Count(monitoring.CommandListener):
    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name not in _BACKGROUND:
            collection = str(event.command.get(event.command_name, ""))
            if event.command_name == "getMore":
                collection = str(event.command.get("collection"))
            COMMANDS[f"{event.command_name} {collection}"] += 1

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


async def measure(url: str, kind: CollectionKind, batch: int) -> tuple[int, int, int]:
    """Return the commands for writing, following and folding 1,000 operations."""
    writer = MongoStore(url, collection=kind, lease=60)
    await writer.open()
    await writer.append([op("first")])
    await writer.checkpoint()
    reader = MongoStore(url, collection=kind, lease=60)
    await reader.open()
    seen = len(await reader.follow(0, 2000, 5))  # learns the size of entries
    while await reader.follow(seen, 2000, 0.05):
        pass
    for store in (writer, reader):  # nothing in the background
        await store.projection.stop()
    COMMANDS.clear()
    for start in range(0, 1000, batch):
        await writer.batches.append(
            [op(str(n % 500)) for n in range(start, start + batch)], BatchId("cost", start)
        )
    written = sum(COMMANDS.values())
    COMMANDS.clear()
    while seen < 1001:
        seen += len(await reader.tail.follow(seen, 2000, 5))
    followed = sum(COMMANDS.values())
    COMMANDS.clear()
    documents = await reader.log.documents(1, 1000)
    assert await fold(reader.link, documents, _held)
    assert await raise_checkpoint(reader.link, documents, 1, 1)
    folded = sum(COMMANDS.values())
    await writer.close()
    await reader.close()
    return written, followed, folded


async def _held() -> bool:
    return True


def main() -> None:
    monitoring.register(_Count())
    print("| server, log | batch | written | followed | folded |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        servers: list[tuple[str, Callable[[Path], MongoServer], CollectionKind]] = [
            ("mongo-java-server", java_server, "plain"),
            ("FerretDB", ferretdb, "capped"),
        ]
        for name, make, kind in servers:
            with make(Path(folder) / name) as server:
                for batch in (1000, 100):
                    counts = asyncio.run(measure(f"{server.url}/cost{batch}", kind, batch))
                    print(f"| {name}, {kind} | {batch} |", " | ".join(map(str, counts)), "|")


if __name__ == "__main__":
    main()
