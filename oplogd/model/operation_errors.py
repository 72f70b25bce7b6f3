"""Errors of msgspec for operations, in the words of the contract. No I/O."""

import re

from oplogd.errors import OperationError

_ERROR_PATH = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `(.*)`, got `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_WORDS = {
    "str": "a string", "str | null": "a string", "array": "a list", "array | null": "a list",
    "object": "an object", "int": "a number", "float": "a number", "bool": "true or false",
    "null": "null",
}  # fmt: skip


def explained_error(message: str) -> OperationError:
    """Translate a message of msgspec into the words of the contract."""
    path = _ERROR_PATH.search(message)
    field = path[1] if path else "operation"
    message = _ERROR_PATH.sub("", message)
    if missing := _MISSING.fullmatch(message):
        return OperationError(missing[1], "is required")
    if wrong := _WRONG_TYPE.fullmatch(message):
        expected, got = (_WORDS.get(word, word) for word in wrong.groups())
        return OperationError(field, f"must be {expected}, not {got}")
    return OperationError(
        field, f"is not valid JSON: {message.removeprefix('JSON is malformed: ')}"
    )
