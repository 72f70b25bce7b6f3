"""The interface of a kind of database, and of its outbox."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from oplog_relay.model.bindings import CheckedOutbox, IdentifiedOutbox, MeasurableOutbox, Outbox
from oplog_relay.model.settings import Table

encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class DatabaseOutbox(Outbox, MeasurableOutbox, CheckedOutbox, IdentifiedOutbox, Protocol):
    """An outbox in one of the databases."""


@dataclass(frozen=True)
class DatabaseUrl:
    """Base of the URLs of each kind of database. A subclass defines a kind.

    - ``kind``: for ``oplog-relay schema``. ``label``: in messages. ``examples``: of URLs.
    - ``schemes``: of URLs, with the drivers of SQLAlchemy. ``dialect``: name in SQLAlchemy.
    - ``drivers``: package -> parameter in a statement. The relay uses the first one.
    - SQL: ``schema`` of a new table, ``now`` for the time, ``begin`` of a writing transaction.
    """

    kind: ClassVar[str]
    label: ClassVar[str]
    dialect: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]] = ()
    examples: ClassVar[tuple[str, ...]]
    drivers: ClassVar[Mapping[str, str]]
    schema: ClassVar[str]
    now: ClassVar[str]
    begin: ClassVar[str] = "BEGIN"

    @classmethod
    def read(cls, parts: Mapping[str, str], query: Mapping[str, list[str]]) -> Self:
        """Return the URL of the parts in ``url``, such as ``host``. Raises ConfigError."""
        raise NotImplementedError

    def outbox(self, table: Table) -> DatabaseOutbox:
        """Return the outbox; the first call connects. Imports the driver. Raises ConfigError."""
        raise NotImplementedError

    def connect(self, patience: float, *, autocommit: bool) -> Any:
        """Return a connection of the driver. ``patience``: seconds for each step."""
        raise NotImplementedError

    @classmethod
    def stored_list(cls, strings: Sequence[str]) -> object:
        """Return a list of strings as a column has it: by default as JSON."""
        return encode_json(strings)

    @classmethod
    def batch(cls, connection: Any) -> AbstractContextManager[Any]:
        """Return a context without a wait for the server after each statement."""
        return nullcontext()
