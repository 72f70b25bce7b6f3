"""All credentials that an agent accepts at one moment: passwords and principals. No I/O."""

import hmac
from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple

import msgspec

from oplogd.web.access.caller import SHARED, Caller
from oplogd.web.access.principals import Principal
from oplogd.web.access.rights import READ_ALL, WRITE_ALL
from oplogd.web.access.scrypt import NOBODY, Hash
from oplogd.web.access.signing import ExpiringSigner, Purpose, principal_in

# Reading, or writing and managing: each has passwords of its own.
Subject = Literal["reading", "writing"]

_MAX_VERDICTS = 4_096
_SIGNING = b"oplog signing key of a principal 1"


class Content(msgspec.Struct, frozen=True):
    """The content of flags and files.

    ``reading``: passwords with their keys for signing. ``writing``: passwords. ``is_closed``:
    without a password, only principals may read or write. ``errors``: a sentence for each file that
    cannot be used as it is now.
    """

    reading: dict[str, bytes]
    writing: list[str]
    principals: dict[str, Principal]
    is_closed: bool = False
    errors: tuple[str, ...] = ()


class Maker(NamedTuple):
    """A password with which signed values are made. ``hash``: of a principal's password."""

    caller: Caller
    signer: ExpiringSigner
    hash: Hash | None = None


class Credentials:
    """A snapshot. ``digest`` returns a keyed digest of a password."""

    def __init__(self, content: Content, digest: Callable[[bytes], bytes]) -> None:
        self.content = content
        self._makers: dict[str, list[Maker]] = {
            name: _makers(principal) for name, principal in content.principals.items()
        }
        # Callers with a shared password, by its digest.
        self.shared: dict[Subject, dict[bytes, Caller]] = {"reading": {}, "writing": {}}
        shared = self._makers[""] = []
        for password, key in content.reading.items():
            attempt = digest(password.encode())
            caller = Caller(SHARED, READ_ALL, ("reading", attempt))
            self.shared["reading"][attempt] = caller
            shared.append(Maker(caller, ExpiringSigner(key)))
        for password in content.writing:
            attempt = digest(password.encode())
            self.shared["writing"][attempt] = Caller(SHARED, WRITE_ALL, ("writing", attempt))
        self.is_closed = content.is_closed
        self._valid = {maker.caller.credential for each in self._makers.values() for maker in each}
        # Outcomes of costly checks.
        self._verdicts: dict[bytes, Caller | None] = {}

    @property
    def errors(self) -> tuple[str, ...]:
        return self.content.errors

    @property
    def has_principals(self) -> bool:
        return len(self._makers) > 1

    def is_open(self, subject: Subject) -> bool:
        """Return whether reading or writing needs no credential."""
        return not (self.is_closed or self.shared[subject])

    def is_principal(self, name: str) -> bool:
        return bool(name) and name in self._makers

    def is_valid(self, credential: Hashable) -> bool:
        """Return whether the credential of a reader still lets it in, with the same right."""
        return credential is None or credential in self._valid

    def verdict(self, attempt: bytes) -> tuple[Caller | None] | None:
        """Return the kept outcome of a check, None without one."""
        return (self._verdicts[attempt],) if attempt in self._verdicts else None

    def keep(self, attempt: bytes, caller: Caller | None) -> None:
        """Keep the outcome of a check."""
        while len(self._verdicts) >= _MAX_VERDICTS:
            del self._verdicts[next(iter(self._verdicts))]
        self._verdicts[attempt] = caller

    def check(self, name: str, password: bytes) -> Caller | None:
        """Return the principal of this name if the password is its own. Takes 50 ms per hash.

        A name that is none takes as long.
        """
        if not self.is_principal(name):
            NOBODY.fits(password)
            return None
        for maker in self._makers[name]:
            if maker.hash is not None and maker.hash.fits(password):
                return maker.caller
        return None

    def signed(self, purpose: Purpose, value: str, now: float) -> Caller | None:
        """Return the maker of a signed value. None: it is invalid, or has expired."""
        if value:
            for maker in self._makers.get(principal_in(value), ()):
                until = maker.signer.expiry(purpose, value, now)
                if until is not None:
                    return maker.caller._replace(until=until)
        return None

    def sign(self, caller: Caller, purpose: Purpose, expires: int) -> str:
        """Return a value that is valid before ``expires``, in seconds since 1970.

        ``caller``: a reader that gave its password. Raises KeyError if it is gone.
        """
        for makers in self._makers.values():
            for maker in makers:
                if maker.caller.credential == caller.credential:
                    return maker.signer.sign(purpose, expires)
        raise KeyError(caller.name)


def _makers(principal: Principal) -> list[Maker]:
    found = []
    for each in principal.hashes:
        caller = Caller(f"user:{principal.name}", principal.right, (principal, each))
        key = hmac.digest(each.key, _SIGNING + each.salt, "sha256")
        found.append(Maker(caller, ExpiringSigner(key, principal.name), each))
    return found
