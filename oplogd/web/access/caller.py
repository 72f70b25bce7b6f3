"""The client of a request, as its credential shows it. No I/O."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from oplogd.model.names import TopicName
from oplogd.stream.passes import Pass
from oplogd.web.access.rights import NO_TOPICS, READ_ALL, WRITE_ALL, Right
from oplogd.web.http.problem import Problem

# Begins the name of a client with a token that names its subject.
SUBJECT = "sub:"

# The name of clients with a shared password. It manages all, so it needs to own nothing.
SHARED = "password"


class Caller(NamedTuple):
    """A client. Raises Problem 403 for all that its right does not grant.

    ``name``: of the client in the log and as an owner; None while access is open.
    ``credential``: what let the client in; None while access is open. ``until``: the end of a
    cookie or token, in seconds since 1970. ``life``: its seconds from its begin to its end.
    """

    name: str | None
    right: Right
    credential: Hashable = None
    until: float | None = None
    life: float = 0.0

    def require_read(self, topic: TopicName) -> None:
        if topic not in self.right.read:
            raise missing(f"read {topic}")

    def require_write(self, topic: TopicName) -> None:
        if topic not in self.right.write:
            raise missing(f"write {topic}")

    def require_manage(self, topic: TopicName) -> None:
        if topic not in self.right.manage:
            raise missing(f"manage {topic}")

    def require_seen(self, topic: TopicName) -> None:
        """Raise unless the client may read, write or manage a topic."""
        if not self.right.may_see(topic):
            raise missing(f"read, write or manage {topic}")

    def require_pointers(self, topic: TopicName) -> None:
        """Raise unless the client may see the pointers of a topic."""
        if not self.right.sees_all and topic not in self.right.manage:
            raise missing(f"manage {topic}")

    def require_lease(self, name: str) -> None:
        """Raise unless the client may acquire, release, or name a lease as a condition."""
        if name not in self.right.leases:
            raise missing(f"use the lease {name}")

    def require_lease_shown(self, name: str) -> None:
        if not self.right.may_show_lease(name):
            raise missing(f"use the lease {name}")

    def require_objects(self, keys: Iterable[str]) -> None:
        """Raise unless the client may write operations on these objects. A key is TYPE/ID."""
        types = self.right.types
        if types is not None:
            for key in keys:
                if (type_ := key.partition("/")[0]) not in types:
                    raise missing(f"write objects of the type {type_}")

    def require_some_write(self) -> None:
        """Raise unless the client may write a topic."""
        if self.right.write == NO_TOPICS:
            raise missing("write a topic")

    def named(self, name: str) -> str:
        """Return the name of a consumer of this client: the subject of its token, else ``name``."""
        return name if self.subject is None else self.subject

    @property
    def subject(self) -> str | None:
        """The subject of the client's token. None: it has no token, or one without."""
        if self.name is None or not self.name.startswith(SUBJECT):
            return None
        return self.name.removeprefix(SUBJECT)

    def is_over(self, now: float) -> bool:
        """Return whether the cookie or token has ended. ``now``: in seconds since 1970."""
        return self.until is not None and now >= self.until

    @property
    def pass_(self) -> Pass:
        """What lets a stream of the client go on."""
        return Pass(self.credential, self.until, self.life)

    @property
    def noted(self) -> str | None:
        """The owner to note with a transaction. None: nobody needs it."""
        return None if self.name == SHARED else self.name

    @property
    def owner(self) -> str | None:
        """The owner whose transactions the client may end; None: of all owners."""
        return None if self.right.manages_all else self.name

    @property
    def shown_owner(self) -> str | None:
        """The owner whose transactions the client may see; None: of all owners."""
        return None if self.right.shows_others else self.name


# Clients while reading or writing needs no password.
ANY_READER = Caller(None, READ_ALL)
ANY_WRITER = Caller(None, WRITE_ALL)


def missing(right: str) -> Problem:
    """Return the refusal of a client without a right."""
    return Problem(403, f"the right to {right} is missing")
