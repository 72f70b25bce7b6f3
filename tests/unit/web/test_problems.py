"""Errors of topics and the store as answers."""

import pytest

from oplogd.errors import NoLogNumberError
from oplogd.web.http.problem import Problem
from oplogd.web.v1.requests import continuing


def test_a_store_without_a_free_number_is_no_fault_that_passes_by_itself() -> None:
    with pytest.raises(Problem) as raised, continuing():
        raise NoLogNumberError("delete topics")
    assert (raised.value.status, raised.value.detail) == (507, "delete topics")
    assert "Retry-After" not in raised.value.headers
