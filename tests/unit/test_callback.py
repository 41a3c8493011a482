"""Where word of an end may be sent, as far as the URL says it."""

from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.rules.callbacks import check_url

BAD: dict[str, Any] = {
    "scheme": "ftp://example.org/",
    "no scheme": "example.org/done",
    "file": "file:///etc/passwd",
    "gopher": "gopher://example.org:70/",
    "unix": "unix:/run/x.sock",
    "user": "http://me:secret@example.org/",
    "two hosts": "http://example.org@example.com/",
    "backslash": "http://example.com\\@example.org/",
    "tab": "http://example.org/\tx",
    "newline": "http://example.org/\r\nhost: x",
    "space": "http://example.org/a b",
    "no host": "http:///done",
    "port": "http://example.org:99999/",
    "port zero": "http://example.org:0/",
    "bracket": "http://[::1/",
    "letters": "http://ex\u00e4mple.org/",
    "digits that are not": "http://\uff11\uff12\uff17.0.0.1/",
    "long": "http://example.org/" + "a" * 2_000,
    "empty": "",
    "number": 7,
}
GOOD = [
    "http://example.org",
    "https://example.org:8443/a?b=c%20d#e",
    "http://[2001:db8::1]:8080/x",
    "http://xn--exmple-cua.org/",
    "http://127.0.0.1/",
]


@pytest.mark.parametrize("name", BAD)
def test_a_text_that_is_no_address_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="callback"):
        check_url("callback", BAD[name])


@pytest.mark.parametrize("url", GOOD)
def test_an_address_of_the_web_is_taken(url: str) -> None:
    check_url("callback", url)
