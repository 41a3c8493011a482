"""What goes out to receivers: signed, no further than allowed, and no longer than bearable."""

import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from standardwebhooks import Webhook, WebhookVerificationError

from penstock.broker.webhook_secrets import derive_secret
from penstock.webhooks.egress import EgressPolicy
from penstock.webhooks.sender import WebhookRequest, WebhookResult, WebhookSender, make_headers
from tests.http.receiver import Receiver, receiving, silent

pytestmark = pytest.mark.anyio

OPEN = EgressPolicy(private=True, ports=None)
SECRETS = [derive_secret(b"k" * 32, "default", number) for number in range(2)]
BODY = b'{"type":"message.completed"}'


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
async def sender() -> AsyncIterator[WebhookSender]:
    """One that may send to this machine."""
    async with WebhookSender(OPEN) as opened:
        yield opened


def letter(url: str, secrets: list[str] = SECRETS[:1]) -> WebhookRequest:
    return WebhookRequest(url, "17", BODY, secrets)


async def send(reach: EgressPolicy, url: str, timeout: float = 10.0) -> WebhookResult:
    async with WebhookSender(reach, timeout) as sender:
        return await sender.post(letter(url))


@pytest.mark.parametrize("status", [200, 204, 400, 404, 410, 429, 500, 503])
async def test_the_answer_is_the_status(
    sender: WebhookSender, receiver: Receiver, status: int
) -> None:
    receiver.answers["/a?b=c%20d"] = [status]
    answered = await sender.post(letter(f"{receiver.url}/a?b=c%20d"))
    assert answered == WebhookResult(status)
    assert (answered.good, answered.gone) == (status < 300, status == 410)
    (post,) = receiver.of("/a?b=c%20d")
    assert (post.body, post.headers["content-type"]) == (BODY, "application/json")


async def test_a_letter_is_signed_with_every_secret_that_is_valid(
    sender: WebhookSender, receiver: Receiver
) -> None:
    await sender.post(letter(f"{receiver.url}/", SECRETS))
    (post,) = receiver.of("/")
    assert post.id == "17"
    for each in SECRETS:
        assert post.verify(each) == {"type": "message.completed"}
    with pytest.raises(WebhookVerificationError):
        post.verify(derive_secret(b"k" * 32, "default", 2))


async def test_nothing_of_a_signed_letter_can_be_changed(
    sender: WebhookSender, receiver: Receiver
) -> None:
    await sender.post(letter(f"{receiver.url}/"))
    (post,) = receiver.of("/")
    tampered = [
        post._replace(body=BODY.replace(b"completed", b"cancelled")),
        post._replace(headers=post.headers | {"webhook-id": "18"}),
        post._replace(headers={k: v for k, v in post.headers.items() if k != "webhook-signature"}),
    ]
    for each in tampered:
        with pytest.raises(WebhookVerificationError):
            each.verify(SECRETS[0])
    post.verify(SECRETS[0])


@pytest.mark.parametrize("minutes", [-6, 6])
def test_an_old_letter_cannot_be_sent_again(minutes: int) -> None:
    then = datetime.now(UTC) + timedelta(minutes=minutes)
    webhook = Webhook(SECRETS[0])
    with pytest.raises(WebhookVerificationError):
        webhook.verify(BODY, make_headers(letter("http://example.org"), then))
    webhook.verify(BODY, make_headers(letter("http://example.org"), datetime.now(UTC)))


async def test_nothing_is_sent_to_this_machine_unless_that_is_allowed(receiver: Receiver) -> None:
    answered = await send(EgressPolicy(ports=None), receiver.url)
    assert str(answered) == "not sent: the address is not public"
    assert receiver.posts == []
    assert (await send(OPEN, receiver.url)).good


