"""The filter of a group of failures selects the messages of the group, and no others."""

from pathlib import Path
from typing import Any

from tests.cli.terminal import until
from tests.http.keys import keyed, serve_with_auth
from tests.http.served import Served, served


def fail(server: Served, queue: str, error: str | None) -> str:
    id = server.publish(queue)
    (message,) = server.claim(queue)
    more = {} if error is None else {"error": error}
    assert server.post("/v1/reject", {"token": message["token"], **more}).status == 200
    return id


def list_groups(server: Served, **query: str) -> list[dict[str, Any]]:
    groups = server.get("/v1/failures", **query).json["groups"]
    for group in groups:
        assert count(server, group["filter"]) == group["count"], group
    return list(groups)


def count(server: Served, filter: str) -> int:
    found = server.get("/v1/messages", filter=filter, limit=1000)
    assert found.status == 200, found
    return len(found.json["messages"])


def test_causes_that_share_a_fragment_or_have_no_error_are_told_apart(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/groups.db", tmp_path) as own:
        queues = [own.queue() for _ in range(25)]
        for queue in queues:
            fail(own, queue, "TimeoutError: the mail server did not answer, host-7")
            fail(own, queue, "TimeoutError: the mail server did not answer in time")
            fail(own, queue, None)
        groups = list_groups(own)
        assert [(group["count"], len(group["queues"])) for group in groups] == [(25, 25)] * 3
        (only, *rest) = list_groups(own, queue=queues[0])
        assert (only["count"], len(rest)) == (1, 2)
        chosen = next(group for group in groups if "host" in group["template"])
        made = own.post(
            "/v1/bulk", {"verb": "redrive", "filter": chosen["filter"], "dry_run": True}
        )
        assert (made.json["matched"], made.json["done"]) == (25, 25)


def test_masked_errors_are_one_group_that_can_be_searched(tmp_path: Path) -> None:
    with serve_with_auth(f"sqlite:///{tmp_path}/masked.db", tmp_path) as own:
        masked, plain = own.queue(mask=["error"]), own.queue()
        fail(own, masked, "ValueError: card 4711")
        fail(own, masked, "KeyError: x")
        fail(own, plain, "KeyError: x")
        assert [group["count"] for group in list_groups(own)] == [2, 1]
        operator = keyed(own, "operator")
        groups = list_groups(operator)
        assert (groups[0]["fingerprint"], groups[0]["count"]) == ("masked", 2)
        causes = operator.get("/v1/failures/causes").json["fingerprints"]
        assert sorted(causes) == sorted(group["fingerprint"] for group in groups)
        refused = operator.get("/v1/messages", filter=f"fingerprint:{groups[1]['fingerprint']}")
        assert (refused.status, refused.code) == (403, "FIELD_MASKED")


def test_failed_messages_belong_to_their_group_and_are_redriven(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/failed.db", tmp_path) as own:
        queue = own.queue()
        id = own.publish(queue)
        (message,) = own.claim(queue)
        assert own.post("/v1/fail", {"token": message["token"], "error": "KeyError: x"}).status
        assert own.state(id) == "failed"
        (group,) = list_groups(own)
        own.post("/v1/bulk", {"verb": "redrive", "filter": group["filter"]})
        until(lambda: list_states(own, queue) == ["failed", "ready"])


def list_states(server: Served, queue: str) -> list[str]:
    found = server.get("/v1/messages", queue=queue).json["messages"]
    return sorted(message["state"] for message in found)
