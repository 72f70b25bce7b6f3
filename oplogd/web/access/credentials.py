"""All credentials that an agent accepts at one moment: passwords and principals. No I/O."""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import msgspec

from oplogd.web.access.caller import SHARED, SUBJECT, Caller
from oplogd.web.access.keys.principals import Principal
from oplogd.web.access.keys.scrypt import NOBODY, Hash
from oplogd.web.access.keys.signing import ExpiringSigner, Purpose, claims_in, principal_in
from oplogd.web.access.keys.tokens import (
    CLAIM,
    HMAC,
    MAX_TOKEN_BYTES,
    TokenError,
    TokenKey,
    TokenKeys,
    signed,
)
from oplogd.web.access.keys.verdicts import Verdicts
from oplogd.web.access.right_bodies import body_of, right_of
from oplogd.web.access.rights import READ_ALL, WRITE_ALL, Right

# Reading, or writing and managing: each has passwords of its own.
Subject = Literal["reading", "writing"]

# Checked passwords, and the bytes of valid tokens with their rights.
_MAX_PASSWORDS = 4_096
_MAX_TOKEN_BYTES = 16 << 20
COOKIE_SECONDS = 8 * 3600
TOKEN_SECONDS = 15 * 60
_LIFE = {Purpose.COOKIE: COOKIE_SECONDS, Purpose.TOKEN: TOKEN_SECONDS}

_SIGNING = b"oplog signing key of a principal 1"


class Content(msgspec.Struct, frozen=True):
    """The content of flags and files.

    ``reading``: passwords with their keys for signing. ``writing``: passwords. ``keys``: of tokens.
    ``is_closed``: without a password, only principals and tokens may read or write. ``errors``: a
    sentence for each file that cannot be used as it is now.
    """

    reading: dict[str, bytes]
    writing: list[str]
    principals: dict[str, Principal]
    keys: list[TokenKey] = []
    audiences: list[str] = []
    is_closed: bool = False
    errors: tuple[str, ...] = ()


class Asked(NamedTuple):
    """A token as it was asked for. ``issued``: seconds since 1970."""

    right: Right
    issued: int


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
        self._keys = TokenKeys(content.keys, content.audiences)
        self._valid = {maker.caller.credential for each in self._makers.values() for maker in each}
        self._valid |= set(content.keys)
        self._passwords = Verdicts[tuple[Caller | None]](_MAX_PASSWORDS)
        self._tokens = Verdicts[Caller](_MAX_TOKEN_BYTES)

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
        return self._passwords.find(attempt)

    def keep(self, attempt: bytes, caller: Caller | None) -> None:
        """Keep the outcome of a check."""
        self._passwords.keep(attempt, (caller,))

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
        """Return the client with a signed value. None: it is invalid, or has expired."""
        for maker in self._makers.get(principal_in(value), ()) if value else ():
            until = maker.signer.expiry(purpose, value, now)
            if until is not None:
                caller = maker.caller._replace(until=until, life=_LIFE[purpose])
                return _narrowed(caller, claims_in(value))
        return None

    def token(self, value: str, now: float, *, has_claims: bool = False) -> Caller:
        """Return the client with a token: one of ours, or a JWT. Raises TokenError.

        ``has_claims``: take only a token that names its right.
        """
        if len(value) > MAX_TOKEN_BYTES or not value.isascii():
            raise TokenError(f"it has more than {MAX_TOKEN_BYTES:,} bytes, or is no token")
        is_own = value[:1].isdecimal()
        if is_own and has_claims and not claims_in(value):
            raise TokenError("it is for reading")
        digest = hashlib.sha256(value.encode()).digest()
        caller = self._tokens.find(digest)
        if caller is None:
            caller = self._own(value, now) if is_own else self._jwt(value, digest, now)
            self._tokens.keep(digest, caller, _cost(value, caller.right))
        elif caller.until is not None and now >= caller.until:
            self._tokens.forget(digest)
            raise TokenError("it has expired")
        return caller

    def sign(
        self, caller: Caller, purpose: Purpose, expires: int, asked: Asked | None = None
    ) -> str:
        """Return a value that is valid before ``expires``, in seconds since 1970.

        ``caller``: a client that gave its password or a JWT. ``asked``: the right of the value and
        the time of its making; None: the right to read all that ``caller`` may. Raises KeyError if
        the credential is gone, and TokenError if there is no key to sign with.
        """
        if isinstance(caller.credential, TokenKey):
            return self._sign_jwt(caller, caller.credential, expires, asked)
        claims = "" if asked is None else _claims(asked)
        for makers in self._makers.values():
            for maker in makers:
                if maker.caller.credential == caller.credential:
                    return maker.signer.sign(purpose, expires, claims)
        raise KeyError(caller.name)

    def _sign_jwt(
        self, caller: Caller, key: TokenKey, expires: int, asked: Asked | None = None
    ) -> str:
        if key not in self._valid:
            raise KeyError(caller.name)
        if key.algorithm != HMAC:
            raise TokenError("the key of this token verifies only; its application gives tokens")
        right = caller.right.reading() if asked is None else asked.right
        claims: dict[str, Any] = {"exp": expires, CLAIM: body_of(right)}
        if asked is not None:
            claims["iat"] = asked.issued
        if caller.name and caller.name.startswith(SUBJECT):
            claims["sub"] = caller.name.removeprefix(SUBJECT)
        if self.content.audiences:
            claims["aud"] = self.content.audiences[0]
        return signed(key, claims)

    def _own(self, value: str, now: float) -> Caller:
        found = self.signed(Purpose.TOKEN, value, now)
        if found is None:
            raise TokenError("it is invalid or has expired")
        return found

    def _jwt(self, value: str, digest: bytes, now: float) -> Caller:
        if not self._keys.keys:
            raise TokenError("there is no key for it")
        verified = self._keys.verify(value, now)
        begin = now if verified.issued is None else verified.issued
        subject = verified.subject
        return Caller(
            f"{SUBJECT}{subject}" if subject else f"token:{digest.hex()}",
            verified.right,
            verified.key,
            verified.expires,
            life=verified.expires - begin,
        )


def _makers(principal: Principal) -> list[Maker]:
    found = []
    for each in principal.hashes:
        caller = Caller(f"user:{principal.name}", principal.right, (principal, each))
        key = hmac.digest(each.key, _SIGNING + each.salt, "sha256")
        found.append(Maker(caller, ExpiringSigner(key, principal.name), each))
    return found


def _claims(asked: Asked) -> str:
    body = msgspec.json.encode({CLAIM: body_of(asked.right), "iat": asked.issued})
    return urlsafe_b64encode(body).decode().rstrip("=")


def _narrowed(caller: Caller, claims: str) -> Caller:
    """Return the maker of a value as the client with it. ``claims`` are ours: they are signed."""
    if not claims:
        return caller
    given = msgspec.json.decode(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    right = caller.right.narrowed(right_of(given[CLAIM]))
    name = f"token:{hashlib.sha256(claims.encode()).hexdigest()}"
    return caller._replace(name=name, right=right, life=(caller.until or 0) - given["iat"])


def _cost(value: str, right: Right) -> int:
    """Return about the bytes that a token and its right take."""
    topics = (right.read, right.write, right.manage)
    parts = sum(len(each.names) + len(each.namespaces) for each in topics)
    parts += len(right.leases.names) + len(right.leases.prefixes)
    parts += len(right.types or ()) + len(right.parents or ())
    return 2_048 + 4 * len(value) + 200 * parts
