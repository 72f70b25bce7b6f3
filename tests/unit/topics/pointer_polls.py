"""The polls of all readers over entries with pointers: a plain list, and the answers it gives."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oplogd.model.message import Message
from oplogd.model.message_id import MessageId, end_id, parse_message_id, stamp, unstamp
from oplogd.model.pointer import Decision
from oplogd.model.shard import Shard, hash_of

# Time to live of the topic, in seconds.
TTL = 3
ANSWER_BYTES = 1_000_000
FIRST_WRITE_MS, LAST = 1 << 40, 1 << 15


class Reader(NamedTuple):
    """The members of a poll that tell what its reader may see."""

    isolation: str | None = None
    transaction: dict[str, Any] | None = None

    @property
    def is_uncommitted(self) -> bool:
        return self.isolation == "read_uncommitted"


class Part(NamedTuple):
    """A message of an entry. ``tail``: the last two parts of its id."""

    tail: tuple[int, int]
    payload: str
    expires_ms: int

    @property
    def size(self) -> int:
        return len(f'{{"payload":"{self.payload}"}}')


@dataclass
class Known:
    """An entry. ``parts``: the messages that a reader gets who may see all of it.

    ``kind``: message, direct, publish, deferred, commit or void.
    """

    stamp: int
    kind: str
    parts: list[Part]
    pointer: int | None = None

    @property
    def id(self) -> str:
        return str(MessageId(*unstamp(self.stamp)))


@dataclass
class Reference:
    begin: int
    entries: list[Known] = field(default_factory=list)
    decisions: dict[int, Decision] = field(default_factory=dict)
    waiting: dict[int, list[tuple[Message, str, int | None]]] = field(default_factory=dict)

    def poll(
        self,
        now: int,
        start: str | int | None,
        inclusive: bool,
        limit: int,
        reader: Reader,
        shard: Shard | None = None,
    ) -> tuple[list[dict[str, Any]], bool, int | None]:
        """Return the messages of an answer, whether there is a gap, and the pointer that holds."""
        floor = stamp(max(now - TTL * 1000, 0), 0)
        gone = [self.begin, *(each.stamp for each in self.entries if each.stamp < floor)]
        gap = False
        first = at = 0
        tail = None
        if isinstance(start, int):
            first = stamp(start if inclusive else start + 1, 0)
            gap = any(each >= first for each in gone[1:])
        elif start is not None:
            ms, sequence, *rest = parse_message_id(start)
            at = first = stamp(ms, sequence)
            tail = rest[0], rest[1]
            gap = any(each > at for each in gone)
            gap = gap or (at in gone and self.is_inside(tail, reader))
        answer: list[dict[str, Any]] = []
        size = 0
        for entry in self.entries:
            if entry.stamp < max(floor, first):
                continue
            parts = entry.parts
            if tail is not None and entry.stamp == at:
                if not is_read(entry, tail, inclusive, reader):
                    continue
                parts = [each for each in parts if follows(entry, each, tail, inclusive, reader)]
            if 0 < min((each.expires_ms for each in entry.parts), default=0) < now and (
                entry.kind in ("direct", "message", "deferred")
            ):
                continue
            seen = self.seen(entry, reader)
            if seen is None:
                if shard and entry.kind == "direct" and not shard.has(hash_of(entry.id)):
                    continue
                return answer, gap, entry.pointer
            for part in parts if seen else []:
                if 0 < part.expires_ms < now:
                    continue
                id_ = str(MessageId(*unstamp(entry.stamp), *part.tail))
                if shard and not shard.has(hash_of(id_)):
                    continue
                size += part.size
                if answer and size > ANSWER_BYTES:
                    return answer, gap, None
                answer.append({"id": id_, "payload": part.payload})
                if len(answer) == limit:
                    return answer, gap, None
        return answer, gap, None

    def seen(self, entry: Known, reader: Reader) -> bool | None:
        """Return whether a reader sees the messages of an entry. None: it must wait."""
        if entry.kind in ("deferred", "commit"):
            return (entry.kind == "deferred") is reader.is_uncommitted
        if entry.pointer is None or reader.is_uncommitted:
            return entry.kind != "void"
        if (shot := reader.transaction) is None:
            decision = self.decisions.get(entry.pointer)
            return None if decision is None else decision == Decision.COMMITTED
        if entry.pointer == shot["writePointer"]:
            return True
        if str(entry.pointer) in map(str, shot["invalid"]):
            return False
        if entry.pointer > shot["readPointer"] or str(entry.pointer) in map(
            str, shot["inProgress"]
        ):
            return None
        return True

    @staticmethod
    def is_inside(tail: tuple[int, int], reader: Reader) -> bool:
        """Return whether messages of the same entry may follow."""
        write_ms, sequence = tail
        if write_ms >= FIRST_WRITE_MS:
            return tail != end_id(0, 0)[2:] and not sequence & LAST
        return not reader.is_uncommitted and write_ms > 0 and sequence != 1

    def add(
        self,
        now: int,
        kind: str,
        parts: list[tuple[tuple[int, int], str, int | None]],
        pointer: int | None = None,
    ) -> None:
        head = self.entries[-1].stamp if self.entries else self.begin
        number = max(stamp(now, 0), head + 1)
        ms, _ = unstamp(number)
        kept = [Part(tail, text, ms + ttl * 1000 if ttl else 0) for tail, text, ttl in parts]
        self.entries.append(Known(number, kind, kept, pointer))

    def void(self, entry: Known) -> None:
        entry.kind, entry.parts, entry.pointer = "void", [], None


def is_read(entry: Known, tail: tuple[int, int], inclusive: bool, reader: Reader) -> bool:
    """Return whether an entry at the position is looked at: if the reader may lack some of it."""
    if tail == (0, 0) and inclusive:
        return True
    if entry.kind not in ("publish", "commit"):
        return False
    write_ms, sequence = tail
    if write_ms >= FIRST_WRITE_MS:
        return tail != end_id(0, 0)[2:] and (inclusive or not sequence & LAST)
    return not reader.is_uncommitted and (inclusive or tail[1] != 1 or not write_ms)


def follows(
    entry: Known, part: Part, tail: tuple[int, int], inclusive: bool, reader: Reader
) -> bool:
    """Return whether a message of the entry at the position is wanted."""
    if tail == (0, 0):
        return True
    if entry.kind == "commit":
        number, has = (part.tail[0], 0), (tail[0], 0)
    else:
        number, has = ((each[0], each[1] & (LAST - 1)) for each in (part.tail, tail))
    return number >= has if inclusive else number > has
