"""Makes the settings from a file's values."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from oplog_kit.config.nodes import as_written, is_null, is_text, line
from oplog_kit.config.reader import TLS_FILES, Reader, Section
from oplog_pipe.config import hints, tables
from oplog_pipe.config.rules import SettingRules
from oplog_pipe.model import checks
from oplog_pipe.model.options import SinkOptions, TlsOptions
from oplog_pipe.model.settings import (
    BatchLimits,
    FetchStep,
    FunctionStep,
    PipeSettings,
    SinkSettings,
    SourceSettings,
    TableSettings,
)
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.format import FormatOptions
from oplog_pipe.sinks.registry import type_names, type_of, types

_T = TypeVar("_T")
INPUT = "input"
"""The name of the messages of a batch in ``select``."""
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)


def pipe(reader: Reader, node: yaml.Node | None) -> PipeSettings:
    """Return the settings. They are of no use if the reader then has mistakes."""
    assert reader.root is not None
    section = reader.section(node, "", tables.PIPE)
    rules = SettingRules(reader)
    sources = tuple(
        _source(reader, rules, each, f"sources[{number}].")
        for number, each in enumerate(_list(reader, section, "sources"))
    )
    sinks = tuple(
        _sink(reader, rules, each, f"sinks[{number}].")
        for number, each in enumerate(_list(reader, section, "sinks"))
    )
    rules.check()
    folder = Path(section.values.pop("dir", reader.root))
    return PipeSettings(folder, reader.root, sources, sinks, **section.values)


def _list(reader: Reader, section: Section, name: str) -> Sequence[yaml.Node]:
    node = section.values.pop(name, None)
    if isinstance(node, yaml.SequenceNode) and node.value:
        return list(node.value)
    if isinstance(node, yaml.SequenceNode):
        reader.mistake(section, name, f"is empty: give a list of {name}")
    elif node is not None:
        reader.mistake(section, name, f"must be a list: begin each of the {name} with a dash")
    return ()


def _source(reader: Reader, rules: SettingRules, node: yaml.Node, prefix: str) -> SourceSettings:
    section = reader.section(node, prefix, tables.SOURCE)
    if "log" in section.values:
        section.values["log"] = checks.log(section.values["log"])
    made = _made(SourceSettings, section, name=section.values.get("log", SourceSettings.log))
    if "log" in section.unread and "name" not in section.values:
        section.unread.add("name")  # the log would be the name
    elif "name" not in section.values and "name" not in section.unread:
        try:
            checks.source_name(made.name)
        except ValueError:
            sentence = "is missing: the name of the log is too long for a name"
            reader.mistake(section, "name", sentence)
    rules.source(section, made)
    return made


def _sink(reader: Reader, rules: SettingRules, node: yaml.Node, prefix: str) -> SinkSettings:
    type_ = _text(node, "type")
    is_table = not _has(node, "type") and _has(node, "format")
    kind = FormatOptions if is_table else type_of(type_)
    is_both = kind is not None and not is_table and _is_both(node, kind)
    if is_both:
        kind = None  # one of two
    fields = kind.settings if kind else ()
    also = () if kind else _names_of_all_types()
    sink = [each for each in tables.SINK if not (is_table and each.name == "type")]
    section = reader.section(node, prefix, (*sink, *fields), also)
    if is_both:
        reader.mistake(section, "format", "stands in the place of type: leave one of them out")
    elif type_ and kind is None:
        known = [*type_names(), "module:Class"]
        problem = f"{type_!r} is no type of a sink{hints.of_type(type_, known)}"
        problem += f"; give {', '.join(known)}"
        reader.mistake(section, "type", problem)
    elif ":" in type_:
        try:
            checks.target(type_)
        except ValueError as error:
            reader.mistake(section, "type", str(error))
    if "log" in section.values:
        section.values["log"] = checks.log(section.values["log"])
    if is_table:
        section.values["type"] = section.values.get("format", "")
    target = {"target": type_} if kind is CustomOptions else {}
    options = SinkOptions() if kind is None else _made(kind, section, **target)
    section.values.pop("options", None)
    node = section.values.pop("transforms", None)
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node] if node else []
    steps = [
        _step(reader, rules, each, f"{prefix}transforms[{number}]")
        for number, each in enumerate(nodes)
    ]
    found = _tables(reader, section.values.pop("tables", None), f"{prefix}tables")
    given = reader.section(section.values.pop("batch", None), f"{prefix}batch.", tables.BATCH)
    made = _made(
        SinkSettings,
        section,
        options=options,
        transforms=tuple(each for each in steps if each is not None),
        tables=found,
        batch=_made(BatchLimits, given),
    )
    rules.sink(section, made)
    return made


def _is_both(node: yaml.Node, kind: type[SinkOptions]) -> bool:
    """Return whether a sink of a type is a table of Spark, too. Some types have such a setting."""
    return _has(node, "format") and all(each.name != "format" for each in kind.settings)


def _has(node: yaml.Node, name: str) -> bool:
    """Return whether a mapping has a setting."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return any(is_text(key) and key.value == name for key, _ in pairs)


