"""A YAML file as nodes with their lines, so that a mistake can be located."""

import re
from pathlib import Path

import yaml

from oplog_kit.disk import read_text

# A single character, also an escaped one such as a tab, and a kind of token tell no secret.
_QUOTED = re.compile(r"""('(?:\\.|[^'\\]|<[a-z ]+>)')|'[^']*'|"[^"]*\"""")
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
        # The parser quotes the text that it stumbles over, which may be a password.
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
