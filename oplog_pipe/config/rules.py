"""The rules for several settings together."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from oplog_kit.config.reader import Reader, Section
from oplog_pipe.model import checks
from oplog_pipe.model.settings import OPLOG, SinkSettings, SourceSettings

_LOCAL = ("127.0.0.1", "::1", "0.0.0.0")


class SettingRules:
    """Collects sources and sinks, and adds to a reader the mistakes it finds."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sources: list[tuple[Section, SourceSettings]] = []
        self._sinks: list[tuple[Section, SinkSettings]] = []

    def source(self, section: Section, settings: SourceSettings) -> None:
        self._sources.append((section, settings))

    def sink(self, section: Section, settings: SinkSettings) -> None:
        self._sinks.append((section, settings))
        options = settings.options
        if any(each.name == "user" for each in options.settings):
            self.credentials(section)
        if options.place:
            self._place(section, settings, options.place)

    def check(self) -> None:
        """Compare sources and sinks with one another."""
        self._unique("name", [(section, made.name) for section, made in self._sources])
        self._unique("name", [(section, made.name) for section, made in self._sinks])
        exclusive: dict[str, list[tuple[Section, str]]] = {}
        for section, made in self._sinks:
            if name := made.options.exclusive:
                exclusive.setdefault(name, []).append((section, getattr(made.options, name)))
        for name, values in exclusive.items():
            self._unique(name, values)
        dead = [(section, made.dead_letter or "") for section, made in self._sinks]
        self._unique("dead_letter", [each for each in dead if each[1]])
        for section, made in self._sinks:
            if made.start == "copy" and "namespace" not in section.unread:
                self._copy(section, made)
            if not made.transforms and not section.unread and (found := made.options.mirrored()):
                self._loop(section, *found)

    def _add(self, section: Section, name: str, sentence: str) -> None:
        if name not in section.unread:
            self._reader.mistake(section, name, sentence)

    def _unique(self, name: str, values: list[tuple[Section, str]]) -> None:
        first: dict[str, Section] = {}
        for section, value in values:
            if name in section.unread:
                continue
            if (other := first.setdefault(value, section)) is not section:
                problem = f"{value!r} is the {name} of {other.prefix.rstrip('.')}, too"
                self._reader.mistake(section, name, problem)

    def credentials(self, section: Section) -> None:
        """Check a user, a password and an API key of a section."""
        if section.has("password") and not section.has("user"):
            self._add(section, "user", "is missing: password belongs to a user")
        if section.has("user") and not section.has("password"):
            self._add(section, "password", "is missing: it belongs to user")
        if section.prefix.endswith(".fetch.") and section.has("user") and not section.has("hosts"):
            # A `ref` may come from any producer, and would get the password.
            self._add(section, "hosts", "is missing: name the hosts that may get the password")
        if section.has("api_key") and section.has("user"):
            self._add(section, "api_key", "excludes user")

    def _place(self, section: Section, settings: SinkSettings, name: str) -> None:
        """Check for a place of its own for each object: templates with both parts of its key."""
        if {name, "id", "namespace"} & section.unread:
            return
        options: Any = settings.options
        both = getattr(options, name) + options.id
        if "{id}" not in both:
            self._add(section, "id", "must hold {id}: else objects overwrite one another")
        if "{namespace}" not in both and not checks.is_literal(settings.namespace):
            where = name if section.has(name) and not section.has("id") else "id"
            problem = (
                "must hold {namespace}: else objects of two namespaces overwrite one another; or "
                "let namespace be one literal, such as ^video$, or "
            )
            # No namespace has a comma. With a slash, shop and orders/1 are shop/orders and 1.
            problem += "give id: '{namespace},{id}'" if where == name else f"{name} hold it"
            self._add(section, where, problem)

    def _loop(self, section: Section, agents: Sequence[str], log: str) -> None:
        """Refuse a sink to the log of its own source: messages would go round."""
        for part, source in self._sources:
            both = {*map(_address, source.agents)} & {*map(_address, agents)}
            if both and source.log == log and not part.unread:
                problem = (
                    f"{log} of these agents is the log of {part.prefix.rstrip('.')}, too: its "
                    "messages would come again and again"
                )
                self._add(section, "log" if section.has("log") else "agents", problem)
                return

    def _copy(self, section: Section, sink: SinkSettings) -> None:
        """Refuse a copy for a sink with messages of topics: topics have no copies."""
        good = [
            made for part, made in self._sources if not part.unread & {"log", "namespace", "name"}
        ]
        if len(good) < len(self._sources):
            return
        for each in good:
            if each.log != OPLOG and all(
                re.search(pattern, each.log) for pattern in (each.namespace, sink.namespace)
            ):
                problem = (
                    f"copy is not possible, because {each.log} is a topic, of which there is no "
                    "copy; let namespace exclude it, or use end"
                )
                self._add(section, "start", problem)
                return
        if good and all(each.log != OPLOG for each in good):
            self._add(section, "start", f"copy needs a source with log: {OPLOG}")


def _address(url: str) -> tuple[str, int | None, str]:
    """Return host, port and path of an agent, the same for all names of this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return ("localhost" if host in _LOCAL else host), port, parts.path.rstrip("/")
