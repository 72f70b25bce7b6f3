"""Reads the settings, once, from flags and environment."""

import argparse
import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import oplogd
from oplogd.settings import Flag, Settings, flag_table


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Each value from its flag, else its variable, else its default. `argv` is without the program's name.

    Raises SystemExit: 2 after one sentence on stderr for a bad value, 0 after --help and --version.
    """
    parser = _parser()
    known, unknown = parser.parse_known_args(argv)
    if unknown:
        # What follows a misspelt --password must not be repeated, so only the flag itself is.
        parser.error(f"unknown argument {unknown[0].partition('=')[0]}")
    try:
        given = _given(vars(known), environ)
        return _read_settings(given)
    except _Invalid as error:
        parser.error(str(error))


class _Invalid(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Given:
    text: str
    source: str  # the flag or the variable, as messages name it


def _given(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for flag in flag_table():
        text = flags[flag.name]
        if text is not None and not (text == "" and flag.empty_is_unset):
            given[flag.name] = _Given(text, flag.name)
        elif environ.get(flag.variable):
            given[flag.name] = _Given(environ[flag.variable], flag.variable)
    return given


def _read_settings(given: Mapping[str, _Given]) -> Settings:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        flags: tuple[Flag, ...] = field.metadata["flags"]
        chosen = [(flag, given[flag.name]) for flag in flags if flag.name in given]
        if len(chosen) > 1:
            raise _Invalid(f"{chosen[0][1].source} and {chosen[1][1].source} exclude each other")
        for flag, raw in chosen:
            try:
                values[field.name] = flag.convert(raw.text)
            except ValueError as error:
                raise _Invalid(f"{raw.source}: {error}") from None
    if "--store" in given and "--mongo-url" in given:
        raise _Invalid(
            f"{given['--store'].source} and {given['--mongo-url'].source} exclude each other"
        )
    pairs = [
        ("--tls-certificate", "--tls-key"),
        ("--tls-key", "--tls-certificate"),
        ("--spool", "--mongo-url"),
    ]
    for flag_name, other in pairs:
        if flag_name in given and other not in given:
            raise _Invalid(f"{given[flag_name].source} needs {other} as well")
    return Settings(**values)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse says "argument --listen: expected one argument", "argument --debug: ignored explicit ...".
        message = message.removeprefix("argument ")
        message = message.replace(
            "expected one argument", "needs a value (--flag=VALUE if it begins with -)"
        )
        message = re.sub(
            r"ignored explicit argument .*", "takes no value", message, flags=re.DOTALL
        )
        self.exit(2, f"{self.prog}: {message}\n")


_ABOUT = "Takes operations on objects over UDP and HTTP, keeps them in a log, and streams them to consumers."
_EPILOG = """\
Each value comes from its flag, else from its variable, else it is the default. An empty variable is not set.

SIZE is a number of bytes, or one with a unit: 10485760, 10MB, 10MiB, 64k, 1G. Units are powers of 1024.
DURATION is a number of seconds, or one with a unit: 30, 30s, 500ms, 10m, 12h, 30d.
A switch's variable is 1, true, yes or on, or else 0, false, no, off or empty.
"""


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="oplogd",
        usage="oplogd [FLAG ...]",
        description=_ABOUT,
        epilog=_EPILOG,
        allow_abbrev=False,
        add_help=False,
        formatter_class=_HelpFormatter,
    )
    # Values stay text here: only `_read_settings` converts, so that flag, variable and default read alike.
    flags = parser.add_argument_group("flags")
    for flag in flag_table():
        notes = "" if flag.default is None or flag.metavar is None else f" Default: {flag.default}."
        text = f"{flag.help}{notes} Variable: {flag.variable}.".replace("%", "%%")
        if flag.metavar is None:
            flags.add_argument(
                flag.name, dest=flag.name, action="store_const", const="true", help=text
            )
        else:
            flags.add_argument(flag.name, dest=flag.name, metavar=flag.metavar, help=text)
    flags.add_argument("--help", "-h", action="help", help="Print this and exit.")
    flags.add_argument(
        "--version",
        action="version",
        version=f"oplogd {oplogd.__version__}",
        help="Print the version and exit.",
    )
    return parser


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps the help of a flag but breaks no flag in two; leaves description and epilog as they are."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text
