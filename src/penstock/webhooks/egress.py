"""Egress policy of outgoing webhooks, enforced at connect time (SSRF protection)."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urlsplit

from aiohttp import AddrInfoType
from msgspec import Struct

from penstock.errors import InvalidInput

Address: TypeAlias = IPv4Address | IPv6Address
PORTS = frozenset({80, 443, 8080, 8443})
# Tunnelled addresses embed another address and could bypass the policy.
TUNNELS = [
    ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
]
SHARED = ip_network("100.64.0.0/10")
# Cloud metadata services, which hand out credentials. Some have public addresses.
METADATA = frozenset(
    map(
        ip_address,
        ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)


class EgressDenied(OSError):
    """The egress policy denies the address or port."""


class EgressPolicy(Struct, frozen=True):
    """`private` also allows loopback and private networks. `ports` of None allows any port."""

    private: bool = False
    ports: frozenset[int] | None = PORTS

    def explain_refusal(self, address: Address, port: int) -> str | None:
        if self.ports is not None and port not in self.ports:
            return f"port {port} is not one of {', '.join(map(str, sorted(self.ports)))}"
        return None if self.allows(unwrap_ipv4(address)) else "the address is not public"

    def allows(self, address: Address) -> bool:
        if address in METADATA or any(address in tunnel for tunnel in TUNNELS):
            return False
        if address.is_unspecified or address.is_multicast or address.is_link_local:
            return False
        if address.is_reserved and not address.is_loopback:
            return False
        return address.is_global or (self.private and (address.is_private or address in SHARED))

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        """Checks the resolved address, so DNS rebinding cannot bypass the policy."""
        family, kind, protocol, _, where = info
        host, port = str(where[0]), int(where[1])
        if (wrong := self.explain_refusal(ip_address(host.partition("%")[0]), port)) is not None:
            raise EgressDenied(wrong)
        return socket.socket(family, kind, protocol)

    def refuse(self, field: str, url: str) -> None:
        """Refuses a URL that the policy denies without resolving its name."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").rstrip(".")
        address = parse_literal(host)
        wrong = self.explain_refusal(address or PUBLIC, port)
        if wrong is None and address is None and not self.private and is_inside(host):
            wrong = f"{host} is a local host name"
        if wrong is not None:
            error = InvalidInput(f"{field}: {wrong}; this server does not send requests there")
            error.details = ((field, wrong),)
            raise error


PUBLIC = IPv4Address("1.1.1.1")


def unwrap_ipv4(address: Address) -> Address:
    """Unwraps an IPv4-mapped IPv6 address."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def parse_literal(host: str) -> Address | None:
    """Parses an IP literal, including short and hex forms such as 127.1 and 0x7f.1."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def is_inside(host: str) -> bool:
    return host.rpartition(".")[2] in ("localhost", "internal", "local")
