"""The options of the data source and their checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from oplog_kit.command.convert import count
from oplog_sync.backend import NO_STORE, Backend, make_backend
from oplog_sync.errors import OptionError


def _option(name: str, convert: Callable[[str], Any], default: Any, *, shown: bool = True) -> Any:
    return field(default=default, repr=shown, metadata={"name": name, "convert": convert})


def _one_of(*allowed: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is neither {' nor '.join(allowed)}")
        return text

    return convert


_switch = _one_of("false", "true")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one read or write. Either ``store`` or ``agent`` is set.

    ``on_gap``: fail, or read the states instead. ``partition_rows``: about the number of rows per
    task. ``push_filters`` is correct only for a DataFrame with one query: Spark (4.3) keeps the
    filters of the first one for all later queries.
    """

    store: str | None = _option("store", str, None, shown=False)
    table: str = _option("table", _one_of("states", "operations"), "states")
    partition_rows: int = _option("partitionRows", count(1), 250_000)
    push_filters: bool = _option("pushFilters", lambda text: _switch(text) == "true", False)
    agent: str | None = _option("agent", str, None, shown=False)
    password: str | None = _option("password", str, None, shown=False)
    start: str = _option("start", str, "now")
    on_gap: str = _option("onGap", _one_of("fail", "states"), "fail")
    max_operations: int | None = _option("maxOperationsPerTrigger", count(1), None)

    def backend(self) -> Backend:
        return make_backend(self.store or "")


OPTION_NAMES = tuple(each.metadata["name"] for each in fields(SourceOptions))


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check and convert options. Spark changes the case of names. Raises OptionError."""
    values = {name.lower(): value for name, value in given.items()}
    known = {each.metadata["name"].lower(): each for each in fields(SourceOptions)}
    if unknown := sorted(set(values) - set(known)):
        names = ", ".join(OPTION_NAMES)
        raise OptionError(f"option {unknown[0]}: there is no such option; the options are {names}")
    if "store" not in values and "agent" not in values:
        raise OptionError(NO_STORE)
    if "store" in values and "agent" in values:
        raise OptionError("option agent: give either store or agent")
    found: dict[str, Any] = {}
    for name, option in known.items():
        if name in values:
            try:
                found[option.name] = option.metadata["convert"](values[name])
            except ValueError as error:
                raise OptionError(f"option {option.metadata['name']}: {error}") from None
    return SourceOptions(**found)
