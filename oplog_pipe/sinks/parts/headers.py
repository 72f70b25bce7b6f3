"""Headers users give. No I/O."""

import re
from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?|")


def check_headers(headers: Mapping[str, str], setting: str) -> None:
    """Raise ValueError, which names the setting, for an invalid header.

    The HTTP client would tell the value, which may be a secret.
    """
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{setting}: {name!r} is no name of a header")
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"{setting}: the value of {name} must be printable ASCII, without white space at"
                " its ends"
            )
