"""Operations for tests, and the objects that they leave."""

from collections.abc import Iterable

from pymongo.database import Database

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation, encode_data
from oplogd.store import Entry, State, StateCursor, Store
from oplogd.store.mongo.link.layout import Document, entry_document

TIMESTAMP = "2014-11-06T11:04:39.041Z"


def op(
    id_: str, event: str = "insert", type_: str = "video", parents: tuple[str, ...] = ()
) -> Operation:
    return Operation(event, f"{type_}/{id_}", encode_data(TIMESTAMP, list(parents), type_, id_))


def folded(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the data of the live objects, by key, after these entries."""
    last: dict[str, Entry] = {}
    for entry in entries:
        last[_key(entry.data)] = entry
    return {key: entry.data for key, entry in last.items() if entry.event != "delete"}


async def live_states(store: Store) -> dict[str, str]:
    """Return the data of the live objects, by key, as a full replication sends them."""
    mark = await store.checkpoint()
    found = await states_of(store, mark.offset, live_only=True)
    return {_key(state.data): state.data for state in found}


async def states_of(store: Store, upto: int, *, live_only: bool = False) -> list[State]:
    """Read all states up to an offset, page by page."""
    found: list[State] = []
    cursor: StateCursor | None = StateCursor(0, None)
    while cursor:
        states, cursor = await store.states(cursor, upto, live_only=live_only, limit=500)
        found += states
    return found


async def whole_log(store: Store) -> list[Entry]:
    entries: list[Entry] = []
    while page := await store.read(entries[-1].offset if entries else 0, 1000):
        entries += page
    return entries


def _key(data: str) -> str:
    from oplogd.model.operation import decode_data

    decoded = decode_data(data)
    return f"{decoded.type}/{decoded.id}"


def document(n: int, id_: str = "other", ms: int = 1_700_000_000_000) -> Document:
    """Return an entry of another writer."""
    return entry_document(op(id_), Mark(n, ms), "other", n)


def offsets(database: Database[Document]) -> list[int]:
    return [each["n"] for each in database["oplog_ops"].find().sort("n", 1)]
