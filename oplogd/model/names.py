"""Names of topics. No I/O."""

import re
from typing import NamedTuple

from oplogd.errors import TopicError, TopicExistsError, TopicNotFoundError

MAX_NAME = 249

# Reserved for the built-in topics.
SYSTEM = "system"

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")


class TopicName(NamedTuple):
    """The name of a topic in its namespace. ``str`` returns ``namespace/topic``."""

    namespace: str
    topic: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.topic}"


# The built-in topic of the operations.
OPLOG = TopicName(SYSTEM, "oplog")


def no_topic(name: TopicName | str) -> TopicNotFoundError:
    """Return the error for the name of a missing or deleted topic."""
    return TopicNotFoundError(f"there is no topic {name}")


def topic_exists(name: TopicName) -> TopicExistsError:
    return TopicExistsError(f"the topic {name} exists already")


def is_name(name: str) -> bool:
    """Return whether a namespace or topic may have this name."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str, field: str) -> str:
    """Return the name of a namespace or topic. Raises TopicError, which names ``field``."""
    if not is_name(name):
        raise TopicError(
            field,
            f"must be 1 to {MAX_NAME} ASCII letters, digits, '.', '_' or '-', and not '.' or '..'",
        )
    return name
