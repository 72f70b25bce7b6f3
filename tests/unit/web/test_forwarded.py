"""The canonical form of addresses, and the client that a chain of proxies reports."""

import ipaddress
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from oplogd.web.connection.edge import Edge
from oplogd.web.connection.forwarded import LOOPBACK, TrustedProxies, plain_address
from tests.kits.models.properties import examples

CLIENT = ("203.0.113.9", 0)
INNER = "127.0.0.1,::1,10.0.0.0/8,192.0.2.1,2001:db8::/32"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:C000:201", "192.0.2.1"),
        ("0:0:0:0:0:ffff:127.0.0.1", "127.0.0.1"),
        ("::ffff:192.0.2.1%eth0", "192.0.2.1"),
        ("::1", "::1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("fe80::1%<script>", None),
        ("fe80::1%" + "a" * 50, None),
        ("", None),
        ("unknown", None),
        ("_hidden", None),
        ("127.0.0.1 ", None),
        ("127.1", None),
        ("127.0.0.01", None),
        ("localhost", None),
        ("1" * 10_000, None),
        ("192.0.2.1:80", None),
        ("[::1]", None),
    ],
)
def test_an_address_has_one_form(text: str, plain: str | None) -> None:
    assert plain_address(text) == plain


@pytest.mark.parametrize(
    ("trusted", "address", "trust"),
    [
        (LOOPBACK, "127.0.0.1", True),
        (LOOPBACK, "::1", True),
        (LOOPBACK, "127.0.0.2", False),
        (LOOPBACK, "192.0.2.1", False),
        (LOOPBACK, None, False),
        ("", "127.0.0.1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.0/104", "10.9.9.9", True),
        ("::ffff:10.0.0.0/104", "11.0.0.1", False),
        ("10.0.0.0/8, 2001:db8::/32", "10.9.9.9", True),
        ("10.0.0.0/8, 2001:db8::/32", "2001:db8::9", True),
        ("10.0.0.0/8, 2001:db8::/32", "2001:db9::9", False),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("fe80::1%eth0", "fe80::1%eth1", False),
        ("*", "192.0.2.1", True),
        (" * ", None, True),
        ("*,10.0.0.1", "192.0.2.1", False),
    ],
)
def test_the_variable_lists_trusted_addresses_and_networks(
    trusted: str, address: str | None, trust: bool
) -> None:
    assert TrustedProxies(trusted).trust(address) is trust


def test_a_text_that_is_no_address_trusts_nobody_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        proxies = TrustedProxies("proxy.example, 10.0.0.1/8,127.0.0.1")
    assert proxies.trust("127.0.0.1")
    assert not proxies.trust("10.0.0.1")
    messages = [record.getMessage() for record in caplog.records]
    assert [
        item in message
        for item, message in zip(("proxy.example", "10.0.0.1/8"), messages, strict=True)
    ] == [True] * 2


