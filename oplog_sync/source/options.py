"""The options of the data source and their checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oplog_kit.command.convert import count
from oplog_sync.backend import NO_STORE, Backend, make_backend
from oplog_sync.errors import OptionError

OPTION_NAMES = (
    "store",
    "table",
    "partitionRows",
    "pushFilters",
    "agent",
    "password",
    "start",
    "onGap",
    "maxOperationsPerTrigger",
)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one read or write. Either ``store`` or ``agent`` is set.

    ``table``: states or operations. ``on_gap``: fail, or read the states instead.
    ``partition_rows``: about the number of rows per task. ``push_filters`` is correct only for a
    DataFrame with one query: Spark (4.3) keeps the filters of the first for all later queries.
    """

    store: str | None = field(repr=False)
    table: str
    partition_rows: int
    push_filters: bool
    agent: str | None = field(repr=False)
    password: str | None = field(repr=False)
    start: str
    on_gap: str
    max_operations: int | None

    def backend(self) -> Backend:
        return make_backend(self.store or "")


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check and convert options. Spark changes the case of names. Raises OptionError."""
    values = {name.lower(): value for name, value in given.items()}
    names = {name.lower(): name for name in OPTION_NAMES}
    if unknown := sorted(set(values) - set(names)):
        known = ", ".join(OPTION_NAMES)
        raise OptionError(f"option {unknown[0]}: there is no such option; the options are {known}")
    if "store" not in values and "agent" not in values:
        raise OptionError(NO_STORE)
    if "store" in values and "agent" in values:
        raise OptionError("option agent: give either store or agent")
    return SourceOptions(
        store=values.get("store"),
        table=_one_of(values, "table", "states", "operations"),
        partition_rows=_count(values, "partitionRows") or 250_000,
        push_filters=_one_of(values, "pushFilters", "false", "true") == "true",
        agent=values.get("agent"),
        password=values.get("password"),
        start=values.get("start", "now"),
        on_gap=_one_of(values, "onGap", "fail", "states"),
        max_operations=_count(values, "maxOperationsPerTrigger"),
    )


def _one_of(values: Mapping[str, str], name: str, *allowed: str) -> str:
    value = values.get(name.lower(), allowed[0])
    if value not in allowed:
        raise OptionError(f"option {name}: {value!r} is neither {' nor '.join(allowed)}")
    return value


def _count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name.lower())
    try:
        return None if text is None else count(least=1)(text)
    except ValueError as error:
        raise OptionError(f"option {name}: {error}") from None
