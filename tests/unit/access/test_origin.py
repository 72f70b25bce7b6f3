"""Host names of the agent, and requests of web pages."""

import pytest

from oplogd.config.values import host_name
from oplogd.web.access.origin import is_from_page, is_own_host

ALLOWED = frozenset({"oplog.example.com", "oplog"})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8042",
        "LocalHost:8042",
        "localhost.",
        "localhost.:8042",
        "localhost:",
        "a.localhost",
        "a.b.localhost:1",
        "127.0.0.1",
        "127.0.0.1:8042",
        "127.0.0.1.:8042",
        "192.0.2.7",
        "203.0.113.9:80",
        "[::1]",
        "[::1]:8042",
        "[2001:DB8::1]:443",
        "[::ffff:192.0.2.1]",
        "[fe80::1%25eth0]:8042",
        "oplog.example.com",
        "OPLOG.Example.COM:8042",
        "oplog.example.com.",
        "oplog:8042",
    ],
)
def test_a_name_that_only_the_agent_can_have_is_its_own(host: str) -> None:
    assert is_own_host([host], ALLOWED)
    assert is_own_host([host, "localhost"], ALLOWED)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        ":",
        ":8042",
        "evil.example",
        "evil.example:8042",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1.nip.io",
        "localhost..",
        "xlocalhost",
        ".localhost",
        "-.localhost",
        "evil.oplog.example.com",
        "xoplog.example.com",
        "example.com",
        "oplog.example.com.evil.example",
        "oplog.example.com..",
        "oplog.",
        "127.0.0.1@evil.example",
        "evil.example@127.0.0.1",
        "localhost:8042@evil.example",
        "localhost:8042:1",
        "localhost, evil.example",
        "localhost evil.example",
        "localhost\tx",
        " localhost",
        "localhost/",
        "localhost:port",
        "::1",
        "[::1",
        "::1]",
        "[::1]x",
        "[localhost]",
        "[127.0.0.1]",
        "[]",
        "[[::1]]",
        "x[::1]",
        "2130706433",
        "0x7f000001",
        "127.1",
        "0177.0.0.1",
        "127.0.0.1.1",
        "256.0.0.1",
        "localho\u017ft",
        "\uff1127.0.0.1",
        "localhost:" + "1" * 6,
        "a" * 300,
    ],
)
def test_any_other_name_may_belong_to_anybody(host: str) -> None:
    allowed = ALLOWED - {"oplog"} if host == "oplog." else ALLOWED
    assert not is_own_host([host], allowed)
    assert not is_own_host(["localhost", host], allowed)
    assert not is_own_host([host, "localhost"], allowed)


def test_without_a_host_no_name_is_the_agents() -> None:
    assert not is_own_host([], ALLOWED)
    assert not is_own_host(["evil.example"], [])


@pytest.mark.parametrize(
    ("headers", "page"),
    [
        ({}, False),
        ({"user-agent": "curl/8", "referer": "http://a.example/"}, False),
        ({"sec-fetch-mode": "cors"}, False),  # Node's fetch
        ({"origin": "http://a.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
    ],
)
def test_headers_that_only_browsers_send_show_a_page(headers: dict[str, str], page: bool) -> None:
    assert is_from_page(headers) is page


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Oplog.Example.com.", "oplog.example.com"),
        ("oplog", "oplog"),
        ("my_service", "my_service"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("", None),
        (".", None),
        ("a..b", None),
        ("*", None),
        ("*.example.com", None),
        ("bücher.example", None),
        ("a b", None),
        ("a:1", None),
        ("-a", None),
        ("a" * 64, None),
        ("a." * 130 + "a", None),
    ],
)
def test_a_host_name_is_compared_in_one_form(text: str, name: str | None) -> None:
    assert host_name(text) == name
