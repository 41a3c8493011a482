"""Scopes and queues: created, changed, switched, renamed, emptied, deleted."""

from tests.http.served import Served


def test_a_new_queue_has_its_preset_and_what_differs(server: Served) -> None:
    name = f"{server.queue()}-new"
    sent = {"name": name, "preset": "relay", "settings": {"backoff": {"max": 5}}}
    made = server.post("/v1/queues", sent)
    assert made.status == 201
    told = made.json
    assert (told["state"], told["system"], told["settings"]["max_attempts"]) == ("active", False, 3)
    assert (told["settings"]["backoff"]["max"], told["settings"]["backoff"]["kind"]) == (5, "none")
    assert server.get(f"/v1/queues/{name}").json == told
    assert told in server.get("/v1/queues").json["queues"]
    assert server.post("/v1/queues", sent).code == "SLUG_CONFLICT"


def test_settings_are_changed_one_by_one(server: Served) -> None:
    queue = server.queue(lease=10)
    change = {"settings": {"max_attempts": 2}}
    told = server.ask("PATCH", f"/v1/queues/{queue}", change).json["settings"]
    assert (told["max_attempts"], told["lease"]) == (2, 10)
    for wrong in ({"lease": 0}, {"surprise": 1}, {"ordering": "fair"}, {"backoff": 3}):
        reply = server.ask("PATCH", f"/v1/queues/{queue}", {"settings": wrong})
        assert reply.status == 422, reply
    assert server.get(f"/v1/queues/{queue}").json["settings"] == told


def test_a_queue_is_switched(server: Served) -> None:
    queue = server.queue()
    for verb, state in (("pause", "paused"), ("drain", "draining"), ("archive", "archived"),
                        ("resume", "active")):  # fmt: skip
        assert server.post(f"/v1/queues/{queue}/{verb}").json["state"] == state
    assert server.post("/v1/queues/nowhere/pause").code == "NOT_FOUND"


def test_an_unknown_queue_reveals_no_similar_one(server: Served) -> None:
    queue = server.queue()
    assert "did you mean" not in str(server.get(f"/v1/queues/{queue}x").json)
    sent = {"queue": f"{queue}x", "body": 1}
    assert "did you mean" not in str(server.post("/v1/publish", sent).json)


def test_a_queue_is_renamed_but_not_onto_another(server: Served) -> None:
    first, second = server.queue(), server.queue()
    id = server.publish(first)
    taken = server.post(f"/v1/queues/{first}/rename", {"name": second})
    assert (taken.status, taken.code) == (409, "SLUG_CONFLICT")
    assert server.post(f"/v1/queues/{first}/rename", {"name": f"{first}-2"}).status == 200
    assert server.message(id)["queue"] == f"{first}-2"
    assert server.get(f"/v1/queues/{first}").status == 404


def test_a_queue_is_purged_place_by_place(server: Served) -> None:
    queue = server.queue()
    ready = [server.publish(queue) for _ in range(3)]
    later = server.publish(queue, delay=60)
    assert server.post(f"/v1/queues/{queue}/purge", {"places": ["ready"]}).json == {"purged": 3}
    assert {server.state(id) for id in ready} == {"cancelled"}
    assert server.state(later) == "scheduled"
    assert server.post(f"/v1/queues/{queue}/purge", {"places": ["lease"]}).status == 422


def test_a_queue_that_holds_something_is_deleted_by_force_alone(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    refused = server.ask("DELETE", f"/v1/queues/{queue}")
    assert (refused.status, refused.code) == (409, "INVALID_STATE")
    deleted = server.ask("DELETE", f"/v1/queues/{queue}", force="true")
    assert (deleted.status, deleted.body) == (204, b"")
    assert server.get(f"/v1/queues/{queue}").status == 404
    assert server.state(id) == "cancelled"


def test_a_paused_scope_serves_nothing(server: Served) -> None:
    queue = server.queue()
    scope = f"scope-{queue}"
    told = {"name": scope, "display_name": "", "description": ""}
    active = {**told, "state": "active", "paused": False}
    assert server.post("/v1/scopes", {"name": scope}).json == active
    assert server.post("/v1/scopes", {"name": scope}).code == "SLUG_CONFLICT"
    server.post("/v1/queues", {"name": queue}, scope=scope)
    server.post("/v1/publish", {"queue": queue}, scope=scope)
    assert server.post(f"/v1/scopes/{scope}/pause").json["paused"] is True
    asked = {"queues": [{"queue": queue}]}
    claimed = server.post("/v1/claim", asked, scope=scope).json
    assert claimed == {"messages": [], "queues": {queue: "paused"}}
    assert server.get(f"/v1/queues/{queue}", scope=scope).json["scope_paused"] is True
    paused = {**told, "state": "paused", "paused": True}
    assert paused in server.get("/v1/scopes").json["scopes"]
    server.post(f"/v1/scopes/{scope}/resume")
    assert len(server.post("/v1/claim", asked, scope=scope).json["messages"]) == 1
    assert server.get("/v1/queues", scope="nowhere").code == "NOT_FOUND"


def test_the_system_s_queues_are_nobody_s_to_change(server: Served) -> None:
    assert server.post("/v1/queues", {"name": "_mine"}).code == "FORBIDDEN"
    assert server.ask("DELETE", "/v1/queues/_dead_letter").code == "FORBIDDEN"
    assert server.post("/v1/publish", {"queue": "_dead_letter"}).code == "FORBIDDEN"
