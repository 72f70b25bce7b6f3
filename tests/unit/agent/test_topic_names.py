"""Names of namespaces and topics are accepted or refused, and the refusal names the field."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oplogd.errors import TopicError
from oplogd.model.names import MAX_NAME, OPLOG, TopicName, check_name
from tests.kits.models.properties import examples

NAME = re.compile(r"^(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")


@examples(5)
@given(
    st.text()
    | st.text("abcXYZ019._-/ \n\u0660\u00e9", max_size=8)
    | st.integers(MAX_NAME - 2, MAX_NAME + 2).map("n".__mul__)
)
@example("...")
def test_a_name_is_accepted_as_it_is_or_refused(name: str) -> None:
    if NAME.match(name):
        assert check_name(name, "topic") == name
    else:
        with pytest.raises(TopicError):
            check_name(name, "topic")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "a b",
        "a\n",
        "a\0",
        "ä",
        "\u0660",
        "a%2Fb",
        "a:b",
        "n" * (MAX_NAME + 1),
        "\ud800",
    ],
)
@pytest.mark.parametrize("field", ["namespace", "topic"])
def test_these_are_no_names(name: str, field: str) -> None:
    with pytest.raises(TopicError) as caught:
        check_name(name, field)
    assert caught.value.field == field
    assert str(caught.value) == (
        f"{field}: must be 1 to 249 ASCII letters, digits, '.', '_' or '-', and not '.' or '..'"
    )


@pytest.mark.parametrize("name", ["a", "0", "-", "_", "...", ".a", "A.b_C-9", "n" * MAX_NAME])
def test_these_are_names(name: str) -> None:
    assert check_name(name, "topic") == name


def test_a_topic_is_written_behind_its_namespace() -> None:
    assert str(TopicName("shop", "orders")) == "shop/orders"
    assert str(OPLOG) == "system/oplog"
