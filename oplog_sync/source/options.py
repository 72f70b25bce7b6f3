"""The options of the data source and their checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

from oplog_kit.command.convert import Secret, count, in_file, some_time
from oplog_kit.disk import read_text
from oplog_sync.backend import NO_STORE, Backend, Wanted, make_backend
from oplog_sync.errors import OptionError
from oplog_sync.source.http import Agents, Tls, addresses

# What a DataFrame does with the log: read it once, follow it, append to it.
Use = Literal["batch", "stream", "write"]

_EVENTS = ("insert", "update", "delete")


def _option(name: str, convert: Callable[[str], Any], default: Any, only: str = "") -> Any:
    return field(default=default, metadata={"name": name, "convert": convert, "only": only})


def _one_of(*allowed: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is neither {' nor '.join(allowed)}")
        return text

    return convert


_switch = _one_of("false", "true")


def _secret(text: str) -> Secret:
    if not text:
        raise ValueError("must not be empty")
    return Secret(text)


def _names(text: str, allowed: tuple[str, ...] = ()) -> frozenset[str]:
    """Return names separated by commas: types or events, in lower case."""
    names = frozenset(name.strip().lower() for name in text.split(","))
    if "" in names:
        raise ValueError(f"{text!r} holds an empty name")
    if wrong := sorted(name for name in names if "/" in name):
        raise ValueError(f"{wrong[0]!r} holds a slash: it is no type")
    if allowed and (wrong := sorted(names.difference(allowed))):
        raise ValueError(f"{wrong[0]!r} is none of {', '.join(allowed)}")
    return names


def _parents(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if "" in names:
        raise ValueError(f"{text!r} holds an empty name")
    return names


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one read or write. Either ``store`` or ``agents`` is set.

    ``on_gap``: fail, read the states instead, or copy all live objects. ``partition_rows``: about
    the number of rows per task. ``start``, ``end``: None if they are not given. ``retry_for``:
    seconds for which agents or a store that do not answer are asked again.
    """

    store: Secret | None = _option("store", _secret, None)
    store_file: Secret | None = _option("storeFile", in_file(Secret), None)
    agent: tuple[str, ...] = _option("agent", addresses, ())
    password: Secret | None = _option("password", _secret, None, "agent")
    password_file: Secret | None = _option("passwordFile", in_file(Secret), None, "agent")
    ca_file: str | None = _option("caFile", read_text, None, "agent")
    cert_file: str | None = _option("certFile", read_text, None, "agent")
    key_file: Secret | None = _option("keyFile", in_file(Secret), None, "agent")
    retry_for: float = _option("retryFor", some_time, 600.0)
    topic: str | None = _option("topic", str, None)
    isolation: str = _option(
        "isolation", _one_of("read_committed", "read_uncommitted"), "read_committed", "topic read"
    )
    binary: bool = _option("binary", lambda text: _switch(text) == "true", False, "topic read")
    table: str = _option("table", _one_of("states", "operations"), "states", "oplog batch")
    types: frozenset[str] | None = _option("types", _names, None, "oplog read")
    parents: frozenset[str] | None = _option("parents", _parents, None, "oplog read")
    events: frozenset[str] | None = _option(
        "events", partial(_names, allowed=_EVENTS), None, "oplog read"
    )
    start: str | None = _option("start", str, None, "log read")
    end: str | None = _option("end", str, None, "log read")
    on_gap: str = _option("onGap", _one_of("fail", "states", "oldest", "copy"), "fail", "log read")
    max_operations: int | None = _option("maxOperationsPerTrigger", count(1), None, "stream")
    partition_rows: int = _option("partitionRows", count(1), 250_000, "store read")

    def backend(self) -> Backend:
        try:
            return make_backend(self.location)
        except OptionError as error:  # of the flag that the commands have
            raise OptionError(str(error).replace("--mongo-url", "option store", 1)) from None

    @property
    def location(self) -> str:
        """Return the store. It may hold a password."""
        return self.store.reveal() if self.store is not None else ""

    def agents(self) -> Agents:
        password = None if self.password is None else self.password.reveal()
        key = None if self.key_file is None else Secret(self.key_file.reveal())
        return Agents(self.agent, password, Tls(self.ca_file, self.cert_file, key))

    @property
    def is_mirror(self) -> bool:
        """Whether a stream has versions and copies."""
        return self.on_gap == "copy"

    def wanted(self) -> Wanted:
        """Return the conditions that hold for all rows."""
        return Wanted(types=self.types, parents=self.parents, events=self.events)


_FIELDS = {each.metadata["name"]: each for each in fields(SourceOptions)}
OPTION_NAMES = tuple(_FIELDS)


def _begin(text: str) -> tuple[str, str]:
    return "start", {"earliest": "oldest", "latest": "now"}.get(text.lower(), text)


def _end(text: str) -> tuple[str, str]:
    return "end", {"latest": "now"}.get(text.lower(), text)


def _on_loss(text: str) -> tuple[str, str]:
    return "onGap", "fail" if _switch(text.lower()) == "true" else "*"