def _text(node: yaml.Node, name: str) -> str:
    """Return a text of a mapping. Empty: it has none."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if is_text(key) and key.value == name and is_text(value):
            return str(value.value)
    return ""


def _tables(reader: Reader, node: yaml.Node | None, path: str) -> tuple[TableSettings, ...]:
    if node is None:
        return ()
    if not isinstance(node, yaml.MappingNode):
        reader.add(path, "must be a mapping of names to tables", line(node))
        return ()
    found: dict[str, TableSettings] = {}
    for key, value in node.value:
        name = str(key.value)
        if not (is_text(key) and _TABLE.fullmatch(name)) or name.lower() == INPUT:
            problem = f"{name!r} must be a name in SQL such as owners, other than {INPUT}"
            reader.add(path, problem, line(key))
            continue
        if name.lower() in found:
            reader.add(f"{path}.{name}", "is given twice", line(key))
        section = reader.section(value, f"{path}.{name}.", tables.TABLE)
        found[name.lower()] = _made(TableSettings, section, name=name)
    return tuple(found.values())


def _names_of_all_types() -> list[str]:
    kinds: list[type[SinkOptions]] = [*types().values(), CustomOptions, FormatOptions]
    names = [field.name for each in kinds for field in each.settings]
    return [*names, *(f"{name}_file" for name in names)]


def _step(
    reader: Reader, rules: SettingRules, node: yaml.Node, path: str
) -> FunctionStep | FetchStep | None:
    if isinstance(node, yaml.ScalarNode):
        try:
            text = reader.text(node)
            if text == "fetch":
                return FetchStep()
            as_written(text, node.value, checks.target)
            return FunctionStep(text)
        except ValueError as error:
            reader.add(path, str(error), line(node))
            return None
    section = reader.section(node, f"{path}.", tables.STEP, nullable=("fetch",))
    if not isinstance(node, yaml.MappingNode):
        return None
    if section.unread & {"fetch", "function"}:
        return None
    if section.has("fetch") == section.has("function"):
        reader.add(path, "must have either function or fetch", section.line)
        return None
    if section.has("function"):
        return _made(FunctionStep, section)
    inner = section.values.pop("fetch")
    given = reader.section(None if is_null(inner) else inner, f"{path}.fetch.", tables.FETCH)
    rules.credentials(given)
    return _made(FetchStep, given, **section.values)


def _made(kind: type[_T], section: Section, **others: Any) -> _T:
    """Return settings of one kind with the values of a section. A missing one is empty."""
    given = {**others}
    values = section.values
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a dataclass
        if field.name in values:
            given[field.name] = values[field.name]
        elif field.name == "tls":
            tls = {name: values[name] for name in TLS_FILES if name in values}
            given["tls"] = TlsOptions(**tls)
        elif field.name not in given and field.default is field.default_factory:  # both missing
            given[field.name] = () if field.name in ("agents", "urls") else ""
    return kind(**given)
