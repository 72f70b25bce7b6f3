"""Rights: the topics, leases and objects that a client may use. No I/O.

A right is the same object in a file of principals and in a token. It grants only what it names.
"""

from dataclasses import dataclass, replace

from oplogd.model.names import TopicName
from oplogd.stream.ring.filters import Filter


@dataclass(frozen=True, slots=True)
class Topics:
    """A set of topics. ``everything``: all topics, ``namespaces``: all topics in these."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    names: frozenset[TopicName] = frozenset()

    def __contains__(self, name: TopicName | None) -> bool:
        if name is None:
            return False
        return self.everything or name.namespace in self.namespaces or name in self.names

    def covers(self, namespace: str) -> bool:
        """Return whether all topics of this namespace are in the set."""
        return self.everything or namespace in self.namespaces

    def __and__(self, other: "Topics") -> "Topics":
        """Return the topics that are in both sets."""
        if self.everything or other.everything:
            return other if self.everything else self
        both = {name for name in self.names | other.names if name in self and name in other}
        return Topics(False, self.namespaces & other.namespaces, frozenset(both))


NO_TOPICS = Topics()
ALL_TOPICS = Topics(everything=True)


@dataclass(frozen=True, slots=True)
class Leases:
    """A set of leases. ``prefixes``: all leases whose names begin with one of these."""

    prefixes: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)

    def __and__(self, other: "Leases") -> "Leases":
        """Return the leases that are in both sets."""
        prefixes = {
            max(one, another, key=len)
            for one in self.prefixes
            for another in other.prefixes
            if one.startswith(another) or another.startswith(one)
        }
        both = {name for name in self.names | other.names if name in self and name in other}
        return Leases(tuple(sorted(prefixes)), frozenset(both))


NO_LEASES = Leases()
ALL_LEASES = Leases(("",))


@dataclass(frozen=True, slots=True)
class Right:
    """The things that a client may do.

    ``read``, ``write``, ``manage``: topics. ``leases``: to poll, show, release, and to name in
    Oplog-Lease. ``types`` and ``parents`` narrow the operations: an operation may be read if it has
    one of the types and one of the parents, and written if it has one of the types. None: all.
    ``sees_all``: transactions, pointers and leases of others, and the consumers in /status.
    """

    read: Topics = NO_TOPICS
    write: Topics = NO_TOPICS
    manage: Topics = NO_TOPICS
    leases: Leases = NO_LEASES
    types: frozenset[str] | None = None
    parents: frozenset[str] | None = None
    sees_all: bool = False

    @property
    def is_whole_reader(self) -> bool:
        """Whether nothing that can be read is hidden from the client."""
        return self.shows_others and self.read.everything and not self.is_narrow

    @property
    def is_narrow(self) -> bool:
        """Whether some operations are hidden from the client."""
        return self.types is not None or self.parents is not None

    @property
    def parts(self) -> int:
        """The number of patterns and values."""
        topics = (self.read, self.write, self.manage)
        patterns = sum(len(each.names) + len(each.namespaces) for each in topics)
        patterns += len(self.leases.names) + len(self.leases.prefixes)
        return patterns + len(self.types or ()) + len(self.parents or ())

    def narrow(self, filter_: Filter) -> Filter:
        """Return a filter of the operations that pass another one, and that may be read."""
        return filter_.narrowed(self.types, self.parents)

    @property
    def manages_all(self) -> bool:
        """Whether the client may end transactions of others."""
        return self.manage.everything

    @property
    def shows_others(self) -> bool:
        """Whether the client may see transactions, pointers and leases of others."""
        return self.sees_all or self.manage.everything

    def may_see(self, name: TopicName) -> bool:
        """Return whether the client may know that a topic exists."""
        return name in self.read or name in self.write or name in self.manage

    def named_in(self, namespace: str) -> set[TopicName]:
        """Return the topics of a namespace that the client may see because they are named."""
        names = self.read.names | self.write.names | self.manage.names
        return {name for name in names if name.namespace == namespace}

    def sees_namespace(self, namespace: str) -> bool:
        """Return whether the client may see all topics of this namespace."""
        return any(each.covers(namespace) for each in (self.read, self.write, self.manage))

    def may_show_lease(self, name: str) -> bool:
        return self.shows_others or name in self.leases

    @property
    def leaves_nothing(self) -> bool:
        """Whether no topic and no lease is granted, or no operation can pass."""
        no_topics = self.read == self.write == self.manage == NO_TOPICS
        is_blind = frozenset() in (self.types, self.parents)
        return is_blind or (no_topics and self.leases == NO_LEASES)

    def narrowed(self, asked: "Right") -> "Right":
        """Return the part of ``asked`` that this right grants."""
        return replace(
            asked,
            read=self.read & asked.read,
            write=self.write & asked.write,
            manage=self.manage & asked.manage,
            leases=self.leases & asked.leases,
            types=_common(self.types, asked.types),
            parents=_common(self.parents, asked.parents),
            sees_all=self.sees_all and asked.sees_all,
        )

    def reading(self) -> "Right":
        """Return the part of this right that changes nothing."""
        return replace(self, write=NO_TOPICS, manage=NO_TOPICS, leases=NO_LEASES)


# The right of the password for reading, and of the one for writing.
READ_ALL = Right(read=ALL_TOPICS, sees_all=True)
WRITE_ALL = Right(write=ALL_TOPICS, manage=ALL_TOPICS, leases=ALL_LEASES)


def _common(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