# Names of Kafka's connector, and what they mean here. "*": what the log can do.
_ALIASES: dict[str, Callable[[str], tuple[str, str]]] = {
    "startingOffsets": _begin,
    "endingOffsets": _end,
    "maxOffsetsPerTrigger": lambda text: ("maxOperationsPerTrigger", text),
    "failOnDataLoss": _on_loss,
    "path": lambda text: ("store", text),  # of load(path)
}

_ONLY = {
    "agent": "it is for reads and writes through agents",
    "topic": "it is for topics",
    "oplog": "it does not apply to topics",
    "log": "it is for streams, and for batches of operations or of a topic",
    "stream": "it is for streams",
    "batch": "it is for batch reads",
    "store": "it is for reads from a store",
    "read": "it does not apply to a write",
}

# Spark (4.3) hands a Python data source no options of a table in a catalog.
_NO_OPTIONS = (
    f"{NO_STORE}. Spark hands a table made with CREATE TABLE ... USING oplog none of its options; "
    "use CREATE TEMPORARY VIEW ... USING oplog OPTIONS (...), or SELECT ... FROM a table "
    "WITH (store = '...')"
)


def read_options(given: Mapping[str, str], use: Use = "batch") -> SourceOptions:
    """Check and convert options. Spark changes the case of names. Raises OptionError.

    An option that would have no effect in this use is refused.
    """
    if not given:
        raise OptionError(_NO_OPTIONS)
    named = _without_aliases(given)
    options = SourceOptions(**_converted(named))
    for first, second in (("store", "store_file"), ("password", "password_file")):
        options = _from_file(options, first, second)
    if options.store is None and not options.agent:
        raise OptionError(f"{NO_STORE}, or in the option agent the addresses of its agents")
    if options.store is not None and options.agent:
        raise OptionError("option agent: give either store or agent")
    if options.key_file is not None and options.cert_file is None:
        raise OptionError("option keyFile: it is for certFile")
    if options.on_gap == "*":
        options = replace(options, on_gap="states" if options.topic is None else "oldest")
    _refuse_without_effect(options, use, named)
    return options


def _without_aliases(given: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return name and value of each option, by the name as it was given."""
    ours = {name.lower(): name for name in OPTION_NAMES}
    aliases = {name.lower(): (name, meaning) for name, meaning in _ALIASES.items()}
    found: dict[str, tuple[str, str]] = {}
    for written, value in given.items():
        low = written.lower()
        if low in ours:
            shown, name, meant = ours[low], ours[low], value
        elif low in aliases:
            shown, meaning = aliases[low]
            name, meant = checked(shown, meaning, value)
        elif low == "pushfilters":
            raise OptionError(
                "option pushFilters: it is gone; types, parents, events, start and end filter in "
                "the store or the agent"
            )
        else:
            known = ", ".join(OPTION_NAMES)
            raise OptionError(f"option {written}: there is no such option; the options are {known}")
        if name in found:
            raise OptionError(f"option {shown}: give either {shown} or {found[name][0]}")
        found[name] = shown, meant
    return found


def _converted(given: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (shown, value) in given.items():
        option = _FIELDS[name]
        is_open = name == "onGap" and value == "*" and shown != name
        convert = str if is_open else option.metadata["convert"]
        found[option.name] = checked(shown, convert, value)
    return found


def checked(name: str, convert: Callable[[str], Any], value: str) -> Any:
    """Return the converted value of an option. Raises OptionError."""
    try:
        return convert(value)
    except (OSError, ValueError) as error:
        raise OptionError(f"option {name}: {error}") from None


def _from_file(options: SourceOptions, name: str, file: str) -> SourceOptions:
    given = getattr(options, file)
    if given is None:
        return options
    if getattr(options, name) is not None:
        shown = SourceOptions.__dataclass_fields__[file].metadata["name"]
        raise OptionError(f"option {shown}: give either {name} or {shown}")
    return replace(options, **{name: given, file: None})


def _refuse_without_effect(
    options: SourceOptions, use: Use, given: Mapping[str, tuple[str, str]]
) -> None:
    holds = {
        "agent": bool(options.agent),
        "store": not options.agent,
        "topic": options.topic is not None,
        "oplog": options.topic is None,
        "stream": use == "stream",
        "batch": use == "batch",
        "read": use != "write",
        "log": use != "batch" or options.topic is not None or options.table == "operations",
    }
    for name, (shown, _) in given.items():
        for word in _FIELDS[name].metadata["only"].split():
            if not holds[word]:
                raise OptionError(f"option {shown}: {_ONLY[word]}")
    right: tuple[str, ...] = ("fail", "oldest")
    log = "a topic"
    if options.topic is None and use == "stream":
        right, log = ("fail", "states", "copy"), "a stream of the oplog"
    elif options.topic is None:
        right, log = ("fail", "states"), "the oplog"
    if options.on_gap not in right:
        raise OptionError(f"option onGap: for {log} it is {' or '.join(right)}")
    for name, value in (("events", options.events), ("end", options.end)):
        if options.is_mirror and value is not None:
            raise OptionError(f"option {name}: it does not apply with onGap copy")
