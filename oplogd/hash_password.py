"""The command ``oplogd hash-password``: prints the hash of a password for a file of principals."""

import getpass
import sys
from collections.abc import Sequence

from oplog_kit.disk import without_newline
from oplogd.host.stop import EXIT_OK, EXIT_USAGE
from oplogd.web.access.keys.scrypt import hashed

_HELP = """\
Usage: oplogd hash-password

Print the hash of a password, for password_hash in the file of --rights. Asks for
the password twice. Without a terminal, reads it from the first line of stdin."""


def run(arguments: Sequence[str]) -> int:
    """Print the hash and return the exit code: 2 for an argument, or without a password."""
    if arguments:
        if arguments[0] in ("-h", "--help"):
            print(_HELP)
            return EXIT_OK
        return _refuse("takes no argument: a password on the command line is seen by others")
    try:
        password = _asked() if sys.stdin and sys.stdin.isatty() else _piped()
    except (OSError, EOFError, KeyboardInterrupt, AttributeError):
        return _refuse("got no password")
    except UnicodeError:
        return _refuse("the password is not UTF-8 text")
    if not password:
        return _refuse("the password is empty")
    try:
        print(hashed(password), flush=True)
    except OSError as error:
        return _refuse(f"cannot write to stdout: {error.strerror}")
    return EXIT_OK


def _piped() -> str:
    # The bytes, because Python would take any for text.
    return without_newline(sys.stdin.buffer.readline().decode("utf-8-sig"))


def _asked() -> str:
    password = getpass.getpass("Password: ")
    while password and getpass.getpass("Again: ") != password:
        print("The two are different.", file=sys.stderr)
        password = getpass.getpass("Password: ")
    return password


def _refuse(sentence: str) -> int:
    print(f"oplogd hash-password: {sentence}", file=sys.stderr)
    return EXIT_USAGE
