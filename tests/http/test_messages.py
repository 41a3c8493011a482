"""Messages wherever they are: found, paged through, cancelled, sent again, waited for."""

from tests.http.served import Later, Served


def test_a_message_is_found_by_its_id_and_by_its_name(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue, 1, name="order/7 é")
    found = server.get(f"/v1/messages/{id}").json
    assert (found["state"], found["name"], found["body"]) == ("ready", "order/7 é", 1)
    assert server.get(f"/v1/messages/{queue}/order%2F7%20%C3%A9").json == found
    assert server.post(f"/v1/messages/{queue}/order%2F7%20%C3%A9/cancel").json["id"] == id


def test_a_message_says_why_it_waits(server: Served) -> None:
    queue = server.queue()
    first, second = server.publish(queue), server.publish(queue)
    causes = server.get(f"/v1/messages/{second}/explain").json["causes"]
    assert [cause["code"] for cause in causes] == ["NO_WORKER", "IN_LINE"]
    assert causes[1]["evidence"] == {"ahead": 1}
    server.claim_one(queue)
    causes = server.get(f"/v1/messages/{first}/explain").json["causes"]
    assert causes[-1]["code"] in ("RUNNING", "FETCHED")
    assert server.get("/v1/messages/999999999/explain").status == 404


def test_a_list_is_paged_through_without_loss_or_repeat(server: Served) -> None:
    queue = server.queue()
    ids = [server.publish(queue, type="even" if n % 2 else "odd") for n in range(7)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = server.get("/v1/messages", queue=queue, limit=3, **cursor).json
        seen += [message["id"] for message in page["messages"]]
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert seen == ids[::-1]
    typed = server.get("/v1/messages", queue=queue, type="even").json["messages"]
    assert [message["id"] for message in typed] == ids[1::2][::-1]


def test_a_cursor_is_of_use_with_its_own_filter_alone(server: Served) -> None:
    queue = server.queue()
    for _ in range(2):
        server.publish(queue)
    cursor = server.get("/v1/messages", queue=queue, limit=1).json["cursor"]
    assert server.get("/v1/messages", queue=queue, limit=1, cursor=cursor).status == 200
    number, _, mac = cursor.partition(".")
    for asked in (
        {"queue": queue, "cursor": f"{int(number) + 1}.{mac}"},
        {"queue": queue, "cursor": "1.x"},
        {"queue": server.queue(), "cursor": cursor},
        {"queue": queue, "state": "ready", "cursor": cursor},
    ):
        reply = server.get("/v1/messages", **asked)
        assert (reply.status, reply.code) == (400, "INVALID_TOKEN")


def test_messages_are_searched_by_state_and_correlation(server: Served) -> None:
    queue, other = server.queue(), server.queue()
    story = f"story-{queue}"
    ids = [server.publish(name, correlation_id=story) for name in (queue, other)]
    server.post("/v1/reject", {"token": server.claim_one(queue)["token"], "error": "no"})
    found = server.get("/v1/messages", correlation_id=story).json["messages"]
    assert {message["id"]: message["state"] for message in found} == {
        ids[0]: "dead",
        ids[1]: "ready",
    }
    dead = server.get("/v1/messages", queue=queue, state="dead").json["messages"]
    assert [(message["id"], message["reason"]) for message in dead] == [(ids[0], "rejected")]


def test_messages_are_searched_by_a_filter_in_pages(server: Served) -> None:
    queue = server.queue()
    ids = [server.publish(queue, {"n": n}) for n in range(5)]
    asked = {"filter": f"queue:{queue} body.n>1", "state": "ready", "limit": 2}
    first = server.get("/v1/messages", **asked).json
    assert [message["id"] for message in first["messages"]] == ids[2:4]
    assert "scanned_to" in first
    rest = server.get("/v1/messages", **asked, cursor=first["cursor"]).json
    assert [message["id"] for message in rest["messages"]] == ids[4:]
    other = server.get("/v1/messages", filter="state:dead", cursor=first["cursor"])
    assert (other.status, other.code) == (400, "INVALID_TOKEN")


def test_a_mistake_in_a_filter_is_named_with_its_position(server: Served) -> None:
    reply = server.get("/v1/messages", filter="quue:mail")
    assert reply.status == 422
    assert "unknown field 'quue' at 1; did you mean 'queue'?" in reply.json["error"]["message"]
    long, events = "a" * 2_001, server.queue(kind="broadcast")
    replies = [
        server.get("/v1/messages", filter=long),
        server.get("/v1/messages/count", filter=long),
        server.post("/v1/bulk", {"verb": "cancel", "filter": long}),
        server.put("/v1/views/long", {"filter": long}),
        server.put(f"/v1/queues/{events}/subscriptions/all", {"filter": long}),
    ]
    assert [(each.status, each.code) for each in replies] == [(422, "FILTER_TOO_LARGE")] * 5


def test_a_running_message_is_cancelled_by_force(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    forced = server.post(f"/v1/messages/{id}/cancel", {"force": True}).json
    assert forced == {"id": id, "state": "cancelled", "cancel_requested": False}
    assert server.post("/v1/complete", {"token": token}).status == 409
    assert server.post(f"/v1/messages/{id}/cancel").code == "INVALID_STATE"


def test_a_dead_letter_is_sent_again_in_place_or_edited(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue, "wrong")
    server.post("/v1/reject", {"token": server.claim_one(queue)["token"], "error": "no"})
    assert server.post(f"/v1/messages/{id}/redrive").json == {"id": id}
    message = server.claim_one(queue)
    assert (message["id"], message["attempts"]) == (id, 0)
    server.post("/v1/reject", {"token": message["token"], "error": "no"})
    new = server.post(f"/v1/messages/{id}/redrive", {"body": "right"}).json["id"]
    assert new != id
    edited = server.claim_one(queue)
    assert (edited["id"], edited["body"], edited["parent_id"]) == (new, "right", id)
    assert server.message(id)["state"] == "cancelled"
    assert server.post(f"/v1/messages/{new}/redrive").code == "INVALID_STATE"


def test_a_dead_letter_is_purged(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    server.post("/v1/reject", {"token": server.claim_one(queue)["token"], "error": "no"})
    assert server.post(f"/v1/messages/{id}/purge").json["state"] == "cancelled"
    assert server.post(f"/v1/messages/{id}/purge").code == "INVALID_STATE"


def test_a_result_is_waited_for(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    path = f"/v1/messages/{id}/result"
    early = server.get(path)
    assert (early.status, early.headers["x-message-state"]) == (202, "ready")
    waiting = Later(server.get, path, wait=30)
    server.post("/v1/complete", {"token": server.claim_one(queue)["token"], "result": {"a": 1}})
    done = waiting.result()
    assert (done.status, done.json) == (200, {"a": 1})


def test_a_result_of_a_cancelled_message_is_told_as_such(server: Served) -> None:
    id = server.publish(server.queue())
    server.post(f"/v1/messages/{id}/cancel", {})
    lost = server.get(f"/v1/messages/{id}/result")
    assert (lost.status, lost.code) == (409, "JOB_CANCELLED")


def test_a_result_that_never_comes_is_told(server: Served) -> None:
    queue = server.queue()
    plain, failed = server.publish(queue), server.publish(queue)
    first, second = server.claim(queue, limit=2)
    server.post("/v1/complete", {"token": first["token"]})
    server.post("/v1/fail", {"token": second["token"], "error": "boom"})
    assert server.get(f"/v1/messages/{plain}/result").status == 204
    lost = server.get(f"/v1/messages/{failed}/result", wait=30)
    assert (lost.status, lost.code) == (409, "JOB_FAILED")
    assert "boom" in lost.json["error"]["message"]
    assert server.get("/v1/messages/1/result", wait=-1).status == 422


def test_a_result_of_any_bytes_comes_back_as_it_was(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    sent = {"token": server.claim_one(queue)["token"], "result_base64": "/wA="}
    server.post("/v1/complete", sent)
    reply = server.get(f"/v1/messages/{id}/result")
    assert (reply.body, reply.headers["content-type"]) == (b"\xff\x00", "application/octet-stream")


def test_a_message_that_waits_for_its_key_names_the_one_before_it(server: Served) -> None:
    queue = server.queue()
    first, second = (
        server.post("/v1/publish", {"queue": queue, "body": 1, "ordering_key": "k"}).json["id"]
        for _ in range(2)
    )
    assert "blocked_by" not in server.get(f"/v1/messages/{first}").json
    assert server.get(f"/v1/messages/{second}").json["blocked_by"] == first
