"""Makes the settings from a file's values."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from oplog_kit.tls import tls_context
from oplog_kit.yaml_file import is_null, is_text, line
from oplog_pipe.config import hints, tables
from oplog_pipe.config.reader import Reader, Section
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
)
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.sinks.registry import type_names, type_of, types

_TLS = tuple(field.name for field in dataclasses.fields(TlsOptions))
_T = TypeVar("_T")


def pipe(reader: Reader, node: yaml.Node | None) -> PipeSettings:
    """Return the settings. They are of no use if the reader then has mistakes."""
    section = reader.section(node, "", tables.PIPE)
    if listen := reader.environ.get("OPLOG_PIPE_LISTEN"):
        section.values["listen"] = listen
        try:
            checks.listen(listen)
        except ValueError as error:
            reader.mistakes.add("", f"OPLOG_PIPE_LISTEN: {error}")
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
    own = {name: value for name, value in section.values.items() if name not in _LISTS}
    folder = Path(own.pop("dir", reader.root))
    return PipeSettings(dir=folder, root=reader.root, sources=sources, sinks=sinks, **own)


_LISTS = ("sources", "sinks")


def _list(reader: Reader, section: Section, name: str) -> Sequence[yaml.Node]:
    node = section.values.get(name)
    if node is None:
        return ()
    if isinstance(node, yaml.MappingNode) and name not in _LISTS:
        return [node]
    if isinstance(node, yaml.ScalarNode) and name not in _LISTS:
        return [node]
    if not isinstance(node, yaml.SequenceNode):
        reader.mistake(section, name, f"must be a list: begin each of the {name} with a dash")
        return ()
    if not node.value and name in _LISTS:
        reader.mistake(section, name, f"is empty: give a list of {name}")
    return list(node.value)


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
    _check_tls(reader, section)
    rules.source(section, made)
    return made


def _sink(reader: Reader, rules: SettingRules, node: yaml.Node, prefix: str) -> SinkSettings:
    type_ = _type(node)
    kind = type_of(type_)
    fields = kind.settings if kind else ()
    also = () if kind else _names_of_all_types()
    section = reader.section(node, prefix, (*tables.SINK, *fields), also)
    if type_ and kind is None:
        known = [*type_names(), "module:Class"]
        told = f"{type_!r} is no type of a sink{hints.of_type(type_, known)}"
        told += f"; give {', '.join(known)}"
        reader.mistake(section, "type", told)
    elif ":" in type_:
        try:
            checks.target(type_)
        except ValueError as error:
            reader.mistake(section, "type", str(error))
    if "log" in section.values:
        section.values["log"] = checks.log(section.values["log"])
    target = {"target": type_} if kind is CustomOptions else {}
    options = SinkOptions() if kind is None else _made(kind, section, **target)
    section.values.pop("options", None)
    _check_tls(reader, section)
    nodes = _list(reader, section, "transforms")
    steps = [
        _step(reader, rules, each, f"{prefix}transforms[{number}]")
        for number, each in enumerate(nodes)
    ]
    given = reader.section(section.values.get("batch"), f"{prefix}batch.", tables.BATCH)
    section.values.pop("batch", None)
    section.values.pop("transforms", None)
    made = _made(
        SinkSettings,
        section,
        options=options,
        transforms=tuple(each for each in steps if each is not None),
        batch=_made(BatchLimits, given),
    )
    rules.sink(section, made)
    return made


def _type(node: yaml.Node) -> str:
    """Return the type of a sink; empty: the mapping has none."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if is_text(key) and key.value == "type" and is_text(value):
            return str(value.value)
    return ""


def _names_of_all_types() -> list[str]:
    kinds: list[type[SinkOptions]] = [*types().values(), CustomOptions]
    names = [field.name for each in kinds for field in each.settings]
    return [*names, *(f"{name}_file" for name in names)]


def _step(
    reader: Reader, rules: SettingRules, node: yaml.Node, path: str
) -> FunctionStep | FetchStep | None:
    if isinstance(node, yaml.ScalarNode):
        try:
            return _short_step(reader, node)
        except ValueError as error:
            reader.mistakes.add(path, str(error), line(node))
            return None
    section = reader.section(node, f"{path}.", tables.STEP, nullable=("fetch",))
    if not isinstance(node, yaml.MappingNode):
        return None
    if section.unread & {"fetch", "function"}:
        return None
    if section.has("fetch") == section.has("function"):
        reader.mistakes.add(path, "must have either function or fetch", section.line)
        return None
    if section.has("function"):
        return _made(FunctionStep, section)
    inner = section.values.pop("fetch")
    given = reader.section(None if is_null(inner) else inner, f"{path}.fetch.", tables.FETCH)
    _check_tls(reader, given)
    rules.fetch(given)
    return _made(FetchStep, given, **section.values)


def _short_step(reader: Reader, node: yaml.Node) -> FunctionStep | FetchStep:
    """Raises ValueError."""
    text = reader.text(node)
    if text == "fetch":
        return FetchStep()
    checks.target(text)
    return FunctionStep(text)


def _made(kind: type[_T], section: Section, **others: Any) -> _T:
    """Return settings of one kind with the values of a section. A missing one is empty."""
    given = {**others}
    tls = {name: section.values[name] for name in _TLS if name in section.values}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a dataclass
        if field.name in section.values:
            given[field.name] = section.values[field.name]
        elif field.name == "tls":
            given["tls"] = TlsOptions(**tls)
        elif (
            field.name not in given
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ):
            given[field.name] = () if field.name in ("agents", "urls") else ""
    return kind(**given)


def _check_tls(reader: Reader, section: Section) -> None:
    if section.unread & {*_TLS}:
        return
    values = section.values
    if not any(name in values for name in _TLS):
        return
    try:
        tls_context(values.get("ca_file"), values.get("cert_file"), values.get("key_file"))
    except ValueError as error:
        name, _, sentence = str(error).partition(": ")
        if name in _TLS:
            reader.mistake(section, name, sentence)
        else:
            reader.mistakes.add("", str(error))
