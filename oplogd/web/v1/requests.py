"""The parts of a request that endpoints of topics share, and the answers to their errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import Request

from oplogd.decode.buffers import Buffer
from oplogd.decode.compressed import TooLargeError
from oplogd.decode.media_types import AVRO, JSON
from oplogd.errors import (
    DiskFullError,
    LeaseConflictError,
    LeaseError,
    LeaseNotFoundError,
    MessageError,
    MessageTooLargeError,
    NoLogNumberError,
    NotConfirmedError,
    OperationError,
    QueueFullError,
    StaleFenceError,
    StoreUnavailableError,
    TopicError,
    TopicExistsError,
    TopicFullError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionNotFoundError,
    TransactionTooLargeError,
)
from oplogd.ingest.budget import NoRoomError
from oplogd.model.message import Message, ttl_seconds
from oplogd.model.names import OPLOG, SYSTEM, TopicName, check_name, no_topic
from oplogd.model.transaction import is_group_log
from oplogd.topics.codec.codec import Codec, InvalidMessagesError, reading_publish
from oplogd.topics.codec.codecs import MEDIA_TYPES, codec_of
from oplogd.topics.publish import Publisher
from oplogd.web.access.origin import is_from_page
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.negotiate import media_type, not_understood
from oplogd.web.http.problem import Problem

# Answers to writes and polls: no page of another origin may read them.
HEADERS = {"Cache-Control": "no-cache, no-store, must-revalidate"}

RETRY_AFTER = {"Retry-After": "1"}
STORE_AWAY = {"Retry-After": "5"}

# Effects of repeating a request that was not confirmed.
CONTINUES = "a repeated request continues"
STORES_TWICE = "a repeated request may store the messages twice"


def namespace_of(request: Request) -> str:
    """Return the namespace in a request's path. Raises Problem 400."""
    try:
        return check_name(request.path_params["namespace"], "namespace")
    except TopicError as error:
        raise Problem(400, str(error)) from None


def name_of(request: Request) -> TopicName:
    """Return the topic in a request's path. Raises Problem 400."""
    namespace = namespace_of(request)
    try:
        return TopicName(namespace, check_name(request.path_params["topic"], "topic"))
    except TopicError as error:
        raise Problem(400, str(error)) from None


def refuse_reserved(name: TopicName) -> None:
    """Raise Problem 409 for a topic that clients may not create, change or delete."""
    if name.namespace == SYSTEM:
        raise Problem(409, f"the namespace {SYSTEM} is reserved")


def require_known(name: TopicName) -> None:
    """Raise TopicNotFoundError for a built-in topic that does not exist."""
    if name.namespace == SYSTEM and name != OPLOG and not is_group_log(name):
        raise no_topic(name)


def refuse_stopping(is_stopping: Callable[[], bool]) -> None:
    """Raise Problem 503 for a write while the agent stops."""
    if is_stopping():
        raise Problem(503, "the agent is stopping; send to another agent or try again", RETRY_AFTER)


def codec_for(request: Request, *, default: str = "") -> Codec:
    """Return the codec of a body. Raises Problem 415.

    ``default``: the media type of a request without Content-Type, empty for none.
    """
    given = media_type(request.headers.get("content-type", "")) or default
    if (codec := codec_of(given)) is not None:
        return codec
    if given == AVRO:
        raise Problem(415, f"this agent was installed without Avro; use {' or '.join(MEDIA_TYPES)}")
    raise not_understood(given, MEDIA_TYPES)


async def read_json(bodies: BodyReader, request: Request, max_bytes: int) -> Buffer:
    """Return a body of JSON, which may be empty. Raises Problem 415, and TooLargeError."""
    async with bodies.received(request, "", max_bytes) as raw:
        require_json(request, raw)
        return raw


def require_json(request: Request, raw: Buffer) -> None:
    """Raise Problem 415 for a body of another type.

    An empty body needs no type, except from a page in a browser: pages of other origins may send
    any request that needs no preflight, and only the type makes this one need it.
    """
    given = media_type(request.headers.get("content-type", ""))
    if given != JSON and (raw.strip() or is_from_page(request.headers)):
        raise not_understood(given, (JSON,))


async def read_messages(
    request: Request, codec: Codec, bodies: BodyReader, publisher: Publisher
) -> tuple[int | None, list[Message]]:
    """Return the pointer of a publish or a store, and its messages.

    Without a pointer there is at least one message. Raises MessageError, InvalidMessagesError, and
    the errors of a body.
    """
    ttl = ttl_seconds(request.query_params.get("ttl"), "ttl")
    try:
        async with bodies.received(request, "messages") as raw:
            return await bodies.work(
                reading_publish(
                    codec, raw, lambda each: codec.message(each, ttl), publisher.max_messages
                )
            )
    except InvalidMessagesError as error:
        publisher.refuse_invalid(error.count)
        raise


@contextmanager
def continuing(then: str = CONTINUES) -> Iterator[None]:
    """Raise the Problem for an error of a request that may have been carried out.

    ``then``: the effect of a repeated request.
    """
    with problems():
        try:
            yield
        except DiskFullError:
            raise
        except StoreUnavailableError as error:
            raise Problem(503, f"not confirmed; {then}: {error}", STORE_AWAY) from None


@contextmanager
def problems() -> Iterator[None]:
    """Raise the Problem for an error of topics, messages, transactions, leases or the store."""
    try:
        yield
    except InvalidMessagesError as error:
        errors = [bad._asdict() for bad in error.bad]
        raise Problem(413 if error.too_large else 400, str(error), errors=errors) from None
    except OperationError as error:  # the body is not gzip
        raise Problem(400, f"body: {error.reason}") from None
    except MessageTooLargeError as error:
        raise Problem(413, str(error)) from None
    except (LeaseError, MessageError, TopicError) as error:
        raise Problem(400, str(error)) from None
    except (LeaseNotFoundError, TopicNotFoundError, TransactionNotFoundError) as error:
        raise Problem(404, str(error)) from None
    except (LeaseConflictError, TopicExistsError, TransactionConflictError) as error:
        raise Problem(409, str(error)) from None
    except NoLogNumberError as error:
        raise Problem(507, str(error)) from None
    except StaleFenceError as error:
        raise Problem(412, str(error)) from None
    except (TooLargeError, TransactionTooLargeError) as error:
        raise Problem(413, str(error)) from None
    except (NoRoomError, QueueFullError, TopicFullError) as error:
        raise Problem(503, str(error), RETRY_AFTER) from None
    except NotConfirmedError as error:
        raise Problem(503, f"not confirmed, it may still be stored: {error}", STORE_AWAY) from None
    except StoreUnavailableError as error:
        raise Problem(503, str(error), STORE_AWAY) from None
