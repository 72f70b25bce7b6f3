"""The depth of JSON text, compared with a walk over the decoded value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.decode.nesting import MAX_DEPTH, is_too_deep
from tests.kits.models.properties import examples


@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"x":', b"}"), (b'[{"x":[', b"]}]")]
)
def test_the_limit_is_exact(opening: bytes, closing: bytes) -> None:
    levels = opening.count(b"[") + opening.count(b"{")
    times = MAX_DEPTH // levels
    deepest = opening * times + b"[" * (MAX_DEPTH - levels * times)
    ends = b"]" * (MAX_DEPTH - levels * times) + closing * times
    assert not is_too_deep(deepest + b"1" + ends)
    assert is_too_deep(deepest + b"[]" + ends)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"[]," * 5000 + b"[]]",
        json.dumps(["[" * 5000, "{" * 5000]).encode(),
        json.dumps('"[' * 5000).encode(),
        json.dumps('\\"[' * 5000).encode(),
        json.dumps("\\" * 4999 + "[" * 5000).encode(),
        json.dumps("é[" * 5000, ensure_ascii=False).encode(),
        b'"' + b"[" * 5000,
        b'"' + b"[" * 5000 + b"\\",
    ],
)
def test_brackets_side_by_side_or_in_strings_do_not_count_as_depth(raw: bytes) -> None:
    assert not is_too_deep(raw)


@pytest.mark.parametrize(
    "raw",
    [b"[" * 5000, b'{"x":' * 5000, b'"\\\\"' + b"[" * 5000, b"]" * 9 + b"{" * 5000, b"\xff[" * 900],
)
def test_text_that_is_no_json_is_judged_by_its_brackets(raw: bytes) -> None:
    assert is_too_deep(raw)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text('["{]}\\aé'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('["\\{]}'), inner, max_size=4)
    ),
    max_leaves=12,
)


@examples()
@given(json_values, st.booleans())
def test_the_depth_is_that_of_the_decoded_value(value: Any, ascii_: bool) -> None:
    inner = json.dumps(value, ensure_ascii=ascii_).encode()
    fits = MAX_DEPTH - depth(value)
    assert not is_too_deep(b"[" * fits + inner + b"]" * fits)
    assert is_too_deep(b"[" * (fits + 1) + inner + b"]" * (fits + 1))
