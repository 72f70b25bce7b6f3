"""Names of indexes and ids of documents. No I/O."""

import re
from collections.abc import Iterable

from oplog_pipe.sinks.parts.template import Template

_NAMESPACE = "{namespace}"
_FORBIDDEN = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f]')
_MAX_INDEX_BYTES = 255
_MAX_ID_BYTES = 512


class IndexNames:
    """The indexes of a template such as ``oplog-{namespace}``, or one index with a fixed name.

    ``namespace``: regular expression of the namespaces written to them.
    """

    def __init__(self, template: str, namespace: str) -> None:
        self.is_fixed = _NAMESPACE not in template
        self.pattern = template.replace(_NAMESPACE, "*")
        """Matches all of these indexes, and may match others."""
        self._text = template
        self._template = Template(template)
        self._namespace = re.compile(namespace)

    def of(self, namespace: str) -> str:
        """Return the index of a namespace. Raises ValueError if no index can have this name."""
        name = self._text.replace(_NAMESPACE, namespace)
        if reason := _fault(name):
            hint = "" if self.is_fixed else "; give the sink a fixed index, or change the namespace"
            raise ValueError(f"{name!r} cannot be the name of an index: {reason}{hint}")
        return name

    def namespace_of(self, index: str) -> str | None:
        """Return the namespace of an index, if the template has one. None: it is none of these."""
        namespace = self._template.namespace_in(index)
        return namespace if namespace and self._namespace.search(namespace) else None

    def matching(self, namespaces: Iterable[str]) -> list[str]:
        """Return the namespaces written to these indexes."""
        return [each for each in namespaces if self._namespace.search(each)]


def check_id(id: str) -> str:
    """Return the id of a document. Raises ValueError if it is too long or empty."""
    size = len(id.encode())
    if not 1 <= size <= _MAX_ID_BYTES:
        raise ValueError(f"the id has {size} bytes; a document's id has 1 to {_MAX_ID_BYTES}")
    return id


def _fault(name: str) -> str | None:
    if not name or name in (".", "..") or name[0] in "_-+":
        return "it must not be empty, '.' or '..', nor begin with '_', '-' or '+'"
    if name != name.lower():
        return "it must be lower-case"
    if _FORBIDDEN.search(name):
        return 'it must not hold a space, a control character, or one of \\ / * ? " < > | , # :'
    if len(name.encode()) > _MAX_INDEX_BYTES:
        return f"it has more than {_MAX_INDEX_BYTES} bytes"
    return None
