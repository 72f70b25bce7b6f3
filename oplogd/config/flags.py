"""Tables of flags: frozen dataclasses whose fields are made by `setting` and `secret`."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oplogd.config import values


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One row of a table. `default`: the text that a user would type; None: not set."""

    name: str
    program: str
    subject: str
    metavar: str | None  # None: a switch
    default: str | None
    help: str
    convert: Callable[[str], Any]
    choices: tuple[str, ...] = ()
    empty_is_unset: bool = False
    repeats: bool = False

    @property
    def variable(self) -> str:
        return f"{self.program}{self.name[1:]}".replace("-", "_").upper()


def setting(
    subject: str,
    name: str,
    metavar: str | None,
    default: str | None,
    convert: Callable[[str], Any],
    help: str,
    *,
    program: str = "oplogd",
    empty_is_unset: bool = False,
    repeats: bool = False,
) -> Any:
    """Return a field with its flag. Its default is `convert(default)`, or None.

    A setting that `repeats` is a tuple; its variable holds one value per line.
    """
    flag = Flag(
        name=name,
        program=program,
        subject=subject,
        metavar=metavar,
        default=default,
        help=help,
        convert=convert,
        choices=getattr(convert, "choices", ()),
        empty_is_unset=empty_is_unset,
        repeats=repeats,
    )
    value = () if repeats else None if default is None else convert(default)
    return dataclasses.field(default=value, metadata={"flags": (flag,)})


def secret(
    subject: str,
    name: str,
    metavar: str,
    convert: Callable[[str], values.Secret],
    help: str,
    *,
    program: str = "oplogd",
    empty_is_unset: bool = True,
) -> Any:
    """Return a field with two flags: one takes the secret, the other a file that holds it."""
    given = Flag(
        name=name,
        program=program,
        subject=subject,
        metavar=metavar,
        default=None,
        help=help,
        convert=convert,
        empty_is_unset=empty_is_unset,
    )
    file = dataclasses.replace(
        given,
        name=f"{name}-file",
        metavar="PATH",
        help=f"Read {name} from this file. One newline at its end is ignored. Excludes {name}.",
        convert=values.in_file(convert),
        empty_is_unset=False,
    )
    return dataclasses.field(default=None, metadata={"flags": (given, file)})


def flags_of(settings: type) -> tuple[Flag, ...]:
    """Return the flags of a table in the order of its fields."""
    fields = dataclasses.fields(settings)
    return tuple(flag for field in fields for flag in field.metadata.get("flags", ()))
