"""The address of a client is the right-most one that no trusted proxy has."""

import pytest

from penstock.errors import InvalidInput
from penstock.http.auth.trusted_proxies import TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", ["6.6.6.6"], "6.6.6.6"),
        ("10.0.0.1", ["1.1.1.1, 6.6.6.6"], "6.6.6.6"),
        ("10.0.0.1", ["6.6.6.6, 10.9.9.9"], "6.6.6.6"),
        ("10.0.0.1", ["6.6.6.6", "192.0.2.7"], "6.6.6.6"),
        ("2001:db8::1", ["2a00::6"], "2a00::6"),
        ("10.0.0.1", ["[2a00::6]:4711"], "2a00::6"),
        ("10.0.0.1", ["6.6.6.6:4711"], "6.6.6.6"),
        ("::ffff:10.0.0.1", ["::ffff:6.6.6.6"], "6.6.6.6"),
        # Nothing that can be believed: the last proxy that wrote something.
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["6.6.6.6, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["unknown, 10.9.9.9"], "10.9.9.9"),
        ("10.0.0.1", ["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
        # Not from a proxy of ours: anyone may write the header.
        ("6.6.6.6", ["1.1.1.1"], "6.6.6.6"),
        ("6.6.6.6", ["1.1.1.1, 10.0.0.1"], "6.6.6.6"),
    ],
)
def test_the_client_behind_proxies(peer: str, forwarded: list[str], client: str) -> None:
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    found = PROXIES.client_of({"client": (peer, 4711), "headers": headers})
    assert found == (client, 0)


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "proxy.example", "10.0.0.1/8"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="trusted-proxies"):
        TrustedProxies([text])
