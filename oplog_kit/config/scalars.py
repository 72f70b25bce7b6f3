"""The values of settings in a YAML file. Every function raises ValueError with a sentence."""

import re
from collections.abc import Mapping

import yaml

from oplog_kit import units
from oplog_kit.config.nodes import is_text
from oplog_kit.disk import read_text, without_newline

_COUNT = re.compile(r"[0-9]{1,9}")
# `$$`, `${NAME}` or `${NAME:-default}`. In a default `$$` is a dollar and `$}` a brace.
_DOLLAR = re.compile(
    r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^$}]|\$[$}])*))?\}|)", re.ASCII
)
_ESCAPED = re.compile(r"\$([$}])")


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
    return str(node.value)


def count(node: yaml.Node, environ: Mapping[str, str]) -> int:
    """Return a whole number below a billion."""
    found = scalar(node, environ)
    if not _COUNT.fullmatch(found):
        raise ValueError(f"{node.value!r} is not a whole number")
    return int(found)


def duration(node: yaml.Node, environ: Mapping[str, str]) -> float:
    """Return the seconds of a duration."""
    return units.duration(scalar(node, environ), written=node.value)


def flag(node: yaml.Node, environ: Mapping[str, str]) -> bool:
    """Return ``true`` or ``false``."""
    found = scalar(node, environ)
    if found not in ("true", "false"):
        raise ValueError("must be true or false")
    return found == "true"


def size(node: yaml.Node, environ: Mapping[str, str]) -> int:
    """Return the bytes of a size."""
    return units.size(scalar(node, environ), written=node.value)


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

    return _DOLLAR.sub(variable, node.value)


def elements(node: yaml.Node, wanted: str, *, or_one: bool = False) -> list[yaml.Node]:
    """Return the elements of a list. ``or_one``: a single value stands for a list of one."""
    if or_one and isinstance(node, yaml.ScalarNode):
        return [node]
    if not isinstance(node, yaml.SequenceNode):
        raise ValueError(f"must be a list of {wanted}")
    return list(node.value)


def secret_in(path: str) -> str:
    """Return the text of a file; one newline at its end is ignored."""
    found = without_newline(read_text(path))
    if not found or not found.isprintable():
        raise ValueError(f"{path!r} must hold one line of text")
    return found
