"""Tables of flags: frozen dataclasses whose fields are made by `setting` and `secret`."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oplog_kit.command.convert import Secret, in_file


@dataclass(frozen=True, slots=True)
class Flag:
    """One row of a table. `default`: the text as a user would type it; None: not set."""

    subject: str
    name: str
    metavar: str | None  # None: a switch
    default: str | None
    convert: Callable[[str], Any]
    help: str
    program: str = "oplogd"
    empty_is_unset: bool = False
    repeats: bool = False

    @property
    def variable(self) -> str:
        return f"{self.program}{self.name[1:]}".replace("-", "_").upper()

    @property
    def choices(self) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self.convert, "choices", ())
        return found


def setting(
    subject: str,
    name: str,
    metavar: str | None,
    default: str | None,
    convert: Callable[[str], Any],
    help: str,
    **options: Any,
) -> Any:
    """Return a field with its flag. Its default is `convert(default)`, or None.

    `options`: others of Flag. A setting that `repeats` is a tuple; its variable holds one value per
    line.
    """
    flag = Flag(subject, name, metavar, default, convert, help, **options)
    value = () if flag.repeats else None if default is None else convert(default)
    return dataclasses.field(default=value, metadata={"flags": (flag,)})


def secret(
    subject: str,
    name: str,
    metavar: str,
    convert: Callable[[str], Secret],
    help: str,
    *,
    program: str = "oplogd",
    empty_is_unset: bool = True,
) -> Any:
    """Return a field with two flags: one takes the secret, the other its file."""
    given = Flag(subject, name, metavar, None, convert, help, program, empty_is_unset)
    about = f"Read {name} from this file. One newline at its end is ignored. Excludes {name}."
    flags = given, _of_file(given, about, in_file(convert))
    return dataclasses.field(default=None, metadata={"flags": flags})


def secrets(
    subject: str, name: str, metavar: str, help: str, in_files: Callable[[str], Any], about: str
) -> Any:
    """Return a field with two flags: one takes secrets, the other files with secrets.

    Both repeat. The field is a tuple of ``Secret``, or of the results of ``in_files``. ``about``:
    the help of the files.
    """
    given = Flag(subject, name, metavar, None, Secret, help, empty_is_unset=True, repeats=True)
    flags = given, _of_file(given, about, in_files)
    return dataclasses.field(default=(), metadata={"flags": flags})


def _of_file(flag: Flag, help: str, convert: Callable[[str], Any]) -> Flag:
    return dataclasses.replace(
        flag,
        name=f"{flag.name}-file",
        metavar="PATH",
        help=help,
        convert=convert,
        empty_is_unset=False,
    )


def flags_of(settings: type) -> tuple[Flag, ...]:
    """Return the flags of a table in the order of its fields."""
    fields = dataclasses.fields(settings)
    return tuple(flag for field in fields for flag in field.metadata.get("flags", ()))
