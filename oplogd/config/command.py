"""The command ``oplogd`` as a table of flags."""

from collections.abc import Mapping, Sequence

import click

import oplogd
from oplog_kit.command.given import Given
from oplog_kit.command.settings import SettingsCommand
from oplog_kit.extras import how_to_install, is_installed
from oplogd.config.settings import Settings

_ABOUT = (
    "Receive operations on objects over UDP and HTTP, keep them in a log, and stream them to"
    " consumers."
)
_NOTES = """\
Each value comes from its flag, else from its variable, else it is the default. \
An empty variable is not set. An unknown variable that begins with OPLOGD_ is refused.

SIZE is a number of bytes, or a number with a unit: 10485760, 10MB, 10MiB, 64k, 1G. \
Units are powers of 1024.

DURATION is a number of seconds, or a number with a unit: 30, 30s, 500ms, 10m, 12h, 30d, 2w.

The variable of a flag without a value is 1, true, yes or on; or 0, false, no or off.

`oplogd hash-password` prints the hash of a password for the file of --rights.

Exit codes: 0 stopped in order, 1 failed, 2 a bad setting, 3 stopped before all was stored or all \
streams had ended."""


def command() -> SettingsCommand[Settings]:
    return SettingsCommand(
        "oplogd",
        Settings,
        _check,
        version=oplogd.__version__,
        about=_ABOUT,
        notes=_NOTES,
    )


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Read the settings as `SettingsCommand.parse` does."""
    return command().parse(argv, environ)


_MONGO_URL = ("--mongo-url", "--mongo-url-file")


def _check(given: Given) -> None:
    given.refuse_together(["--store"], _MONGO_URL)
    given.require("--spool", *_MONGO_URL)
    given.require("--tls-certificate", "--tls-key")
    given.require("--tls-key", "--tls-certificate")
    given.require("--token-audience", "--token-key")
    for names, module, library, extra in (
        (_MONGO_URL, "pymongo", "PyMongo", "mongo"),
        (("--token-key",), "jwt", "PyJWT", "jwt"),
    ):
        for source in (given.sources[name] for name in names if name in given.sources):
            if not is_installed(module):
                raise click.UsageError(
                    f"{source}: {library} is not installed; {how_to_install(extra)}"
                )
