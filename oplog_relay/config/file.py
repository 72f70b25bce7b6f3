"""Reads the settings of a relay from a YAML file and the environment, and shows them."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from oplog_kit.config.fields import shown_text, shown_values
from oplog_kit.config.nodes import named
from oplog_kit.config.reader import Reader, Section, load_settings
from oplog_relay.config import tables
from oplog_relay.config.checks import mistakes
from oplog_relay.config.group_name import name_of_program
from oplog_relay.db import url as database_url
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import (
    AgentSettings,
    DatabaseSettings,
    Limits,
    RelaySettings,
    Table,
)

_URL = re.compile(r"(?P<driver>[\w+]+://)(?:(?P<user>[^:/@]*)(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> RelaySettings:
    """Read the settings from a file. Raises ConfigError, which lists every mistake.

    ``environ``: the environment; None: that of the process.
    """
    return load_settings(path, environ, "OPLOG_RELAY_", _relay)


def shown(settings: RelaySettings) -> str:
    """Return the effective settings as YAML, without secrets."""
    document: dict[str, Any] = {}
    for prefix, fields, values in tables.sections(settings):
        section = document
        for name in prefix.split(".")[:-1]:
            section = section.setdefault(name, {})
        section.update(shown_values(fields, values))
    return shown_text(document)


def _relay(reader: Reader, node: yaml.Node | None) -> RelaySettings:
    top = reader.section(node, "", tables.RELAY)
    given = top.values.pop("agents", None)
    if isinstance(given, yaml.SequenceNode | yaml.ScalarNode):
        given = named("urls", given)
    agents = reader.section(given, "agents.", tables.AGENTS)
    database = reader.section(top.values.pop("database", None), "database.", tables.DATABASE)
    columns = reader.section(
        database.values.pop("columns", None), "database.columns.", tables.COLUMNS
    )
    limits = reader.section(top.values.pop("limits", None), "limits.", tables.LIMITS)
    if not top.has("name"):
        if name := name_of_program(sys.argv[0]):
            top.values["name"] = name
        else:
            reader.add("name", "is missing: give the leader group a name")
    if "table" in database.values:
        columns.values["name"] = database.values["table"]
    settings = RelaySettings(
        name=top.values.get("name", "unnamed"),
        database=DatabaseSettings(_url(reader, database), Table(**columns.values)),
        agents=AgentSettings(**agents.values),
        limits=Limits(**limits.values),
        metrics_listen=top.values.get("metrics_listen"),
    )
    parts = (top, agents, database, columns, limits)
    lines = {f"{part.prefix}{name}": at for part in parts for name, at in part.lines.items()}
    unread = {f"{part.prefix}{name}" for part in parts for name in part.unread}
    for path, sentence in mistakes(settings, unread):
        if path not in unread:
            reader.add(path, sentence, lines.get(path, 0))
    return settings


def _url(reader: Reader, section: Section) -> str:
    """Return the URL of the database with its password."""
    url, password = section.values.get("url"), section.values.get("password")
    if url is None:
        return ""
    try:
        if password is not None:
            url = _with_password(url, password)
        database_url.parse(url)
    except ConfigError as error:
        name, _, sentence = str(error).removeprefix(section.prefix).partition(": ")
        reader.add(f"{section.prefix}{name}", sentence, section.lines.get(name, 0))
    return str(url)


def _with_password(url: str, password: str) -> str:
    """Return the URL with this password instead of its own. Raises ConfigError."""
    match = _URL.fullmatch(url)
    if match is None or url.startswith("sqlite"):
        raise ConfigError("database.password: belongs to a URL such as postgresql://user@host/db")
    return f"{match['driver']}{match['user'] or ''}:{quote(password, safe='')}@{match['rest']}"
