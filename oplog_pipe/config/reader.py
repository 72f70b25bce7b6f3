"""Reads mappings of the file by their tables, and collects mistakes with their lines."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oplog_kit import scalars
from oplog_kit.mistakes import Mistakes
from oplog_kit.yaml_file import is_null, is_text, line
from oplog_pipe.config import hints
from oplog_pipe.model import checks
from oplog_pipe.model.fields import SECRETS, Field, Kind, range_text

_MAX_DEPTH = 50


@dataclass
class Section:
    """One mapping. ``prefix``: of the paths of its settings. ``line``: 0 if it is not known.

    ``values``: by names; of a section: its node. ``unread``: names of settings
    with a mistake.
    """

    prefix: str
    line: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)

    def has(self, *names: str) -> bool:
        """Return whether one of these settings is there, with a mistake or without."""
        return any(name in self.values or name in self.unread for name in names)


class Reader:
    """``root``: folder at which relative paths begin."""

    def __init__(self, file: str, root: Path, environ: Mapping[str, str]) -> None:
        self.root = root
        self.environ = environ
        self.mistakes = Mistakes(file)

    def mistake(self, section: Section, name: str, sentence: str) -> None:
        """Add a mistake in a setting of a section."""
        at = section.lines.get(name, section.line)
        self.mistakes.add(f"{section.prefix}{name}".rstrip("."), sentence, at)
        section.unread.add(name)

    def section(
        self,
        node: yaml.Node | None,
        prefix: str,
        fields: Sequence[Field],
        also: Sequence[str] = (),
        nullable: Sequence[str] = (),
    ) -> Section:
        """Read a mapping; None is an empty one.

        ``also``: ignored names. ``nullable``: names of settings without a value.
        """
        section = Section(prefix, line(node) if node is not None else 0)
        if node is not None and not isinstance(node, yaml.MappingNode):
            path = prefix.rstrip(".")
            names = ", ".join(each.name for each in fields[:3])
            told = f"must be a mapping of settings: {names}" + (" …" if len(fields) > 3 else "")
            self.mistakes.add(path, told, section.line)
            section.unread.update(each.name for each in fields)
            return section
        by_name = {each.name: each for each in fields}
        files = {f"{each.name}_file": each for each in fields if each.kind in SECRETS}
        known = [*by_name, *files, *also]
        for key, value in [] if node is None else node.value:
            if not is_text(key):
                path = prefix.rstrip(".")
                self.mistakes.add(path, "the name of a setting must be text", line(key))
                continue
            name = key.value
            if name in section.lines:
                first = section.lines[name]
                self.mistakes.add(
                    prefix + name, f"is given twice, first in line {first}", line(key)
                )
            elif name not in known:
                hint, meant = hints.of_setting(name, known, fields)
                if not hint and "name" in by_name and isinstance(value, yaml.MappingNode):
                    hint = f"; if it is the name, give name: {name} and the settings below it"
                self.mistakes.add(prefix + name, f"unknown{hint}", line(key))
                # Do not report the probable setting as missing, too.
                section.unread.add(meant)
            elif name in nullable or not (name in also or is_null(value)):
                section.lines[name] = line(key if is_null(value) else value)
                self._setting(section, name, by_name.get(name) or files[name], value)
            section.lines.setdefault(name, line(key))
        for each in fields:
            if each.required and not section.has(each.name):
                self.mistake(section, each.name, f"is missing: {each.required}")
        return section

    def text(self, node: yaml.Node) -> str:
        """Return a text with the values of its variables. Raises ValueError."""
        return scalars.text(node, self.environ)

    def _setting(self, section: Section, name: str, field: Field, node: yaml.Node) -> None:
        # A secret and its file are one value.
        is_file = name != field.name
        other = field.name if is_file else f"{name}_file"
        try:
            if field.kind in SECRETS and other in section.lines:
                raise ValueError(f"excludes {other}: give one of them")
            if is_file:
                path = self._path(scalars.text(node, self.environ))
                value: Any = scalars.secret_in(path)
                if field.check is not None:
                    field.check(value)
            else:
                value = self._value(field, node)
            section.values[field.name] = value
        except ValueError as error:
            self.mistake(section, name, str(error))
            section.unread.add(field.name)

    def _value(self, field: Field, node: yaml.Node) -> Any:
        """Raises ValueError."""
        match field.kind:
            case Kind.SECTION:
                return node
            case Kind.COUNT:
                return _inside(field, scalars.count(node, self.environ))
            case Kind.DURATION:
                return _inside(field, scalars.duration(node, self.environ))
            case Kind.SIZE:
                return _inside(field, scalars.size(node, self.environ))
            case Kind.FLAG:
                return scalars.flag(node, self.environ)
            case Kind.TEXTS | Kind.URLS:
                return self._texts(field, node)
            case Kind.TEXT_MAPPING | Kind.SECRET_MAPPING:
                return self._mapping(node, lambda each: self._text(field, each))
            case Kind.ANY_MAPPING:
                return self._mapping(node, lambda each: self._anything(each, _MAX_DEPTH))
        return self._text(field, node)

    def _text(self, field: Field, node: yaml.Node) -> str:
        """Raises ValueError."""
        if field.kind is Kind.PATTERN:  # which has dollars of its own, and no variables
            if isinstance(node, yaml.SequenceNode):
                raise ValueError("must be one text, not a list; of several names give ^(a|b)$")
            found = scalars.plain_text(node)
            checks.pattern(found)
            hints.check_pattern(found)
            return found
        found = scalars.text(node, self.environ)
        match field.kind:
            case Kind.FILE:
                return self._path(found)
            case Kind.CHOICE:
                if found not in field.choices:
                    raise ValueError(f"{found!r} must be {' or '.join(field.choices)}")
        if field.check is not None:
            field.check(found)
        return found

    def _texts(self, field: Field, node: yaml.Node) -> tuple[str, ...]:
        """Raises ValueError."""
        found = scalars.elements(node, "texts", or_one=True)
        if not found:
            raise ValueError(f"is empty: {field.required}" if field.required else "is empty")
        return tuple(self._text(field, each) for each in found)

    def _path(self, text: str) -> str:
        return os.path.normpath(self.root / text)

    def _mapping(self, node: yaml.Node, value_of: Callable[[yaml.Node], Any]) -> dict[str, Any]:
        """Raises ValueError, which names the key."""
        if not isinstance(node, yaml.MappingNode):
            raise ValueError("must be a mapping, such as {name: value}")
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not is_text(key):
                raise ValueError("the names in a mapping must be text")
            if key.value in found:
                raise ValueError(f"{key.value} is given twice")
            try:
                found[key.value] = value_of(value)
            except ValueError as error:
                raise ValueError(f"{key.value}: {error}") from None
        return found

    def _anything(self, node: yaml.Node, depth: int) -> Any:
        """Return a value of any kind. ``depth``: how deeply it may be nested. Raises ValueError."""
        if not depth:
            raise ValueError("nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, lambda each: self._anything(each, depth - 1))
        if isinstance(node, yaml.SequenceNode):
            return [self._anything(each, depth - 1) for each in node.value]
        if is_text(node):
            return scalars.scalar(node, self.environ)
        try:
            return yaml.constructor.SafeConstructor().construct_object(node)
        except yaml.YAMLError:
            raise ValueError("cannot be read") from None


def _inside(field: Field, number: float) -> float:
    """Return a number. Raises ValueError if it is not in its range."""
    if not field.least <= number <= field.most:
        raise ValueError(f"must be {range_text(field)}")
    return number
