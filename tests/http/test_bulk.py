"""Many messages at once: redriven, exported, imported."""

import json

from tests.http.served import Served


def dead(server: Served, queue: str, count: int, type: str = "t") -> list[str]:
    ids = [server.publish(queue, number, type=type) for number in range(count)]
    for message in server.claim(queue, limit=count):
        server.post("/v1/reject", {"token": message["token"], "error": "no"})
    return ids


def test_those_named_are_redriven_and_each_answers_for_itself(server: Served) -> None:
    queue = server.queue()
    first, second = dead(server, queue, 2)
    ready = server.publish(queue)
    reply = server.post("/v1/redrive", {"ids": [first, ready, "999999999"]}).json
    assert (reply["redriven"], reply["refused"]) == (1, 2)
    codes = [item.get("error", {}).get("code") for item in reply["items"]]
    assert codes == [None, "INVALID_STATE", "NOT_FOUND"]
    assert (server.state(first), server.state(second)) == ("ready", "dead")


def test_a_filter_redrives_what_it_shows_and_no_more(server: Served) -> None:
    queue, other = server.queue(), server.queue()
    wanted = dead(server, queue, 3, "a")
    kept = dead(server, queue, 1, "b") + dead(server, other, 1, "a")
    asked = {"state": "dead", "queue": queue, "type": "a", "limit": 2}
    page = server.post("/v1/redrive", asked).json
    assert page["redriven"] == 2
    rest = server.post("/v1/redrive", {**asked, "cursor": page["cursor"]}).json
    assert (rest["redriven"], "cursor" in rest) == (1, False)
    assert [server.state(id) for id in wanted] == ["ready"] * 3
    assert [server.state(id) for id in kept] == ["dead"] * 2


def test_ended_messages_go_on_as_new_ones(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue, "again")
    server.post("/v1/complete", {"token": server.claim_one(queue)["token"]})
    (item,) = server.post("/v1/redrive", {"state": "completed", "queue": queue}).json["items"]
    assert item["id"] == id
    assert server.message(item["new_id"])["parent_id"] == id


def test_a_rate_is_kept_and_a_long_call_goes_on_by_its_cursor(server: Served) -> None:
    queue = server.queue()
    dead(server, queue, 3)
    asked = {"state": "dead", "queue": queue, "rate": 0.01}
    page = server.post("/v1/redrive", asked).json
    assert page["redriven"] == 1
    assert server.post("/v1/redrive", {**asked, "cursor": page["cursor"]}).json["redriven"] == 1
    assert server.post("/v1/redrive", {**asked, "rate": 0}).status == 422


def test_an_export_can_be_imported(server: Served) -> None:
    queue, copy = server.queue(), server.queue()
    for number in range(450):
        server.publish(queue, {"number": number}, headers={"a": "b"}, priority=number % 3)
    server.post("/v1/publish", {"queue": queue, "body_base64": "/w=="})
    exported = server.get(f"/v1/queues/{queue}/export")
    assert (exported.headers["content-type"], len(exported.lines)) == ("application/x-ndjson", 451)
    told = server.ask("POST", f"/v1/queues/{copy}/import", exported.body).json
    assert told == {"published": 451, "refused": 0, "errors": [], "skipped": 0}
    again = server.get(f"/v1/queues/{copy}/export").lines
    assert list(map(keep_fields, again)) == list(map(keep_fields, exported.lines))
    assert [line["body"]["number"] for line in again[:450]] == list(range(450))


def keep_fields(line: dict[str, object]) -> str:
    names = ("body", "body_base64", "headers", "priority", "type", "content_type")
    return json.dumps({name: line.get(name) for name in names})


def test_an_import_publishes_what_is_right_and_says_what_is_not(server: Served) -> None:
    queue = server.queue()
    lines = [b'{"body": 1}', b"", b"nonsense", b'{"type": "penstock.shell"}', b'{"delay": -1}',
             b'{"surprise": 1}', b'{"body": 2, "state": "dead"}']  # fmt: skip
    told = server.ask("POST", f"/v1/queues/{queue}/import", b"\n".join(lines)).json
    assert (told["published"], told["refused"], told["skipped"]) == (1, 4, 1)
    codes = [error["code"] for error in told["errors"]]
    assert codes == ["MALFORMED", "FORBIDDEN", "INVALID_INPUT", "INVALID_INPUT"]
    assert [message["body"] for message in server.claim(queue, limit=9)] == [1]
    assert server.ask("POST", "/v1/queues/nowhere/import", b"").code == "NOT_FOUND"


def test_finished_messages_are_imported_only_on_request(server: Served) -> None:
    queue, copy = server.queue(), server.queue()
    dead(server, queue, 2)
    server.publish(queue, {"number": 3})
    exported = server.get(f"/v1/queues/{queue}/export").body
    told = server.ask("POST", f"/v1/queues/{copy}/import", exported).json
    assert (told["published"], told["skipped"]) == (1, 2)
    told = server.ask("POST", f"/v1/queues/{copy}/import?state=dead", exported).json
    assert (told["published"], told["skipped"]) == (2, 1)


def test_a_line_past_the_limit_is_refused(small_server: Served) -> None:
    queue = small_server.queue()
    short = b'{"body": 1}\n' * 1_000
    told = small_server.ask("POST", f"/v1/queues/{queue}/import", short)
    assert told.json["published"] == 1_000
    long = small_server.ask("POST", f"/v1/queues/{queue}/import", b'"' + b"x" * 100_000)
    assert (long.status, long.code) == (413, "BODY_TOO_LARGE")
