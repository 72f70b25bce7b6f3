"""Errors of topics and the store as answers."""

from oplogd.errors import NoLogNumberError
from oplogd.web.http.error_handlers import problem_of


def test_a_store_without_a_free_number_is_no_fault_that_passes_by_itself() -> None:
    problem = problem_of(NoLogNumberError("delete topics"))
    assert (problem.status, problem.detail) == (507, "delete topics")
    assert "Retry-After" not in problem.headers
