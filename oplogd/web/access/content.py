"""The content of all flags and files with credentials, as workers share it. No I/O."""

import msgspec

from oplogd.web.access.keys.scrypt import Hash
from oplogd.web.access.keys.tokens import TokenKey


class FileState(msgspec.Struct, frozen=True):
    """A file of credentials. ``content``: the last valid one. ``error``: why it is not used now."""

    content: bytes
    error: str | None = None


class Content(msgspec.Struct, frozen=True):
    """The content of flags and files.

    ``reading``: passwords with their keys for signing. ``writing``: passwords. ``principals``:
    encoded, by name. ``decoys``: hashes of the principal with the costliest check. ``keys``: of
    tokens. ``is_closed``: without a password, only principals and tokens may read or write.
    """

    reading: dict[str, bytes]
    writing: list[str]
    principals: dict[str, bytes]
    decoys: list[Hash]
    keys: list[TokenKey]
    audiences: list[str]
    is_closed: bool
    files: list[FileState]

    @property
    def errors(self) -> list[str]:
        """A sentence for each file that cannot be used as it is now."""
        return [each.error for each in self.files if each.error]

    def is_as(self, other: "Content") -> bool:
        """Return whether nothing but errors is different."""
        return [each.content for each in self.files] == [each.content for each in other.files]
