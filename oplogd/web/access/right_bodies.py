"""Rights as people and tokens write them: objects in JSON or TOML. No I/O."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from oplogd.errors import OplogError, RightError
from oplogd.model.lease import lease_name
from oplogd.model.names import OPLOG, TopicName, check_name
from oplogd.model.operation import MAX_OPERATION_BYTES, MAX_TYPE_BYTES
from oplogd.web.access.rights import ALL_TOPICS, Leases, Right, Topics

# Of one right.
MAX_PATTERNS = 100
MAX_VALUES = 1_000

_EVERYTHING = "*"
_MEMBER = re.compile(r"[a-z_]{1,20}", re.ASCII)


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
    except (msgspec.ValidationError, UnicodeError) as error:
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


def require_bounded(right: Right) -> None:
    """Raise RightError if a right has more patterns or values than one may."""
    right_of(body_of(right))


def body_of(right: Right) -> dict[str, list[str]]:
    """Return a right as ``right_of`` takes it. Raises ValueError for one without any value."""
    body = {
        "read": _patterns(right.read),
        "write": _patterns(right.write),
        "manage": _patterns(right.manage),
        "leases": [*(f"{each}*" for each in right.leases.prefixes), *sorted(right.leases.names)],
    }
    for name, values in (("types", right.types), ("parents", right.parents)):
        if values is not None:
            if not values:
                raise ValueError(f"{name} is empty")
            body[name] = sorted(values)
    return {name: values for name, values in body.items() if values or name == "read"}


def _patterns(topics: Topics) -> list[str]:
    if topics.everything:
        return [_EVERYTHING]
    return [*(f"{each}/*" for each in sorted(topics.namespaces)), *map(str, sorted(topics.names))]


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
    try:
        longest = max(len(value.encode()) for value in given)
    except UnicodeError:
        raise RightError(field, "a value is no valid text") from None
    if longest > max_bytes:
        raise RightError(field, f"a value has more than {max_bytes:,} bytes")
    return frozenset(map(convert, given))


def _fault(message: str, value: dict[str, Any]) -> tuple[str, str]:
    """Return the member at fault, and the reason, without repeating a value."""
    for name in value:
        if name not in RightBody.__struct_fields__:
            # It is repeated only if it looks like a member: it may be a secret in the wrong place.
            shown = str(name) if _MEMBER.fullmatch(str(name)) else "right"
            return shown, "there is no such member of a right"
    for name in RightBody.__struct_fields__:
        if f"$.{name}" in message:
            return name, "must be a list of strings"
    return "right", "must be an object"
