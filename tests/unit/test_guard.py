"""How far the server reaches: by address, port and name."""

import socket
from ipaddress import ip_address

import pytest

from penstock.errors import InvalidInput
from penstock.webhooks.egress import PORTS, EgressDenied, EgressPolicy, parse_literal

PUBLIC = ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"]
LOOPBACK = ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"]
PRIVATE = ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fc00::1",
           "fd12:3456::1", "::ffff:10.0.0.1", "198.18.0.1"]  # fmt: skip
NEVER = ["0.0.0.0", "::", "169.254.0.1", "169.254.169.254", "fe80::1", "224.0.0.1", "239.1.2.3",
         "ff02::1", "255.255.255.255", "fd00:ec2::254", "100.100.100.200", "168.63.129.16",
         "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::1",
         "2002:808:808::1", "2001::1", "::ffff:169.254.169.254", "::7f00:1",
         "::ffff:0.0.0.0"]  # fmt: skip
OPEN = EgressPolicy(private=True, ports=None)
# However it is written, it is the same.
WRITTEN = ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.1", "0x7f000001", "[::1]",
           "[::ffff:127.0.0.1]", "0.0.0.0", "0", "localhost", "localhost.", "app.localhost",
           "169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "10.1.2.3",
           "192.168.0.1", "100.64.1.1", "[fe80::1]", "224.0.0.1", "printer.local"]  # fmt: skip


def is_refused(reach: EgressPolicy, address: str, port: int = 443) -> bool:
    return reach.explain_refusal(ip_address(address), port) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached_by_any_policy(address: str) -> None:
    assert not is_refused(EgressPolicy(), address)
    assert not is_refused(OPEN, address)


@pytest.mark.parametrize("address", LOOPBACK + PRIVATE)
def test_a_private_address_is_reached_where_that_is_allowed(address: str) -> None:
    assert is_refused(EgressPolicy(), address)
    assert not is_refused(OPEN, address)


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_reached_by_no_policy(address: str) -> None:
    assert is_refused(EgressPolicy(), address)
    assert is_refused(OPEN, address)


@pytest.mark.parametrize("port", [22, 25, 5432, 6379, 1])
def test_a_port_that_is_not_listed_is_not_reached(port: int) -> None:
    assert is_refused(EgressPolicy(), "1.1.1.1", port)
    assert not is_refused(EgressPolicy(ports=frozenset({port})), "1.1.1.1", port)
    assert not is_refused(OPEN, "1.1.1.1", port)


@pytest.mark.parametrize("port", sorted(PORTS))
def test_the_ports_of_the_web_are_reached(port: int) -> None:
    assert not is_refused(EgressPolicy(), "1.1.1.1", port)


def test_a_socket_is_made_for_an_address_within_reach_alone() -> None:
    where = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))
    with pytest.raises(EgressDenied, match="not public"):
        EgressPolicy().open_socket(where)
    made = OPEN.open_socket(where)
    made.close()
    with pytest.raises(EgressDenied, match="not public"):
        OPEN.open_socket((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1%2", 80, 0, 2)))


@pytest.mark.parametrize("host", WRITTEN)
def test_what_is_plainly_private_is_refused_before_it_is_resolved(host: str) -> None:
    with pytest.raises(InvalidInput, match="callback"):
        EgressPolicy().refuse("callback", f"http://{host}/done")


def test_a_name_is_looked_at_when_it_is_resolved() -> None:
    EgressPolicy().refuse("callback", "https://example.org/done")
    OPEN.refuse("callback", "http://localhost:9/done")
    OPEN.refuse("callback", "http://127.1:9/done")


def test_the_port_of_a_url_is_looked_at() -> None:
    with pytest.raises(InvalidInput, match="port 22"):
        EgressPolicy().refuse("callback", "http://example.org:22/")


@pytest.mark.parametrize("host", ["example.org", "1.2.3.4.example", "x127.1"])
def test_a_name_is_no_address(host: str) -> None:
    assert parse_literal(host) is None
