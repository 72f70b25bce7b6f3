"""Corrections: operations of tools beside the agent, and the rule of all stores about them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from oplogd.model.operation import Operation

# Corrections per call of ``Corrector.correct``.
MAX_CORRECTIONS = 1000


class Correction(NamedTuple):
    """An operation to append only if its object has not changed since the comparison.

    ``expected_offset``: of the object's last operation then, 0 without one. None: append in any
    case.
    """

    operation: Operation
    expected_offset: int | None


class CorrectionResult(StrEnum):
    APPLIED = "applied"
    # The object's last operation already has the same effect.
    PRESENT = "present"
    # The object has changed.
    SKIPPED = "skipped"


class Corrector(Protocol):
    """Appends corrections. Raises the errors of ``Store``."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def correct(self, corrections: Sequence[Correction]) -> list[CorrectionResult]:
        """Append the corrections of unchanged objects in this order; return a result for each.

        Takes at most MAX_CORRECTIONS. No correction follows a newer operation on its object, even
        if another agent wrote that operation or the states do not hold it yet. A repeated call
        returns PRESENT for the corrections of the first one.
        """


class LastOperation(NamedTuple):
    """The last operation of an object."""

    offset: int
    deleted: bool
    data: str


def judged(
    corrections: Sequence[Correction], last: Mapping[str, LastOperation]
) -> list[CorrectionResult]:
    """Return the results, by the last operations of the objects. ``last``: by key.

    A second correction of one object expects the object as before the first one. So it is refused.
    """
    results = []
    seen: set[str] = set()
    for operation, expected in corrections:
        found = last.get(operation.key)
        is_first = operation.key not in seen
        seen.add(operation.key)
        if expected is None or (is_first and expected == (found.offset if found else 0)):
            results.append(CorrectionResult.APPLIED)
        elif (
            found
            and found.deleted == (operation.event == "delete")
            and found.data == operation.data.decode()
        ):
            results.append(CorrectionResult.PRESENT)
        else:
            results.append(CorrectionResult.SKIPPED)
    return results
