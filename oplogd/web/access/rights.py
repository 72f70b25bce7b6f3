"""Rights: the topics, leases and objects that a client may use. No I/O.

A right is the same object in a file of principals and in a token. It grants only what it names.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from oplogd.errors import OplogError, RightError
from oplogd.model.lease import lease_name
from oplogd.model.names import OPLOG, TopicName, check_name
from oplogd.model.operation import MAX_OPERATION_BYTES, MAX_TYPE_BYTES

# Of one right.
MAX_PATTERNS = 100
MAX_VALUES = 1_000

_EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Topics:
    """A set of topics. ``everything``: all topics, ``namespaces``: all topics in these."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    names: frozenset[TopicName] = frozenset()

    def __contains__(self, name: TopicName) -> bool:
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


_NO_LEASES = Leases()
ALL_LEASES = Leases(("",))


@dataclass(frozen=True)
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
    leases: Leases = _NO_LEASES
    types: frozenset[str] | None = None
    parents: frozenset[str] | None = None
    sees_all: bool = False

    @cached_property
    def is_whole_reader(self) -> bool:
        """Whether nothing that can be read is hidden from the client."""
        return self.shows_others and self.read.everything and not self.is_narrow

    @property
    def is_narrow(self) -> bool:
        """Whether some operations are hidden from the client."""
        return self.types is not None or self.parents is not None

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


# The right of the password for reading, and of the one for writing.
READ_ALL = Right(read=ALL_TOPICS, sees_all=True)
WRITE_ALL = Right(write=ALL_TOPICS, manage=ALL_TOPICS, leases=ALL_LEASES)


def _common(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


class RightBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A right as people and tokens write it."""

    read: list[str] | msgspec.UnsetType = msgspec.UNSET
    write: list[str] | msgspec.UnsetType = msgspec.UNSET
    manage: list[str] | msgspec.UnsetType = msgspec.UNSET
    leases: list[str] | msgspec.UnsetType = msgspec.UNSET
    types: list[str] | msgspec.UnsetType = msgspec.UNSET
    parents: list[str] | msgspec.UnsetType = msgspec.UNSET


def right_of(value: Any) -> Right:
    """Return the right that an object in JSON or TOML describes. Raises RightError.

    With ``types`` or ``parents`` and no pattern at all it is the right to read the operations.
    """
    if not isinstance(value, dict):
        raise RightError("right", "must be an object")
    try:
        body = msgspec.convert(value, RightBody)
    except msgspec.ValidationError as error:
        raise RightError(*_fault(str(error), value)) from None
    return checked(body)


def checked(body: RightBody) -> Right:
    """Return the right that a body describes. Raises RightError."""
    topics = {name: _given(getattr(body, name)) for name in ("read", "write", "manage")}
    leases = _given(body.leases)
    count = sum(map(len, topics.values())) + len(leases)
    if count > MAX_PATTERNS:
        raise RightError("right", f"has {count:,} patterns, at most {MAX_PATTERNS} are possible")
    values = len(_given(body.types)) + len(_given(body.parents))
    if values > MAX_VALUES:
        raise RightError(
            "types and parents", f"are {values:,} values, at most {MAX_VALUES:,} are possible"
        )
    types = _values("types", body.types, MAX_TYPE_BYTES, _type_of)
    parents = _values("parents", body.parents, MAX_OPERATION_BYTES, str)
    if (
        not count
        and (types or parents)
        and all(getattr(body, name) is msgspec.UNSET for name in (*topics, "leases"))
    ):
        topics["read"] = [str(OPLOG)]
    return Right(
        read=_topics("read", topics["read"]),
        write=_topics("write", topics["write"]),
        manage=_topics("manage", topics["manage"]),
        leases=_leases(leases),
        types=types,
        parents=parents,
    )


def _given(values: list[str] | msgspec.UnsetType) -> Sequence[str]:
    return () if values is msgspec.UNSET else values


def _topics(field: str, patterns: Iterable[str]) -> Topics:
    namespaces, names = set(), set()
    everything = False
    for pattern in patterns:
        namespace, slash, topic = pattern.partition("/")
        if pattern == _EVERYTHING:
            everything = True
            continue
        try:
            if not slash:
                raise ValueError
            check_name(namespace, field)
            if topic == _EVERYTHING:
                namespaces.add(namespace)
            else:
                names.add(TopicName(namespace, check_name(topic, field)))
        except (ValueError, OplogError):
            raise RightError(field, "a pattern must be NAMESPACE/TOPIC, NAMESPACE/* or *") from None
    return ALL_TOPICS if everything else Topics(False, frozenset(namespaces), frozenset(names))


def _leases(patterns: Iterable[str]) -> Leases:
    prefixes: set[str] = set()
    names: set[str] = set()
    for pattern in patterns:
        name = pattern.removesuffix(_EVERYTHING)
        try:
            if name or pattern != _EVERYTHING:
                # A prefix may be "." or "..", which are no names.
                lease_name(f"{name}x" if name != pattern else name, "leases")
        except OplogError:
            raise RightError("leases", "a pattern must be a NAME, PREFIX* or *") from None
        (names if name == pattern else prefixes).add(name)
    return Leases(tuple(sorted(prefixes)), frozenset(names))


def _type_of(value: str) -> str:
    if "/" in value or "," in value:
        raise RightError("types", "a type contains neither '/' nor ','")
    return value.lower()


def _values(
    field: str,
    given: list[str] | msgspec.UnsetType,
    max_bytes: int,
    convert: Callable[[str], str],
) -> frozenset[str] | None:
    if given is msgspec.UNSET:
        return None
    if not given or not all(given):
        raise RightError(field, "must be a list of one or more values, none of them empty")
    if max(len(value.encode("utf-8", "surrogatepass")) for value in given) > max_bytes:
        raise RightError(field, f"a value has more than {max_bytes:,} bytes")
    return frozenset(map(convert, given))


def _fault(message: str, value: dict[str, Any]) -> tuple[str, str]:
    """Return the member at fault, and the reason, without repeating a value."""
    for name in value:
        if name not in RightBody.__struct_fields__:
            return str(name), "there is no such member of a right"
    for name in RightBody.__struct_fields__:
        if f"$.{name}" in message:
            return name, "must be a list of strings"
    return "right", "must be an object"
