"""The nodes of a YAML file, with their lines and values.

Functions raise ValueError. Its message continues a sentence that begins with the setting.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from oplog_kit.disk import read_text, without_newline

_T = TypeVar("_T")
_MAX_DEPTH = 50
# A single character, also an escaped one such as a tab, and a kind of token tell no secret.
_QUOTED = re.compile(r"""('(?:\\.|[^'\\]|<[a-z ]+>)')|'[^']*'|"[^"]*\"""")
_COUNT = re.compile(r"[0-9]{1,9}")
# `$$`, `${NAME}` or `${NAME:-default}`. In a default `$$` is a dollar and `$}` a brace.
_DOLLAR = re.compile(
    r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^$}]|\$[$}])*))?\}|)", re.ASCII
)
_ESCAPED = re.compile(r"\$([$}])")
_TAG = "tag:yaml.org,2002:"
# Words of the parser, and what to do about them.
_HINTS = {
    r"'\t'": "indent with spaces, not with tabs",
    "mapping values are not allowed": (
        "look for a colon that is missing in the line before, or put a value with a colon in quotes"
    ),
    "expected <block end>": (
        "look at the indentation, and put a value that begins with a brace or a bracket in quotes"
    ),
    "expected alphabetic": "put a value that begins with * or & in quotes",
    "expected ',' or": "put a value with one of { } [ ] , ? in quotes",
    "cannot start any token": "put the value in quotes",
    "another document": "a file has one document: remove the line ---",
}


def read_yaml(path: str | Path) -> yaml.Node | None:
    """Return the one document of a file, None if it is empty. Raises ValueError."""
    return parse_yaml(read_text(path), str(path))


def parse_yaml(text: str, path: str) -> yaml.Node | None:
    """Return the one document of a text. Raises ValueError, which names ``path`` and the line."""
    try:
        loader = yaml.SafeLoader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else path
        # The parser quotes the text at fault, which may be a password.
        problem = _QUOTED.sub(_hidden, error.problem or error.context or "it cannot be read")
        raise ValueError(f"{place}: not valid YAML: {problem}{_hint(problem)}") from None
    except yaml.YAMLError:
        raise ValueError(f"{path}: not valid YAML: it has a control character") from None
    except RecursionError:
        raise ValueError(f"{path}: not valid YAML: nested too deeply") from None
    return None if node is None or is_null(node) else node


def _hint(problem: str) -> str:
    return next((f"; {hint}" for words, hint in _HINTS.items() if words in problem), "")


def _hidden(match: "re.Match[str]") -> str:
    return match[1] or "…"


def is_null(node: yaml.Node) -> bool:
    return bool(node.tag == f"{_TAG}null")


def is_text(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str"


def line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def named(name: str, node: yaml.Node) -> yaml.MappingNode:
    """Return a mapping with one member."""
    key = yaml.ScalarNode(f"{_TAG}str", name, node.start_mark)
    return yaml.MappingNode(f"{_TAG}map", [(key, node)], node.start_mark)


def text(node: yaml.Node, environ: Mapping[str, str]) -> str:
    """Return a text, which is not empty, with the values of its variables."""
    written = plain_text(node)
    if not (found := scalar(node, environ)):
        raise ValueError(f"is empty: {written} is")
    return found


def plain_text(node: yaml.Node) -> str:
    """Return a text, which is not empty, as it is written."""
    if isinstance(node, yaml.MappingNode):
        raise ValueError("must be text; put text that begins with a brace in quotes")
    if isinstance(node, yaml.SequenceNode):
        raise ValueError("must be one text, not a list")
    if not is_text(node):
        raise ValueError("must be text; put a number or a word such as yes in quotes")
    if not node.value:
        raise ValueError("is empty")
    return utf8(node.value)


def utf8(text: str) -> str:
    """Return a text. Raises ValueError if it is not UTF-8, such as other bytes of a variable."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8 text") from None
    return text


def count(text: str) -> int:
    """Return a whole number below a billion."""
    if not _COUNT.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def converted(node: yaml.Node, environ: Mapping[str, str], convert: Callable[[str], _T]) -> _T:
    """Return a converted value. An error repeats the text as it is written, without variables."""
    return as_written(scalar(node, environ), node.value, convert)


def as_written(text: str, written: str, convert: Callable[[str], _T]) -> _T:
    """Convert a text. ``written``: the same without the values of its variables.

    An error repeats at most ``written``, as far as ``convert`` shows it: a value may be a secret.
    """
    try:
        return convert(text)
    except ValueError:
        if text == written:
            raise
    convert(written)
    raise ValueError("has a variable with an unusable value")


def scalar(node: yaml.Node, environ: Mapping[str, str]) -> str:
    """Return the text of a single value with the values of its variables.

    ``${NAME:-default}`` is the default if the variable is not set, or empty.
    """
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("must be a single value")

    def variable(match: "re.Match[str]") -> str:
        dollar, name, default = match.groups()
        if dollar:
            return "$"
        if not name:
            raise ValueError(
                "a variable is written ${NAME} or ${NAME:-default}, and a dollar $$; in the default"
                " a brace is written $}"
            )
        if default is not None:
            return environ.get(name) or _ESCAPED.sub(r"\1", default)
        if name not in environ:
            raise ValueError(
                f"the environment has no variable {name}: set it, or write ${{{name}:-default}}"
            )
        return environ[name]

    return utf8(_DOLLAR.sub(variable, node.value))


def elements(node: yaml.Node, wanted: str, *, or_one: bool = False) -> list[yaml.Node]:
    """Return the elements of a list. ``or_one``: a single value stands for a list of one."""
    if or_one and isinstance(node, yaml.ScalarNode):
        return [node]
    if not isinstance(node, yaml.SequenceNode):
        raise ValueError(f"must be a list of {wanted}")
    return list(node.value)


def mapping(node: yaml.Node, value_of: Callable[[yaml.Node], Any]) -> dict[str, Any]:
    """Return the members of a mapping. An error names the key."""
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("must be a mapping, such as {name: value}")
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not is_text(key):
            raise ValueError("the names in a mapping must be text")
        if utf8(key.value) in found:
            raise ValueError(f"{key.value} is given twice")
        try:
            found[key.value] = value_of(value)
        except ValueError as error:
            raise ValueError(f"{key.value}: {error}") from None
    return found


def anything(node: yaml.Node, environ: Mapping[str, str], depth: int = _MAX_DEPTH) -> Any:
    """Return a value of any kind. ``depth``: how deeply it may be nested."""
    if not depth:
        raise ValueError("nested too deeply")
    if isinstance(node, yaml.MappingNode):
        return mapping(node, lambda each: anything(each, environ, depth - 1))
    if isinstance(node, yaml.SequenceNode):
        return [anything(each, environ, depth - 1) for each in node.value]
    if is_text(node):
        return scalar(node, environ)
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except yaml.YAMLError:
        raise ValueError("cannot be read") from None


def secret_in(path: str, shown: str) -> str:
    """Return the text of a file without one newline at its end. ``shown``: path in an error."""
    found = without_newline(read_text(path, shown))
    if not found or not found.isprintable():
        raise ValueError(f"{shown!r} must hold one line of text")
    return found
