"""Translates PyMongo's exceptions: the rest of the agent gets a StoreError without credentials."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import Any

from pymongo.common import URI_OPTIONS_VALIDATOR_MAP
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    InvalidURI,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from oplogd.errors import StoreFlagError, StoreUnavailableError

DUPLICATE_KEY = 11000
COMMAND_NOT_FOUND = 59
_NAMESPACE_EXISTS = 48
_UNAUTHORIZED = (13, 18, 8000)


REFUSALS = (PyMongoError, ValueError, TypeError, OSError, Warning)
"""How PyMongo refuses a URL. An OSError is a file that the URL names."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]*\]|[^:]*)(:[0-9]*)?")
"""A host with its port. Whatever else follows a colon may be a password whose host is missing."""

UNREADABLE = "an address that cannot be told from the password"


def shown(url: str) -> str:
    """The hosts of a URL, without user, password, database and options.

    ``UNREADABLE`` if an unencoded character of the password hides the beginning of the hosts.
    """
    rest = url.partition("://")[2]
    path_at, query_at = (rest.find(mark) % (len(rest) + 1) for mark in "/?")
    hosts = rest[: min(path_at, query_at)]
    behind = rest[len(hosts) :]
    if "@" in behind and not (
        path_at < query_at and _has_options_only(behind) and ("@" in hosts or ":" not in hosts)
    ):
        return UNREADABLE
    hosts = hosts.rpartition("@")[2]
    return (hosts or "no host") if all(map(_HOST.fullmatch, hosts.split(","))) else UNREADABLE


def _has_options_only(behind: str) -> bool:
    """Whether each ``@`` behind the hosts stands in the value of an option that a driver knows."""
    path, _, query = behind.partition("?")
    names = {part.partition("=")[0].lower() for part in query.split("&") if part}
    return "@" not in path and names <= {name.lower() for name in URI_OPTIONS_VALIDATOR_MAP}


@contextlib.contextmanager
def translating(where: str) -> Iterator[None]:
    """Raise StoreUnavailableError for whatever PyMongo raises inside. ``where``: see ``shown``.

    PyMongo now and again swallows a cancellation, or makes an AutoReconnect of it: the task is ended all the same.
    """
    try:
        yield
    except PyMongoError as error:
        _heed_cancellation()
        raise unavailable(error, where) from error
    _heed_cancellation()


def unavailable(error: PyMongoError, where: str) -> StoreUnavailableError:
    """What ``error`` means to a person. ``where``: see ``shown``."""
    return StoreUnavailableError(f"MongoDB at {where}: {_reason(error)}")


def _heed_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def refused_url(error: Exception, url: str) -> StoreFlagError:
    """For a URL that PyMongo does not take. Its message may quote the URL, so only the kind of error is told."""
    return StoreFlagError(f"--mongo-url ({shown(url)}): {_refusal(error, url)}")


def _refusal(error: Exception, url: str) -> str:
    if isinstance(error, OSError):
        names = re.findall(r"[?&](tls\w*File)=", url, re.IGNORECASE)
        reason = f" ({error.strerror})" if error.strerror else ""
        return f"the file of its option {' or '.join(dict.fromkeys(names)) or 'tls...File'} cannot be used{reason}"
    if isinstance(error, InvalidURI):
        return "its form is not understood; percent-encode user and password, and see the manual's Connection Strings"
    return "one of its options is not understood or cannot be used; see the manual's Connection Strings"


def is_existing(error: OperationFailure) -> bool:
    """Whether a collection to be created, or the target of a renaming, is there already."""
    return (
        error.code == _NAMESPACE_EXISTS
        or "already exists" in str(error)
        or "target namespace exists" in str(error)
    )


def _reason(error: PyMongoError) -> str:
    if isinstance(error, OperationFailure):
        if error.code in _UNAUTHORIZED:
            return "it refuses the credentials, or they lack the role readWrite; check --mongo-url"
        return f"{_message(error)} (code {error.code})"
    if isinstance(error, NetworkTimeout):
        return "it did not answer in time"
    if isinstance(error, ServerSelectionTimeoutError):
        return "no server that can be written answers; check --mongo-url and that it runs"
    if isinstance(error, ConnectionFailure):
        return "the connection broke"
    if isinstance(error, ConfigurationError):
        return "it cannot be used with these options, or its name is not found"
    return type(error).__name__


def _message(error: OperationFailure) -> str:
    details: Any = error.details or {}
    return str(details.get("errmsg") or error).partition(", full error")[0]