@pytest.mark.parametrize(
    ("values", "client"),
    [
        (["203.0.113.9"], CLIENT),
        (["203.0.113.9:4711"], ("203.0.113.9", 4711)),
        (["::ffff:203.0.113.9"], CLIENT),
        (["[::ffff:203.0.113.9]:80"], ("203.0.113.9", 80)),
        (["[2a00::1]"], ("2a00::1", 0)),
        (["2a00::1"], ("2a00::1", 0)),
        (["[2a00::1]:65535"], ("2a00::1", 65535)),
        (["127.0.0.1, 203.0.113.9"], CLIENT),
        (["127.0.0.1", "203.0.113.9"], CLIENT),
        (["203.0.113.9", "127.0.0.1"], CLIENT),
        (["198.51.100.1, 203.0.113.9, 10.0.0.1, ::ffff:10.0.0.2,2001:db8::1"], CLIENT),
        (["::1,::ffff:127.0.0.1, 203.0.113.9 ,\t192.0.2.1"], CLIENT),
        (["10.0.0.7, 10.0.0.1"], ("10.0.0.7", 0)),
        (["unknown"], None),
        (["127.0.0.1, unknown"], None),
        (["127.0.0.1, unknown, 10.0.0.1"], None),
        (["127.0.0.1,"], None),
        (["203.0.113.9:x"], None),
        (["203.0.113.9:123456"], None),
        (["[::1"], None),
        (["[127.0.0.1]x"], None),
        (["127.0.0.1 203.0.113.9"], None),
        (["1" * 10_000], None),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(
    values: list[str], client: tuple[str, int] | None
) -> None:
    assert TrustedProxies(INNER).client(values) == client


def test_if_everybody_is_trusted_the_first_address_is_the_client() -> None:
    assert TrustedProxies("*").client(["203.0.113.9, 198.51.100.1", "127.0.0.1"]) == CLIENT


@examples()
@given(
    st.lists(
        st.sampled_from(
            ["127.0.0.1", "::1", "10.0.0.1", "198.51.100.1", "", "x", "::ffff:10.0.0.2"]
        )
    ),
    st.data(),
)
def test_no_claim_of_the_client_changes_the_address_a_trusted_proxy_saw(
    claim: list[str], data: st.DataObject
) -> None:
    behind = data.draw(
        st.lists(st.sampled_from(["10.0.0.1", "::ffff:10.0.0.2", "[2001:db8::1]:80"]), max_size=3)
    )
    assert TrustedProxies(INNER).client([", ".join([*claim, CLIENT[0], *behind])]) == CLIENT


@examples()
@given(st.ip_addresses(v=4), st.booleans())
def test_a_mapped_address_is_its_ipv4_address(ip: ipaddress.IPv4Address, mapped: bool) -> None:
    assert plain_address(f"::ffff:{ip}" if mapped else str(ip)) == str(ip)


async def unused(*_: object) -> Any:
    raise AssertionError("the app does not answer")


async def seen(
    peer: tuple[str, int] | None, *headers: tuple[str, str], trusted: str | None = None
) -> Any:
    """Return client and scheme as the app sees them."""
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)

    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope: Scope = {"type": "http", "scheme": "http", "client": peer, "headers": pairs}
    environ = {} if trusted is None else {"FORWARDED_ALLOW_IPS": trusted}
    await Edge(app, environ)(scope, unused, unused)
    return scopes[0]["client"], scopes[0]["scheme"]


FOR, PROTO = ("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "https")


async def test_only_a_trusted_peer_is_believed() -> None:
    for peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert await seen((peer, 1), FOR, PROTO) == (CLIENT, "https")
    for stranger in (
        "192.0.2.1",
        "::ffff:192.0.2.1",
        "2a00::1",
        "::ffff:0:127.0.0.1",
        "::127.0.0.1",
    ):
        (host, port), scheme = await seen((stranger, 7), FOR, PROTO)
        assert (host, port, scheme) == (plain_address(stranger), 7, "http")
    assert await seen(("::ffff:127.0.0.1", 1), FOR, PROTO, trusted="192.0.2.1") == (
        ("127.0.0.1", 1),
        "http",
    )
    assert await seen(("::ffff:127.0.0.1", 1), FOR, PROTO, trusted="") == (("127.0.0.1", 1), "http")


async def test_a_peer_without_an_ip_address_is_unknown() -> None:
    for peer in (None, ("", 0), ("/run/socket", 0)):
        assert await seen(peer, FOR, PROTO) == (None, "http")
        assert await seen(peer, FOR, PROTO, trusted="*") == (CLIENT, "https")


async def test_without_a_usable_header_the_peer_stays_the_client() -> None:
    peer = ("127.0.0.1", 1)
    assert await seen(peer) == (peer, "http")
    assert await seen(peer, ("X-Forwarded-For", " "), ("X-Forwarded-Proto", "gopher")) == (
        peer,
        "http",
    )
    assert await seen(peer, ("X-Forwarded-For", "unknown")) == (None, "http")
