"""The flags and files that hold passwords and rights. Reads the files."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from oplog_kit.command.convert import Secret
from oplog_kit.disk import read_bytes
from oplogd.config.secret_files import SecretFile, passwords_in
from oplogd.config.settings import Settings
from oplogd.errors import SettingError
from oplogd.web.access.content import Content, FileState
from oplogd.web.access.keys.key_files import keys_in, kind_of
from oplogd.web.access.keys.principals import principals_in
from oplogd.web.access.keys.scrypt import Hash
from oplogd.web.access.keys.signing import signing_key
from oplogd.web.access.keys.tokens import MAX_TRIES

# Workers share the content of all, twice: one file of principals may have 1 MB, each other one
# 256 KB.
_MAX_FILES = 12

_encode = msgspec.msgpack.Encoder().encode


class Sources:
    """The passwords and rights that the settings name. Raises SettingError for a bad file."""

    def __init__(self, settings: Settings) -> None:
        self._reading = _Passwords(settings.password)
        self._writing = _Passwords(settings.ingest_password)
        rights = [settings.rights] if settings.rights else []
        self._token_keys = [_Watched(each, keys_in, kind_of) for each in settings.token_key]
        self._audiences = list(settings.token_audience)
        self._rights = [_Watched(each, principals_in) for each in rights]
        files = [*self._reading.files, *self._writing.files, *self._rights, *self._token_keys]
        if len(files) > _MAX_FILES:
            flags = " and ".join(dict.fromkeys(each.file.flag for each in files))
            raise SettingError(f"{flags}: {len(files)} files, at most {_MAX_FILES} are possible")
        self._watched = [each for each in files if each.file.is_regular]
        self._is_closed = settings.is_closed
        for each in (*self._rights, *self._token_keys):
            each.check()
        for key_file in self._token_keys:
            key_file.fits = partial(self._require_tries, key_file)
            key_file.check()
        # The keys of the passwords for reading.
        self._keys: dict[str, bytes] = {}

    def _require_tries(self, changed: "_Watched", content: bytes) -> None:
        """Raise ValueError if a token could not be tried with all keys that may have signed it.

        ``content``: of the file ``changed``.
        """
        keys = [
            (key.algorithm, key.kid)
            for each in self._token_keys
            for key in keys_in(content if each is changed else each.content)
        ]
        for (algorithm, kid), count in Counter(keys).items():
            if count > MAX_TRIES:
                alike = "without a kid" if kid is None else "with the same kid"
                raise ValueError(
                    f"would be one too many: {count} keys of {algorithm} {alike}, at most"
                    f" {MAX_TRIES} are possible"
                )

    @property
    def is_watched(self) -> bool:
        """Whether there is a file to look at."""
        return bool(self._watched)

    def look(self, present: Content) -> Content | None:
        """Look at the files. Return the content if it or an error has changed.

        ``present``: the content in use. Another worker may have read it. Reads files, and takes
        50 ms for each new password: call it in a thread.
        """
        for each, state in zip(self._watched, present.files, strict=True):
            each.content, each.error = state.content, state.error
        has_changed = [each.look() for each in self._watched]
        return self.content() if any(has_changed) else None

    def content(self) -> Content:
        """Return the content of flags and files as they were last valid."""
        reading = self._reading.passwords()
        self._keys = {each: self._keys.get(each) or signing_key(each) for each in reading}
        principals = {
            name: principal
            for each in self._rights
            for name, principal in principals_in(each.content).items()
        }
        hashes = [each.hashes for each in principals.values()]
        return Content(
            reading=self._keys,
            writing=self._writing.passwords(),
            principals={name: _encode(each) for name, each in principals.items()},
            decoys=list(max(hashes, key=_cost, default=())),
            keys=[key for each in self._token_keys for key in keys_in(each.content)],
            audiences=self._audiences,
            is_closed=self._is_closed,
            files=[FileState(each.content, each.error) for each in self._watched],
        )


def _cost(hashes: Iterable[Hash]) -> int:
    return sum(each.cost for each in hashes)


class _Watched:
    """A file. ``content``: its last valid content.

    A content counts after two equal looks, because it may be half written.
    """

    def __init__(
        self,
        file: SecretFile,
        check: Callable[[bytes], object],
        kind: Callable[[bytes], str] = lambda content: "",
    ) -> None:
        """``kind``: of a content, which must stay the same."""
        self.file = file
        self.content = file.content
        self.error: str | None = None
        self._check = check
        self._kind = kind
        # Raises ValueError for a content that does not fit to those of other files.
        self.fits: Callable[[bytes], None] = lambda content: None
        self._seen: tuple[bytes | None, str | None] = file.content, None
        # A content that was refused beside ``content``, and the reason.
        self._refused: tuple[bytes, bytes, str] | None = None

    def check(self) -> None:
        """Raise SettingError if the content at the start is not valid."""
        try:
            self._check(self.content)
            self.fits(self.content)
        except ValueError as error:
            raise SettingError(f"{self.file.flag}: {str(self.file.path)!r} {error}") from None

    def look(self) -> bool:
        """Return whether the content or the error has changed."""
        seen, self._seen = self._seen, self._read()
        if seen != self._seen:
            return False
        content, error = seen
        if content == self.content:
            error = None
        elif content is not None and (error := self._fault(content)) is None:
            self.content, self.error = content, None
            return True
        shown = error and f"{self.file.flag}: {error}; the content before it stays in use"
        has_changed = shown != self.error
        self.error = shown
        return has_changed

    def _fault(self, content: bytes) -> str | None:
        """Return why a content must not replace the present one. None: it may."""
        if self._refused is not None and self._refused[:2] == (self.content, content):
            return self._refused[2]
        try:
            self._check(content)
            # A public key that was damaged might be taken for a secret, which all know.
            if (kind := self._kind(content)) != (before := self._kind(self.content)):
                raise ValueError(f"was a {before}, and now is a {kind}: needs a restart")
        except ValueError as fault:
            error = f"{self.file.path.name!r} {fault}"
            self._refused = self.content, content, error
            return error
        try:
            self.fits(content)
        except ValueError as fault:
            return f"{self.file.path.name!r} {fault}"
        return None

    def _read(self) -> tuple[bytes | None, str | None]:
        """Return the content, or the reason why there is none."""
        try:
            return read_bytes(self.file.path, self.file.path.name, must_be_regular=True), None
        except ValueError as error:
            return None, str(error)


class _Passwords:
    """The passwords of one side."""

    def __init__(self, given: Sequence[Secret | SecretFile]) -> None:
        self._given = [each.reveal() for each in given if isinstance(each, Secret)]
        files = [each for each in given if isinstance(each, SecretFile)]
        self.files = [_Watched(each, passwords_in) for each in files]

    def passwords(self) -> list[str]:
        found = list(self._given)
        for file in self.files:
            found += passwords_in(file.content)
        return list(dict.fromkeys(found))
