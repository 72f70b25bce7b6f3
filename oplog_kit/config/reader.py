"""Reads the mappings of a settings file by their tables, and collects mistakes with their lines."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from oplog_kit.config import nodes
from oplog_kit.config.fields import SECRETS, Field, Kind, check_value
from oplog_kit.config.nodes import is_null, is_text, line, read_yaml
from oplog_kit.errors import ConfigError
from oplog_kit.tls import tls_context
from oplog_kit.units import duration, size
from oplogc.http.answers import printable
from oplogc.terminal.variables import near, unknown_variable

TLS_FILES = ("ca_file", "cert_file", "key_file")
_PAIR = "two durations, such as [500ms, 30s]"
_CONVERTED: Mapping[Kind, Callable[[str], Any]] = {
    Kind.COUNT: nodes.count,
    Kind.DURATION: duration,
    Kind.SIZE: size,
    Kind.FLAG: nodes.flag,
}
_T = TypeVar("_T")

# Name and node of an unknown setting, names and fields of its mapping -> the end of the sentence
# about it, and the probable setting. Both may be empty.
Hint = Callable[[str, yaml.Node, Collection[str], Sequence[Field]], tuple[str, str]]


@dataclass
class Section:
    """One mapping. ``prefix``: of the paths of its settings. ``line``: 0: not known.

    ``values``: by names, of a section its node. ``given``: names in the file, unless null.
    ``unread``: names of settings with a mistake, and the probable ones of misspelled names.
    """

    prefix: str
    line: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)

    def has(self, *names: str) -> bool:
        """Return whether one of these settings is there, with a mistake or without."""
        return any(name in self.values or name in self.unread for name in names)


class Reader:
    """``root``: folder at which relative paths begin. None: the working directory."""

    def __init__(
        self,
        file: str,
        environ: Mapping[str, str],
        root: Path | None = None,
        hint: Hint = lambda *_: ("", ""),
    ) -> None:
        self.root = root
        self.environ = environ
        self._file = file
        self._hint = hint
        self._found: set[tuple[int, str, str]] = set()
        self._variables: set[str] = set()
        # Paths with variables, whose values may be secrets, and how they are written.
        self._written: dict[str, str] = {}

    def add(self, path: str, sentence: str, line: int = 0) -> None:
        """Add a mistake. ``path``: of the setting, may be empty. ``line``: 0: not known."""
        self._found.add((line, printable(path), printable(sentence)))

    def mistake(self, section: Section, name: str, sentence: str) -> None:
        """Add a mistake in a setting of a section."""
        at = section.lines.get(name, section.line)
        self.add(f"{section.prefix}{name}".rstrip("."), sentence, at)
        section.unread.add(name)

    def check(self, prefix: str) -> None:
        """Raise ConfigError if there are mistakes: a line for each, in the order of the file.

        An unknown variable with ``prefix`` is one.
        """
        for name, text in self.environ.items():
            if sentence := unknown_variable({name: text}, prefix, self._variables):
                self.add("", sentence)
        if self._found:
            raise ConfigError("\n".join(map(self._located, sorted(self._found))))

    def _located(self, mistake: tuple[int, str, str]) -> str:
        line, path, sentence = mistake
        place = f"{self._file}:{line}" if line else self._file
        if path:
            return f"{place}: {path}: {sentence}"
        return f"{place}: {sentence}" if line else sentence  # of a variable

    def section(
        self,
        node: yaml.Node | None,
        prefix: str,
        fields: Sequence[Field],
        also: Sequence[str] = (),
        nullable: Sequence[str] = (),
    ) -> Section:
        """Read a mapping. None is an empty one.

        ``also``: ignored names. ``nullable``: names of settings without a value.
        """
        section = Section(prefix, line(node) if node is not None else 0)
        self._variables.update(each.variable for each in fields)
        path = prefix.rstrip(".")
        if node is not None and not isinstance(node, yaml.MappingNode):
            names = ", ".join(each.name for each in fields[:3])
            problem = f"must be a mapping of settings: {names}" + (" …" if len(fields) > 3 else "")
            self.add(path, problem, section.line)
            section.unread.update(each.name for each in fields)
            return section
        by_name = {each.name: each for each in fields}
        files = {f"{each.name}_file": each for each in fields if each.kind in SECRETS}
        known = [*by_name, *files, *also]
        for key, value in [] if node is None else node.value:
            if not is_text(key):
                self.add(path, "the name of a setting must be text", line(key))
                continue
            name = key.value
            if first := section.lines.get(name):
                self.add(prefix + name, f"is given twice, first in line {first}", line(key))
            elif name not in known:
                hint = near(name, known)
                meant = hint.removeprefix("; did you mean ").removesuffix("?")
                if not hint:
                    hint, meant = self._hint(name, value, known, fields)
                self.add(prefix + name, f"unknown{hint}", line(key))
                # Do not report the probable setting as missing, too.
                section.unread.add(meant)
            elif name in nullable or not (name in also or is_null(value)):
                section.lines[name] = line(key if is_null(value) else value)
                self._setting(section, name, by_name.get(name) or files[name], value)
            section.lines.setdefault(name, line(key))
        for each in fields:
            if each.variable:
                self._variable(section, each)
            if each.required and not section.has(each.name):
                self.mistake(section, each.name, f"is missing: {each.required}")
        self._check_tls(section)
        return section

    def text(self, node: yaml.Node) -> str:
        """Return a text with the values of its variables. Raises ValueError."""
        return nodes.text(node, self.environ)

    def _check_tls(self, section: Section) -> None:
        if section.unread & {*TLS_FILES}:
            return
        ca, cert, key = map(section.values.get, TLS_FILES)
        try:
            tls_context(ca, cert, key, shown=self._written)
        except ValueError as error:
            name, _, sentence = str(error).partition(": ")
            if name in TLS_FILES:
                self.mistake(section, name, sentence)
            else:
                self.add("", str(error))

    def _variable(self, section: Section, field: Field) -> None:
        if found := self.environ.get(field.variable):
            section.lines.pop(field.name, None)
            try:
                check_value(field, nodes.utf8(found))
            except ValueError as error:
                self.add("", f"{field.variable}: {error}")
                section.unread.add(field.name)
            else:
                section.values[field.name] = found

    def _setting(self, section: Section, name: str, field: Field, node: yaml.Node) -> None:
        is_file = name != field.name  # a secret and its file are one value
        other = field.name if is_file else f"{name}_file"
        section.given.add(name)
        try:
            if other in section.given:
                raise ValueError(f"excludes {other}: give one of them")
            if is_file:
                path = self._path(node)
                value: Any = nodes.secret_in(path, self._written.get(path, path))
                check_value(field, value)
            else:
                value = self._value(field, node)
            section.values[field.name] = value
        except ValueError as error:
            self.mistake(section, name, str(error))
            section.unread.add(field.name)

    def _value(self, field: Field, node: yaml.Node) -> Any:
        """Raises ValueError."""
        value: Any
        match field.kind:
            case Kind.SECTION:
                return node
            case Kind.STRINGS | Kind.URLS:
                return self._strings(field, node)
            case Kind.TEXT_MAPPING | Kind.SECRET_MAPPING:
                return nodes.mapping(node, lambda each: self._text(field, each))
            case Kind.ANY_MAPPING:
                return nodes.mapping(node, lambda each: nodes.anything(each, self.environ))
            case Kind.DURATIONS:
                pair = nodes.elements(node, _PAIR)
                if len(pair) != 2:
                    raise ValueError(f"must be a list of {_PAIR}")
                value = tuple(nodes.converted(each, self.environ, duration) for each in pair)
            case kind if kind in _CONVERTED:
                value = nodes.converted(node, self.environ, _CONVERTED[kind])
            case _:
                return self._text(field, node)
        check_value(field, value)
        return value

    def _text(self, field: Field, node: yaml.Node) -> str:
        """Raises ValueError."""
        if field.kind is Kind.FILE:
            return self._path(node)
        if field.kind is Kind.PATTERN:  # which has dollars of its own, and no variables
            if isinstance(node, yaml.SequenceNode):
                raise ValueError("must be one text, not a list; of several names give ^(a|b)$")
            found = nodes.plain_text(node)
        else:
            found = self.text(node)
        nodes.as_written(found, node.value, lambda text: check_value(field, text))
        return found

    def _strings(self, field: Field, node: yaml.Node) -> tuple[str, ...]:
        """Raises ValueError."""
        found = nodes.elements(node, "strings", or_one=True)
        if not found:
            raise ValueError(f"is empty: {field.required or 'give a value, or leave it out'}")
        values, faults = [], []
        for each in found:
            try:
                values.append(self._text(field, each))
            except ValueError as error:
                faults.append(str(error))
        if faults:
            raise ValueError("; ".join(faults))
        return tuple(values)

    def _path(self, node: yaml.Node) -> str:
        """Raises ValueError."""
        path = self.text(node)
        if self.root is not None:
            path = os.path.normpath(self.root / path)
        if "$" in node.value:
            self._written[path] = node.value
        return path


def load_settings(
    path: str | Path,
    environ: Mapping[str, str] | None,
    prefix: str,
    settings_of: Callable[[Reader, yaml.Node | None], _T],
    root: Path | None = None,
    hint: Hint = lambda *_: ("", ""),
) -> _T:
    """Read settings from a file. Raises ConfigError, which lists every mistake.

    ``environ``: the environment; None: that of the process. ``prefix``: of its variables.
    ``settings_of``: makes the settings. They are of no use if it adds mistakes.
    """
    reader = Reader(str(path), os.environ if environ is None else environ, root, hint)
    try:
        node = read_yaml(path)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    settings = settings_of(reader, node)
    reader.check(prefix)
    return settings
