"""Counts requests that were refused for their body."""

from oplogd.web.http.problem import Problem

_REASONS = {400: "invalid", 413: "too_large", 415: "type"}
_WITH_BODY = ("POST", "PUT", "DELETE")


class RefusedBodies:
    """``counts``: by reason. ``no_room``: --max-upload-memory is used up."""

    def __init__(self) -> None:
        self.counts = {"invalid": 0, "too_large": 0, "type": 0, "no_room": 0}

    def add(self, method: str, problem: Problem) -> None:
        """Count the problem of a request if it is one of its body, or of its other parameters."""
        if method in _WITH_BODY and (reason := _REASONS.get(problem.status)):
            self.counts[reason] += 1

    def add_no_room(self) -> None:
        self.counts["no_room"] += 1
