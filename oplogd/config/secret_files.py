"""Files with secrets that an agent reads again when they change."""

import re
from collections.abc import Callable
from pathlib import Path

from oplog_kit.disk import decoded, read_bytes
from oplogd.config import values

# More is no rotation. Each password for reading costs 50 ms once.
MAX_PASSWORDS = 32
_MAX_BYTES = 4_096
_MAX_FILE_BYTES = 256 * 1024
# What a proxy or a crash may leave in place of passwords. Everybody may know it.
_PAGE = re.compile(r"\s*<(?:!doctype|!--|html|head|\?xml)", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class SecretFile:
    """A file that was read at the start. Its content is in no repr.

    ``flag``: that named it. ``is_regular``: False for a pipe, which can be read only once.
    """

    __slots__ = ("content", "flag", "is_regular", "path")

    def __init__(self, flag: str, path: Path, content: bytes) -> None:
        self.flag = flag
        self.path = path
        self.content = content
        self.is_regular = path.is_file()

    def __repr__(self) -> str:
        return f"SecretFile({self.flag})"


def secret_file(flag: str) -> Callable[[str], SecretFile]:
    """Return a conversion from a path to its file."""

    def convert(text: str) -> SecretFile:
        return SecretFile(flag, values.path(text), read_bytes(text))

    return convert


def password_file(flag: str) -> Callable[[str], SecretFile]:
    """Return a conversion from a path to a file of passwords."""
    read = secret_file(flag)

    def convert(text: str) -> SecretFile:
        file = read(text)
        try:
            passwords_in(file.content)
        except ValueError as error:
            raise ValueError(f"{text!r} {error}") from None
        return file

    return convert


def passwords_in(content: bytes) -> list[str]:
    """Return the passwords in a file, one per line. Raises ValueError if there is none.

    The message continues the name of a file. Blank lines do not count.
    """
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"has more than {_MAX_FILE_BYTES:,} bytes")
    text = decoded(content)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if _PAGE.match(text):
        raise ValueError("has a page, and no passwords")
    if any(_CONTROLS.search(line) for line in lines):
        raise ValueError("has control characters, which no password has")
    found = list(dict.fromkeys(line for line in lines if line.strip()))
    if not found:
        raise ValueError("is empty")
    if any(len(each.encode()) > _MAX_BYTES for each in found):
        raise ValueError(f"has a password of more than {_MAX_BYTES:,} bytes")
    if len(found) > MAX_PASSWORDS:
        raise ValueError(f"has {len(found):,} passwords, at most {MAX_PASSWORDS} are possible")
    return found
