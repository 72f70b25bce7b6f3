"""Names of topics, and a topic as the agent describes it. No I/O."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

DEFAULT_NAMESPACE = "default"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_RULE = "1 to 249 ASCII letters, digits, '.', '_' or '-', and not '.' or '..'"


class TopicName(NamedTuple):
    """The name of a topic in its namespace. ``str`` returns ``namespace/topic``."""

    namespace: str
    topic: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.topic}"

    @property
    def path(self) -> str:
        return f"{topics_path(self.namespace)}/{quote(self.topic, safe='')}"


OPLOG = TopicName("system", "oplog")
"""The built-in topic of the operations."""


class Topic(NamedTuple):
    """A topic as the agent describes it."""

    name: TopicName
    properties: Mapping[str, str] = MappingProxyType({})

    @property
    def ttl(self) -> int | None:
        """Time to live of its messages in seconds. None for ``system/oplog``, which has none."""
        return self._number("ttl")

    @property
    def pointers(self) -> bool:
        """Whether messages may be published and stored under pointers."""
        return self.properties.get("pointers") != "off"

    @property
    def pointer_timeout(self) -> int | None:
        """How long a pointer stays open, in seconds. None: as long as the agent says."""
        return self._number("pointer_timeout")

    @property
    def max_bytes(self) -> int | None:
        """Bytes above which its oldest messages leave. None without a bound."""
        return self._number("max_bytes")

    def _number(self, name: str) -> int | None:
        text = self.properties.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() else None


def topic_name(text: str) -> TopicName:
    """Read ``namespace/topic``, or ``topic`` in the namespace ``default``. Raise ValueError."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a topic: give text")
    namespace, slash, topic = text.partition("/")
    if not slash:
        namespace, topic = DEFAULT_NAMESPACE, namespace
    if not (_is_name(namespace) and _is_name(topic)):
        raise ValueError(f"{text!r} is not a topic: give topic or namespace/topic, each {_RULE}")
    return TopicName(namespace, topic)


def namespace_name(text: str) -> str:
    """Return the name of a namespace. Raise ValueError."""
    if not _is_name(text):
        raise ValueError(f"{text!r} is not a namespace: give {_RULE}")
    return text


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text)) and text not in (".", "..")


def topics_path(namespace: str) -> str:
    return f"/v1/namespaces/{quote(namespace, safe='')}/topics"
