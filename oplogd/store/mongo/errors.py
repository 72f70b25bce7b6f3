"""Where PyMongo's exceptions end: what the rest of the agent gets is a StoreError without credentials."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import Any

from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    InvalidURI,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from oplogd.errors import StoreError, StoreUnavailableError

DUPLICATE_KEY = 11000
COMMAND_NOT_FOUND = 59
_NAMESPACE_EXISTS = 48
_UNAUTHORIZED = (13, 18, 8000)


def shown(url: str) -> str:
    """The hosts of a URL, without user, password, database and options."""
    return re.split(r"[/?]", url.partition("://")[2].rpartition("@")[2])[0]


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


def refused_url(error: Exception, where: str) -> StoreError:
    """For a URL that PyMongo does not take. Its message may quote the URL, so only the kind of error is told."""
    kind = "its form" if isinstance(error, InvalidURI) else "one of its options"
    return StoreError(f"--mongo-url ({where}): {kind} is not understood; see the manual's Connection Strings")


def is_existing(error: OperationFailure) -> bool:
    """Whether a collection to be created, or the target of a renaming, is there already."""
    return error.code == _NAMESPACE_EXISTS or "already exists" in str(error) or "target namespace exists" in str(error)


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
