"""Translates the failures of an append."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.health import Part


@contextmanager
def as_unavailable(part: Part, logger: logging.Logger) -> Iterator[None]:
    """Raise every failure as StoreUnavailableError: any other error would end the agent."""
    try:
        yield
    except StoreUnavailableError:
        raise
    except StoreError as error:
        raise StoreUnavailableError(str(error)) from error
    except Exception as error:
        message = f"the store failed, see the log: {error!r}"
        if part.trouble != message:
            logger.error("an append failed", exc_info=error)
        raise StoreUnavailableError(message) from error