async def test_nothing_is_sent_to_a_port_that_is_not_listed(receiver: Receiver) -> None:
    answered = await send(EgressPolicy(private=True), receiver.url)
    assert str(answered).startswith("not sent: port ")
    assert receiver.posts == []


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Every name leads to these, one after the other; what was asked for."""
    asked: list[str] = []

    def resolve(host: str, port: int, *_: Any, **__: Any) -> Any:
        asked.append(host)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        address = addresses[min(len(asked), len(addresses)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


async def test_a_name_is_looked_at_by_what_it_leads_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = resolving(monkeypatch, "127.0.0.1")
    url = receiver.url.replace("127.0.0.1", "receiver.example")
    assert str(await send(EgressPolicy(ports=None), url)) == "not sent: the address is not public"
    assert receiver.posts == []
    assert (await send(OPEN, url)).good
    assert asked == ["receiver.example"] * 2


async def test_a_name_that_leads_elsewhere_the_next_time_is_looked_at_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = resolving(monkeypatch, "192.0.2.1", "127.0.0.1")
    port = int(receiver.url.rpartition(":")[2])
    async with WebhookSender(EgressPolicy(ports=None), 0.2) as sender:
        for _ in range(2):
            answered = await sender.post(letter(f"http://rebound.example:{port}/"))
            assert str(answered) == "not sent: the address is not public"
    assert len(asked) == 2
    assert receiver.posts == []


async def test_a_name_that_leads_nowhere_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch)
    assert str(await send(OPEN, "http://x.example/")) == "connection failed: host name not found"


async def test_where_nobody_listens_is_said() -> None:
    listener = silent()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    listener.close()
    assert "connection failed: Connect call failed" in str(await send(OPEN, url))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(
    sender: WebhookSender, receiver: Receiver, status: int
) -> None:
    receiver.answers["/"] = [status]
    answered = await sender.post(letter(f"{receiver.url}/"))
    assert str(answered) == f"status {status}; redirects are not followed"
    assert [post.path for post in receiver.posts] == ["/"]


async def test_a_receiver_that_says_nothing_is_given_up() -> None:
    with silent() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert str(await send(OPEN, url, timeout=0.3)) == "no response within 0.3 s"


async def test_a_receiver_that_answers_without_end_in_drops_is_given_up(
    receiver: Receiver,
) -> None:
    receiver.answers["/"] = [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx"]
    assert str(await send(OPEN, receiver.url, timeout=0.3)) == "no response within 0.3 s"


async def test_no_more_of_an_answer_is_read_than_a_little(receiver: Receiver) -> None:
    length = 10_000_000_000
    begin = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length
    receiver.answers["/"] = [begin + b"x" * 200_000]
    assert await send(OPEN, receiver.url) == WebhookResult(200)


async def test_a_short_answer_is_read_and_the_connection_kept(
    sender: WebhookSender, receiver: Receiver
) -> None:
    for _ in range(3):
        assert (await sender.post(letter(f"{receiver.url}/"))).good
    connector = sender.ensure_session().connector
    assert connector is not None
    assert len(receiver.posts) == 3


async def test_what_is_no_answer_is_said(receiver: Receiver) -> None:
    receiver.answers["/"] = [b"HELLO\r\n\r\n"]
    assert str(await send(OPEN, receiver.url)).startswith("no response: ")


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
async def test_no_proxy_of_the_environment_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with receiving() as proxy:
        monkeypatch.setenv(variable, proxy.url)
        assert (await send(OPEN, f"{receiver.url}/direct")).good
        assert len(receiver.of("/direct")) == 1
        assert proxy.posts == []


def certificate(folder: Path) -> tuple[Path, Path]:
    """One that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    with silent() as listener:

        def shake() -> None:
            connection, _ = listener.accept()
            with connection, pytest.raises(ssl.SSLError):
                context.wrap_socket(connection, server_side=True)

        thread = Thread(target=shake)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        answered = await send(OPEN, url)
        thread.join()
    assert str(answered) == "connection failed: invalid certificate"
