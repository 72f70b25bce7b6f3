"""All credentials that an agent accepts at one moment: passwords and keys of tokens. No I/O."""

import hashlib
import hmac
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import msgspec

from oplogd.errors import StoreUnavailableError
from oplogd.web.access.caller import SHARED, SUBJECT, Caller
from oplogd.web.access.claims import Asked, claims_of, narrowed
from oplogd.web.access.content import Content
from oplogd.web.access.keys.principals import Principal
from oplogd.web.access.keys.scrypt import Hash
from oplogd.web.access.keys.signing import ExpiringSigner, Purpose, claims_in, is_own, principal_in
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
from oplogd.web.access.right_bodies import body_of
from oplogd.web.access.rights import READ_ALL, WRITE_ALL

# Reading, or writing and managing: each has passwords of its own.
Side = Literal["reading", "writing"]

# Checked passwords, and the bytes of valid tokens with their rights.
_MAX_PASSWORDS = 4_096
_MAX_TOKEN_BYTES = 16 << 20
COOKIE_SECONDS = 8 * 3600
TOKEN_SECONDS = 15 * 60
_LIFE = {Purpose.COOKIE: COOKIE_SECONDS, Purpose.TOKEN: TOKEN_SECONDS}

# The longest life of a token.
MAX_SECONDS = 86_400
# No agent signs a value for longer, as its clock has it. Clocks may differ by a minute.
_LONGEST = {Purpose.COOKIE: COOKIE_SECONDS + 60, Purpose.TOKEN: MAX_SECONDS + 60}

_SIGNING = b"oplog signing key of a principal 1"


class ByPassword(NamedTuple):
    """What let a client in: a shared password, by its digest."""

    side: Side
    attempt: bytes


class ByPrincipal(NamedTuple):
    """What let a client in: a password of a principal."""

    principal: Principal
    hash: Hash


class Maker(NamedTuple):
    """A password with which signed values are made. ``hash``: of a principal's password.

    ``signer``: None while the secret of the store is not known.
    """

    caller: Caller
    signer: ExpiringSigner | None
    hash: Hash | None = None


