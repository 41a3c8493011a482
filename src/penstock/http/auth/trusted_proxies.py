"""Finds the client address behind reverse proxies by X-Forwarded-For."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias

from penstock.errors import InvalidInput
from penstock.webhooks.egress import unwrap_ipv4

Network: TypeAlias = IPv4Network | IPv6Network


class TrustedProxies:
    """Trusts the X-Forwarded-For entries that these proxies appended. Earlier entries may be
    forged by the client."""

    def __init__(self, networks: Iterable[str]) -> None:
        self.networks = [network_of(text) for text in networks]
        self.find_client = lru_cache(10_000)(self._find_client)

    def client_of(self, scope: Mapping[str, Any]) -> tuple[str, int] | None:
        """Returns the client address in the form of ASGI."""
        peer: tuple[str, int] | None = scope.get("client")
        if peer is None:
            return None
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return self.find_client(peer[0], b",".join(forwarded)), 0

    def _find_client(self, peer: str, forwarded: bytes) -> str:
        """Returns the right-most address that is not a trusted proxy."""
        address = address_in(peer) or peer
        for text in reversed(forwarded.decode("latin-1").split(",")):
            if not self.trusts(address):
                return address
            found = address_in(text)
            if found is None:
                return address
            address = found
        return address

    def trusts(self, address: str) -> bool:
        parsed = ip_address(address)
        return any(parsed in network for network in self.networks)


def network_of(text: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise InvalidInput(f"trusted-proxies: {error}; use an IP address or CIDR range") from None


def address_in(text: str) -> str | None:
    """Parses 192.0.2.1, 192.0.2.1:4711, 2001:db8::1 or [2001:db8::1]:4711."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(unwrap_ipv4(ip_address(host)))
    except ValueError:
        return None
