"""Judges an agent's answer to a batch. No I/O."""

from dataclasses import dataclass, field

from oplogc.http.answers import Answer, printable


@dataclass(frozen=True)
class Delivered:
    """All of the batch is durable."""


@dataclass(frozen=True)
class Invalid:
    """Nothing was stored. ``bad`` names the lines at fault, from 0, each with its reason."""

    bad: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TooLarge:
    """A smaller batch will do, unless it was a single operation."""

    reason: str


@dataclass(frozen=True)
class Later:
    """Send the same batch again, not before ``seconds``."""

    reason: str
    seconds: float = 0.0
    status: int | None = None
    """HTTP status if the agent refuses for good, such as for a wrong password."""


Verdict = Delivered | Invalid | TooLarge | Later


def judge(answer: Answer, lines: int) -> Verdict:
    """``lines`` is the number of operations sent."""
    status = answer.status
    if 200 <= status < 300:
        count = answer.members().get("ingested")
        if status == 200 and type(count) is int and count == lines:  # True equals 1
            return Delivered()
        return Later(
            f"{answer.url} is no agent: its answer does not confirm the operations (HTTP {status})",
            0.0,
            status,
        )
    if 300 <= status < 400:
        hint = f" to {answer.location}: give that address instead" if answer.location else ""
        return Later(f"{answer.url} redirects{hint} (HTTP {status})", 0.0, status)
    if status == 413:
        return TooLarge(answer.sentence())
    if status == 400 and (bad := _bad_lines(answer, lines)):
        return Invalid(bad)
    if answer.passes:
        return Later(answer.sentence(), answer.retry_after)
    return Later(answer.sentence(), 0.0, status)


def _bad_lines(answer: Answer, lines: int) -> dict[int, str]:
    """Return the reasons of the lines named in an answer. Empty if one is not in the batch."""
    errors = answer.members().get("errors")
    if not isinstance(errors, list):
        return {}
    bad = {}
    for error in errors:
        line = error.get("line") if isinstance(error, dict) else None
        if type(line) is not int or not 1 <= line <= lines:
            return {}
        reason = f"{error.get('field', 'operation')}: {error.get('reason', 'invalid')}"
        bad[line - 1] = printable(reason[:500])
    return bad