class Credentials:
    """A snapshot. ``digest`` returns a keyed digest of a password.

    ``secret`` returns the store's secret, None while it is not known. It signs for principals, so
    that their file is not enough to sign. ``before``: the snapshot before this one. Checks whose
    outcome cannot have changed need not be repeated.
    """

    def __init__(
        self,
        content: Content,
        digest: Callable[[bytes], bytes],
        secret: Callable[[], bytes | None] = lambda: None,
        before: "Credentials | None" = None,
    ) -> None:
        self.content = content
        self._secret = secret
        # Callers with a shared password, by its digest.
        self.shared: dict[Side, dict[bytes, Caller]] = {"reading": {}, "writing": {}}
        self._makers: dict[str, list[Maker]] = {"": []}
        for password, key in content.reading.items():
            attempt = digest(password.encode())
            caller = Caller(SHARED, READ_ALL, ByPassword("reading", attempt))
            self.shared["reading"][attempt] = caller
            self._makers[""].append(Maker(caller, ExpiringSigner(key)))
        for password in content.writing:
            attempt = digest(password.encode())
            self.shared["writing"][attempt] = Caller(
                SHARED, WRITE_ALL, ByPassword("writing", attempt)
            )
        self.is_closed = content.is_closed
        self._keys = TokenKeys(content.keys, content.audiences)
        self._passwords = Verdicts[tuple[Caller | None]](_MAX_PASSWORDS)
        self._tokens = Verdicts[Caller](_MAX_TOKEN_BYTES)
        if before is not None and content.is_as(before.content):
            self._passwords, self._tokens = before._passwords, before._tokens
        elif before is not None:
            for attempt, (known,) in before._passwords.items():
                if known is not None and (again := self._again(known)) is not None:
                    self.keep(attempt, again)

    @property
    def errors(self) -> list[str]:
        return self.content.errors

    @property
    def has_principals(self) -> bool:
        return bool(self.content.principals)

    @property
    def takes_tokens(self) -> bool:
        """Whether there are keys of tokens."""
        return bool(self._keys.keys)

    def is_open(self, side: Side) -> bool:
        """Return whether reading or writing needs no credential."""
        return not (self.is_closed or self.shared[side])

    def is_principal(self, name: str) -> bool:
        return name in self.content.principals

    def is_valid(self, credential: Hashable) -> bool:
        """Return whether a credential still lets its holder in, with the same right."""
        match credential:
            case None:
                return True
            case TokenKey():
                return credential in self._keys.keys
            case ByPrincipal(principal):
                makers = self._makers_of(principal.name)
                return any(maker.caller.credential == credential for maker in makers)
            case ByPassword(side, attempt):
                return attempt in self.shared[side]
        return False

    def verdict(self, attempt: bytes) -> tuple[Caller | None] | None:
        """Return the kept outcome of a check, None without one."""
        return self._passwords.find(attempt)

    def keep(self, attempt: bytes, caller: Caller | None) -> None:
        """Keep the outcome of a check."""
        self._passwords.keep(attempt, (caller,))

    def check(self, name: str, password: bytes) -> Caller | None:
        """Return the principal of this name if the password is its own. Takes 50 ms per hash.

        A wrong password takes as long for all names, also for one that is none.
        """
        makers = self._makers_of(name) if self.is_principal(name) else []
        for maker in makers:
            if maker.hash is not None and maker.hash.fits(password):
                return maker.caller
        for decoy in self.content.decoys[len(makers) :]:
            decoy.fits(password)
        return None

    def _makers_of(self, name: str) -> list[Maker]:
        """Return the makers of values that name this principal. Decodes it at the first call."""
        makers = self._makers.get(name)
        if makers is None:
            raw = self.content.principals.get(name)
            if raw is None:
                return []
            secret = self._secret()
            makers = _makers(msgspec.msgpack.decode(raw, type=Principal), secret)
            if secret is not None:
                self._makers[name] = makers
        return makers

    def _again(self, known: Caller) -> Caller | None:
        """Return the present client with a password of the snapshot before. None: it is gone."""
        if isinstance(known.credential, ByPrincipal):
            for maker in self._makers_of(known.credential.principal.name):
                if maker.hash == known.credential.hash:
                    return maker.caller
        return None

    def signed(self, purpose: Purpose, value: str, now: float) -> Caller | None:
        """Return the client with a signed value. None: it is invalid, or has expired."""
        for maker in self._makers_of(principal_in(value)) if value else ():
            until = None if maker.signer is None else maker.signer.expiry(purpose, value, now)
            if until is not None and until <= now + _LONGEST[purpose]:
                caller = maker.caller._replace(until=until, life=_LIFE[purpose])
                return narrowed(caller, value)
        return None

    def token(self, value: str, now: float, side: Side) -> Caller:
        """Return the client with a token: one of ours, or a JWT. Raises TokenError.

        Writing takes only a token that names its right.
        """
        if len(value) > MAX_TOKEN_BYTES or not value.isascii() or "=" in value:
            raise TokenError(f"it has more than {MAX_TOKEN_BYTES:,} bytes, or is no token")
        if side == "writing" and _is_for_reading(value):
            raise TokenError("it is for reading")
        digest = hashlib.sha256(value.encode()).digest()
        caller = self._tokens.find(digest)
        if caller is None:
            caller = self._own(value, now) if is_own(value) else self._jwt(value, digest, now)
            cost = 2_048 + 4 * len(value) + 200 * caller.right.parts
            self._tokens.keep(digest, caller, cost)
        elif caller.is_over(now):
            self._tokens.forget(digest)
            raise TokenError("it has expired")
        return caller

    def known_token(self, value: str, now: float, side: Side) -> Caller | None:
        """Return as ``token`` if its verdict is kept, else None. Costs no signature."""
        if side == "writing" and _is_for_reading(value):
            return None
        caller = self._tokens.find(hashlib.sha256(value.encode("utf-8", "replace")).digest())
        return None if caller is None or caller.is_over(now) else caller

    def sign(
        self, caller: Caller, purpose: Purpose, expires: int, asked: Asked | None = None
    ) -> str:
        """Return a value that is valid before ``expires``, in seconds since 1970.

        ``caller``: a client that gave its password or a JWT. ``asked``: the right of the value and
        the time of its making; None: the right to read all that ``caller`` may. Raises KeyError if
        the credential is gone, StoreUnavailableError, and TokenError without a key to sign with.
        """
        if isinstance(caller.credential, TokenKey):
            return self._sign_jwt(caller, caller.credential, expires, asked)
        claims = "" if asked is None else claims_of(asked)
        credential = caller.credential
        name = credential.principal.name if isinstance(credential, ByPrincipal) else ""
        for maker in self._makers_of(name):
            if maker.caller.credential == credential:
                if maker.signer is None:
                    raise StoreUnavailableError("the secret of the store is not known yet")
                return maker.signer.sign(purpose, expires, claims)
        raise KeyError(caller.name)

    def _sign_jwt(self, caller: Caller, key: TokenKey, expires: int, asked: Asked | None) -> str:
        if key not in self._keys.keys:
            raise KeyError(caller.name)
        if key.algorithm != HMAC:
            raise TokenError("the key of this token verifies only; its application gives tokens")
        right = caller.right.reading() if asked is None else asked.right
        # Without iat: an agent whose clock is behind must accept it, too.
        claims: dict[str, Any] = {"exp": expires, CLAIM: body_of(right)}
        if caller.subject is not None:
            claims["sub"] = caller.subject
        if self.content.audiences:
            claims["aud"] = self.content.audiences[0]
        return signed(key, claims)

    def _own(self, value: str, now: float) -> Caller:
        found = self.signed(Purpose.TOKEN, value, now)
        if found is None:
            raise TokenError("it is invalid or has expired")
        return found

    def _jwt(self, value: str, digest: bytes, now: float) -> Caller:
        if not self.takes_tokens:
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


def _is_for_reading(value: str) -> bool:
    """Return whether a token is one of ours that names no right."""
    return is_own(value) and not claims_in(value)


def _makers(principal: Principal, secret: bytes | None) -> list[Maker]:
    found = []
    for each in principal.hashes:
        caller = Caller(f"user:{principal.name}", principal.right, ByPrincipal(principal, each))
        signer = None
        if secret is not None:
            key = hmac.digest(secret, _SIGNING + each.salt + each.key, "sha256")
            signer = ExpiringSigner(key, principal.name)
        found.append(Maker(caller, signer, each))
    return found
