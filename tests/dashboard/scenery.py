"""Fills a server with messages of every kind, as an operator finds them."""

from typing import Any

from tests.http.served import Served

TIMEOUT = "TimeoutError: no answer from host-{} after 30000 ms"
GREYLISTED = "SMTPDataError: (451, b'greylisted, try again later')"
NAMED = "a.b-c_d"


def furnish(server: Served) -> None:
    for name in ("mail", "orders", "payments", "reports", "webhooks", "thumbnails", NAMED):
        reply = server.post("/v1/queues", {"name": name, "settings": {"max_attempts": 1}})
        assert reply.status == 201, reply
    for number in range(12):
        make_dead(server, "mail", TIMEOUT.format(number) if number % 3 else GREYLISTED, number)
    for number in range(8):
        server.publish("orders", {"order": 90_000 + number, "total": 9.5}, type="order.placed")
    for message in server.claim("orders", limit=4):
        server.post("/v1/complete", {"token": message["token"], "result": {"ok": True}})
    (message,) = server.claim("orders", limit=1, lease=3_000)
    server.post("/v1/progress", {"token": message["token"], "percent": 40, "note": "at step 2"})
    for number in range(5):
        server.publish("webhooks", {"n": number}, type="hook.call", delay=3_600)
    for number in range(6):
        server.publish("thumbnails", {"image": f"cat-{number}.png"}, type="image.resize")
    server.publish("payments", {"amount": 612.40}, type="refund", ordering_key="ada",
                   correlation_id="order-90017")  # fmt: skip
    server.publish("payments", {"amount": 5}, type="refund", ordering_key="ada",
                   correlation_id="order-90017")  # fmt: skip
    server.publish(NAMED, {"n": 1})
    assert server.post("/v1/queues/reports/pause").status == 200
    server.publish("reports", {"day": "2026-11-18"}, type="report")
    schedule: dict[str, Any] = {"cron": "0 9 * * MON-FRI", "timezone": "Europe/Rome"}
    path = "/v1/queues/reports/schedules/weekday-report"
    assert server.ask("PUT", path, {**schedule, "message": {"type": "report"}}).status == 200
    govern(server)
    worker = {"host": "box-1", "pid": 4711, "queues": ["orders", "mail"], "slots": 8}
    assert server.ask("PUT", "/v1/workers/k2f8a1q", worker).status == 204


def govern(server: Served) -> None:
    """Adds a decision, a workflow, a rule and a schema."""
    spec = {
        "title": "Refund 612.40 to Ada?",
        "content": "Order 90017 arrived broken.",
        "options": [
            {"id": "approve", "label": "Approve", "kind": "approve"},
            {"id": "reject", "label": "Reject", "kind": "reject"},
        ],
        "input": {"amount": {"type": "number", "title": "Amount", "default": 612.4}},
    }
    replies = [server.post("/v1/inbox", {"spec": spec})]
    nodes = [{"message": {"queue": "payments", "type": "collect"}, "label": "collect"},
             {"message": {"queue": "payments", "type": "close"}, "after": [0]}]  # fmt: skip
    replies.append(server.post("/v1/workflows", {"name": "nightly-close", "nodes": nodes}))
    rule = {"queue": "orders", "when": "message.type == 'refund'", "do": [{"route": "payments"}]}
    replies.append(server.ask("PUT", "/v1/rules/large-orders", rule))
    schema = {"schema": {"type": "object", "properties": {"to": {"type": "string"}}}}
    replies.append(server.post("/v1/schemas/mail-body", schema))
    replies.append(server.put("/v1/queues/mail/schemas", {"schema": "mail-body"}))
    assert {reply.status // 100 for reply in replies} == {2}, replies


def make_dead(server: Served, queue: str, error: str, number: int = 0) -> str:
    body = {"to": "ada@example.org", "template": "invoice", "order": 90_000 + number}
    id = server.publish(queue, body, type="mail.send", labels={"country": "BR"})
    (message,) = server.claim(queue, consumer="k2f8a1q")
    traceback = 'File "mail/smtp.py", line 88, in send\n    reply = await asyncio.wait_for(...)'
    token = message["token"]
    server.post("/v1/reject", {"token": token, "error": error, "traceback": traceback})
    return id
