"""Translating PyMongo's exceptions into StoreError, without credentials."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import Any

from pymongo.common import URI_OPTIONS_VALIDATOR_MAP
from pymongo.errors import (
    BulkWriteError,
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


# Exceptions by which PyMongo refuses a URL. OSError: of a file in the URL.
REFUSALS = (PyMongoError, ValueError, TypeError, OSError, Warning)

# A host with its port. Other text behind a colon may be a password without a host.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]*\]|[^:]*)(:[0-9]*)?")

UNREADABLE = "an address that cannot be separated from the password"


def shown(url: str) -> str:
    """Return the hosts of a URL, without user, password, database and options.

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
    """Return whether each ``@`` behind the hosts is in the value of a known option."""
    path, _, query = behind.partition("?")
    names = {part.partition("=")[0].lower() for part in query.split("&") if part}
    return "@" not in path and names <= {name.lower() for name in URI_OPTIONS_VALIDATOR_MAP}


@contextlib.contextmanager
def translating(hosts: str) -> Iterator[None]:
    """Raise StoreUnavailableError for any PyMongoError. ``hosts``: see ``shown``.

    PyMongo sometimes swallows a cancellation, or turns it into an AutoReconnect. Then
    CancelledError is raised.
    """
    try:
        yield
    except PyMongoError as error:
        _raise_if_cancelled()
        raise unavailable(error, hosts) from error
    _raise_if_cancelled()


def unavailable(error: PyMongoError, hosts: str) -> StoreUnavailableError:
    """Return the error with a reason for a person. ``hosts``: see ``shown``."""
    return StoreUnavailableError(f"MongoDB at {hosts}: {_reason(error)}")


def _raise_if_cancelled() -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def refused_url(error: Exception, url: str) -> StoreFlagError:
    """Return the error for a URL refused by PyMongo.

    PyMongo's message may quote the URL, so only the kind of the error is named.
    """
    return StoreFlagError(f"--mongo-url ({shown(url)}): {_refusal(error, url)}")


def _refusal(error: Exception, url: str) -> str:
    if isinstance(error, OSError):
        names = re.findall(r"[?&](tls\w*File)=", url, re.IGNORECASE)
        reason = f" ({error.strerror})" if error.strerror else ""
        option = " or ".join(dict.fromkeys(names)) or "tls...File"
        return f"the file of its option {option} cannot be used{reason}"
    if isinstance(error, InvalidURI):
        return (
            "its form is not understood; percent-encode user and password, and see the manual's"
            " Connection Strings"
        )
    return (
        "one of its options is not understood or cannot be used; see the manual's Connection"
        " Strings"
    )


def duplicates_in(error: BulkWriteError) -> list[int]:
    """Return the indices of the documents with a duplicate key. Raise any other error."""
    errors: list[dict[str, Any]] = error.details["writeErrors"]
    has_others = any(each["code"] != DUPLICATE_KEY for each in errors)
    if not errors or has_others or error.details["writeConcernErrors"]:
        raise error
    return [int(each["index"]) for each in errors]


def is_existing(error: OperationFailure) -> bool:
    """Return whether a collection to create, or the target of a renaming, exists already."""
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
        return "no writable server answers; check --mongo-url, and that the server runs"
    if isinstance(error, ConnectionFailure):
        return "the connection broke"
    if isinstance(error, ConfigurationError):
        return "it cannot be used with these options, or its name is not found"
    return type(error).__name__


def _message(error: OperationFailure) -> str:
    details: Any = error.details or {}
    return str(details.get("errmsg") or error).partition(", full error")[0]
