"""Reads the settings of a relay from a YAML file and the environment, and shows them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from oplog_kit import scalars
from oplog_kit.mistakes import Mistakes
from oplog_kit.units import duration_text
from oplog_kit.urls import hide_password
from oplog_kit.yaml_file import is_null, is_text, line, read_yaml
from oplog_relay.agent.client import tls_context
from oplog_relay.config.checks import mistakes
from oplog_relay.config.database_url import with_password
from oplog_relay.config.fields import BY_PATH, FIELDS, Field, Kind
from oplog_relay.config.group_name import name_of_program
from oplog_relay.db import url as database
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import (
    AgentSettings,
    DatabaseSettings,
    Limits,
    RelaySettings,
    Table,
)
from oplogc.http.address import base_endpoint
from oplogc.http.address import shown as address_shown
from oplogc.terminal.variables import near, unknown_variable

PREFIX = "OPLOG_RELAY_"
VARIABLES = {
    "OPLOG_RELAY_PASSWORD": "agents.password",
    "OPLOG_RELAY_DATABASE_URL": "database.url",
    "OPLOG_RELAY_DATABASE_PASSWORD": "database.password",
}
HIDDEN = "***"
_T = TypeVar("_T")


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> RelaySettings:
    """Read the settings from a file. Raises ConfigError, which lists every mistake.

    ``environ``: the environment; None: that of the process.
    """
    reader = _Reader(str(path), os.environ if environ is None else environ)
    try:
        reader.sections(read_yaml(path))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    reader.variables()
    return reader.settings()


def shown(settings: RelaySettings) -> str:
    """Return the effective settings as YAML, without secrets."""
    document: dict[str, Any] = {}
    for field in FIELDS:
        if not field.is_effective:
            continue
        section = document
        *parents, name = field.path.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
        section[name] = _shown(field, field.value_in(settings))
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _shown(field: Field, value: Any) -> Any:
    if field.path == "agents.urls":
        return [address_shown(base_endpoint(url, None).url) for url in value]
    if field.path == "database.url":
        return hide_password(value, HIDDEN)
    if field.kind is Kind.SECRET:
        return None if value is None else HIDDEN
    if field.kind is Kind.DURATION:
        return duration_text(value)
    if field.kind is Kind.DURATIONS:
        return [duration_text(each) for each in value]
    return value


class _Reader:
    """Collects values by their paths, and mistakes with their lines."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: dict[str, Any] = {}
        self._lines: dict[str, int] = {}
        self._mistakes = Mistakes(file)

    def sections(self, node: yaml.Node | None) -> None:
        """Read the whole file."""
        if node is not None:
            self._section(node, "")

    def variables(self) -> None:
        """Let variables take precedence over the file, and refuse unknown ones."""
        for name in self._environ:
            if sentence := unknown_variable({name: self._environ[name]}, PREFIX, VARIABLES):
                self._mistakes.add("", sentence)
        for name, path in VARIABLES.items():
            if self._environ.get(name):
                self._values[path] = self._environ[name]
                self._lines.pop(path, None)

    def settings(self) -> RelaySettings:
        """Raises ConfigError."""
        unread = self._mistakes.paths
        url = self._url(unread)
        name = self._values.get("name") or name_of_program(sys.argv[0])
        if name is None and "name" not in unread:
            self._mistake("name", "is missing: give the leader group a name")
        settings = RelaySettings(
            name=name or "unnamed",
            database=DatabaseSettings(url, self._group("database.table.", Table)),
            agents=self._group("agents.", AgentSettings),
            limits=self._group("limits.", Limits),
            metrics_listen=self._values.get("metrics_listen"),
        )
        for path, sentence in mistakes(settings, unread):
            if path not in unread:
                self._mistake(path, sentence)
        try:
            if not any(path.startswith("agents.") for path in self._mistakes.paths):
                tls_context(settings.agents)
        except ConfigError as error:
            path, _, sentence = str(error).partition(": ")
            self._mistake(path, sentence)
        if self._mistakes:
            raise ConfigError(str(self._mistakes))
        return settings

    def _section(self, node: yaml.Node, prefix: str) -> None:
        if not isinstance(node, yaml.MappingNode):
            forms = "a list of addresses or a mapping" if prefix == "agents." else "a mapping"
            self._mistake(prefix.rstrip("."), f"must be {forms} of settings", node)
            return
        known = _names_below(prefix)
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not is_text(key):
                self._mistake(prefix.rstrip("."), "the name of a setting must be text", key)
                continue
            name, path = key.value, f"{prefix}{key.value}"
            if name in lines:
                self._mistake(path, f"is given twice, first in line {lines[name]}", key)
            elif name not in known:
                self._mistake(path, f"unknown{near(name, known)}", key)
            elif not is_null(value):
                self._setting(path, value)
            lines.setdefault(name, line(key))

    def _setting(self, path: str, node: yaml.Node) -> None:
        if path == "agents" and isinstance(node, yaml.SequenceNode):
            path = "agents.urls"
        if path not in BY_PATH:
            self._section(node, f"{path}.")
            return
        self._lines[path] = line(node)
        field = BY_PATH[path]
        other = f"{path}_file"
        if field.kind is Kind.SECRET_FILE:
            path = other = path.removesuffix("_file")
        try:
            if other in self._lines:
                raise ValueError(f"excludes {other.rpartition('.')[2]}")
            self._values[path] = self._value(field, node)
        except ValueError as error:
            self._mistake(field.path, str(error), node)

    def _value(self, field: Field, node: yaml.Node) -> Any:
        """Raises ValueError."""
        if field.kind is Kind.COUNT:
            return scalars.count(node, self._environ)
        if field.kind is Kind.DURATION:
            return scalars.duration(node, self._environ)
        if field.kind is Kind.DURATIONS:
            pair = scalars.elements(node, "two durations, such as [500ms, 30s]")
            if len(pair) != 2:
                raise ValueError("must be a list of two durations, such as [500ms, 30s]")
            return tuple(scalars.duration(each, self._environ) for each in pair)
        if field.kind is Kind.TEXTS:
            return tuple(
                scalars.text(each, self._environ)
                for each in scalars.elements(node, "texts", or_one=True)
            )
        text = scalars.text(node, self._environ)
        return scalars.secret_in(text) if field.kind is Kind.SECRET_FILE else text

    def _url(self, unread: set[str]) -> str:
        url, password = self._values.get("database.url"), self._values.get("database.password")
        if url is None:
            if not unread & {"database.url", "database.url_file", "database"}:
                self._mistake("database.url", "is missing: give the database of the outbox")
            return ""
        try:
            if password is not None:
                url = with_password(url, password)
            database.parse(url)
        except ConfigError as error:
            path, _, sentence = str(error).partition(": ")
            self._mistake(path, sentence)
        return str(url)

    def _group(self, prefix: str, kind: type[_T]) -> _T:
        """Return settings of one kind, with the values that were read."""
        given = {
            (field.attribute or path).removeprefix(prefix): self._values[path]
            for path, field in BY_PATH.items()
            if path in self._values and (field.attribute or path).startswith(prefix)
        }
        return kind(**given)

    def _mistake(self, path: str, sentence: str, node: yaml.Node | None = None) -> None:
        at = self._lines.get(path, 0) if node is None else line(node)
        self._mistakes.add(path, sentence, at)


def _names_below(prefix: str) -> list[str]:
    below = [path.removeprefix(prefix) for path in BY_PATH if path.startswith(prefix)]
    return list(dict.fromkeys(path.partition(".")[0] for path in below))
