"""Values from the command line, a file or stdin."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from oplogc.topics import ForeignTransaction
from oplogc.topics.calls.pointers import published_of, rollback_key


def transaction_in(text: str) -> ForeignTransaction:
    """Read the transaction of a poll: JSON, or ``@`` and a file with it. Raise ValueError."""
    return ForeignTransaction.of_json(_json(_text_in(text)))


def rollback_keys(given: tuple[str, ...], topic: str, pointer: int) -> list[str]:
    """Return keys, or those of answers: ``@`` and a file, or ``-``. Raises click.UsageError."""
    try:
        if len(given) == 1 and (given[0] == "-" or given[0].startswith("@")):
            text = stdin_text() if given[0] == "-" else _text_in(given[0])
            keys = list(_keys_of_answers(text, topic, pointer))
        else:
            keys = [rollback_key(each) for each in given]
    except ValueError as error:
        raise click.UsageError(f"[KEY...|@FILE|-]: {error}") from None
    return keys


def _keys_of_answers(text: str, topic: str, pointer: int) -> Iterator[str]:
    try:
        answers = [_json(text)]
    except ValueError:  # an answer in each line
        answers = [_json(line) for line in text.splitlines() if line.strip()]
    if not answers:
        raise ValueError("there is no answer of a publish")
    for given in answers:
        try:
            answer = published_of(topic, given)
        except (ValueError, TypeError, KeyError):
            raise ValueError("it is not the answer of a publish under a pointer") from None
        if answer.pointer != pointer:
            raise ValueError(f"it is the answer for pointer {answer.pointer}, not {pointer}")
        if not answer.places:
            raise ValueError("the answer has no messages")
        yield from answer.keys


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None


def _text_in(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {text[1:]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot read {text[1:]}: it is not UTF-8") from None


def stdin_text(most: int | None = None) -> str:
    """Return the text of stdin. Raise ValueError.

    ``most``: characters; None: any number.
    """
    if sys.stdin is None:
        raise ValueError("stdin is closed: there is nothing to read")
    try:
        text = sys.stdin.read(-1 if most is None else most + 1)
    except UnicodeDecodeError:
        raise ValueError("stdin is not UTF-8") from None
    if most is not None and len(text) > most:
        raise ValueError(f"stdin has more than {most:,} characters")
    return text
