"""The token of each request: a fresh one only if the last was refused."""

from collections.abc import Iterator

import httpx
import pytest

from oplogc.http.token import Bearer, TokenSource, token_source


def header(bearer: Bearer) -> str:
    request = httpx.Request("GET", "http://localhost/")
    next(bearer.auth_flow(request))
    return str(request.headers["Authorization"])


def test_blanks_around_a_token_are_no_part_of_it() -> None:
    assert header(Bearer(" a.b\n")) == "Bearer a.b"
    for text in ("a b", "", "ä", None):
        with pytest.raises(ValueError, match="printable ASCII"):
            Bearer(text)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_is_called_again_for_a_refused_token_only(*, is_async: bool) -> None:
    numbers: Iterator[int] = iter(range(10))

    def plain() -> str:
        return f"token-{next(numbers)}"

    async def waiting() -> str:
        return plain()

    source = TokenSource(waiting if is_async else plain)
    first = await source.current()
    assert await source.current() is first
    second = await source.current(refused=first)
    assert [header(first), header(second)] == ["Bearer token-0", "Bearer token-1"]
    assert await source.current(refused=first) is second, "another request has a fresh one"


async def test_one_token_stays_also_when_it_is_refused() -> None:
    source = TokenSource("a")
    only = await source.current()
    assert await source.current(refused=only) is only
    assert not source.is_function


def test_a_token_excludes_passwords_that_are_given() -> None:
    assert token_source(None, password="x") is None
    assert token_source("a", password=None, ingest_password="") is not None
    with pytest.raises(ValueError, match=r"^token and password exclude each other"):
        token_source("a", password="x")
