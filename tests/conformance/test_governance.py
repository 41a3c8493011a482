"""Governed queues: a body that does not fit the schema of its queue is refused on every path."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from penstock.agents.scheduler import Scheduler
from penstock.broker.queue_cache import QueueCache
from penstock.errors import (
    CannotGovern,
    InvalidState,
    NotFound,
    SchemaIncompatible,
    SchemaMismatch,
)
from penstock.model.changes import Change
from penstock.model.message import Draft
from penstock.model.queue import Schedule
from penstock.model.schemas import BINDING
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


async def bind(stage: Stage, type: str = "*", **options: Any) -> None:
    await stage.broker.schemas.add("order", ORDER)
    await stage.broker.schemas.bind("default", "order", type=type, **options)


async def test_a_body_that_breaks_the_schema_is_refused_alone_and_in_batches(
    stage: Stage,
) -> None:
    await bind(stage)
    with pytest.raises(SchemaMismatch, match=r"/n: the value is not of type .integer.") as refused:
        await stage.publish(b'{"n": "secret"}')
    assert "secret" not in str(refused.value)
    assert refused.value.details == (("/n", 'type: the value is not of type "integer"'),)
    drafts = [Draft(body=body) for body in (b'{"n": 1}', b"{}", b"not json", b'{"n": 2}')]
    answers = await stage.broker.publish_many(drafts)
    code = SchemaMismatch.code
    assert [each.code for each in answers] == [None, code, code, None]
    with pytest.raises(SchemaMismatch):
        await stage.broker.publish_many(drafts, atomic=True)
    with pytest.raises(SchemaMismatch):
        await stage.broker.admit(Draft(body=b"{}"))
    assert await stage.places() == {"ready": 2}


async def test_a_batch_that_fits_is_published_whole(stage: Stage) -> None:
    await bind(stage)
    drafts = [Draft(body=b'{"n": %d}' % number) for number in range(3)]
    assert all(each.code is None for each in await stage.broker.publish_many(drafts, atomic=True))
    assert [each.body for each in await stage.claim(limit=9)] == [each.body for each in drafts]


async def test_a_binding_applies_to_the_types_it_names(stage: Stage) -> None:
    await bind(stage, type="order.*")
    await stage.publish(b"anything", type="mail.send")
    with pytest.raises(SchemaMismatch):
        await stage.publish(b"anything", type="order.placed")


async def test_a_schedule_is_checked_when_it_is_saved_and_when_it_fires(stage: Stage) -> None:
    await stage.admin.schedule(Schedule("bad", "* * * * *", Draft(body=b"{}")))
    await stage.admin.schedule(Schedule("good", "* * * * *", Draft(body=b'{"n": 1}')))
    await bind(stage)
    with pytest.raises(SchemaMismatch):
        await stage.admin.schedule(Schedule("new", "* * * * *", Draft(body=b"{}")))
    await stage.travel(60)
    await Scheduler(stage.store, QueueCache(stage.store), "me").tick()
    assert [each.body for each in await stage.claim(limit=9)] == [b'{"n": 1}']


async def test_an_edited_body_must_fit_and_an_unedited_one_runs_again(stage: Stage) -> None:
    id = await stage.publish(b"{}")
    await bind(stage)
    await stage.admin.cancel(id)
    with pytest.raises(SchemaMismatch):
        await stage.admin.redrive(id, body=b"[]")
    await stage.admin.redrive(id, body=b'{"n": 1}')
    await stage.admin.redrive(id)
    assert await stage.places() == {"ready": 2, "ended": 1}


async def test_a_policy_of_a_newer_version_refuses_instead_of_being_skipped(stage: Stage) -> None:
    await bind(stage)
    (stored,) = await stage.store.documents(BINDING)
    newer = replace(stored, body=stored.body.replace(b'"format":1', b'"format":2'))
    await stage.store.advance(Change(guards=(newer,), touch_directory=True))
    stage.broker.forget_queues()
    with pytest.raises(CannotGovern, match="upgrade this process"):
        await stage.publish(b'{"n": 1}')
    (answer,) = await stage.broker.publish_many([Draft(body=b'{"n": 1}')])
    assert answer.code == CannotGovern.code
    assert await stage.places() == {}


async def test_a_version_is_added_once_and_never_changes(stage: Stage) -> None:
    schemas = stage.broker.schemas
    first = await schemas.add("order", ORDER)
    assert await schemas.add("order", ORDER) == first
    second = await schemas.add("order", {**ORDER, "title": "Order"})
    assert (first.reference, second.reference) == ("order@1", "order@2")
    assert await schemas.list_schemas() == [second]
    assert msgspec.json.decode((await schemas.get("order", 1)).schema) == ORDER
    with pytest.raises(NotFound):
        await schemas.get("order", 3)


async def test_an_incompatible_version_is_refused_with_its_field(stage: Stage) -> None:
    await bind(stage)
    stricter = {**ORDER, "properties": {"n": {"type": "integer", "minimum": 0}}}
    with pytest.raises(SchemaIncompatible, match="/n: the new version does not accept") as refused:
        await stage.broker.schemas.add("order", stricter)
    assert [pointer for pointer, _ in refused.value.details] == ["/n"]
    await stage.broker.schemas.add("order", stricter, compatibility="none")
    await stage.publish(b'{"n": -1}')


async def test_a_version_without_a_proof_is_tested_on_stored_bodies(stage: Stage) -> None:
    await bind(stage)
    await stage.publish(b'{"n": 1, "tag": "b"}')
    tagged = {**ORDER, "properties": {**ORDER["properties"], "tag": {"allOf": [{"pattern": "^a"}]}}}
    tagged["additionalProperties"] = True
    loose = {**ORDER, "additionalProperties": True}
    await stage.broker.schemas.add("order", loose)
    report = await stage.broker.schemas.check("order", tagged)
    assert (report.unproven, report.tested, report.failed) == (("/tag",), 1, 1)
    with pytest.raises(SchemaIncompatible, match="1 of the last 1 bodies"):
        await stage.broker.schemas.add("order", tagged)


async def test_a_binding_follows_compatible_versions_if_asked(stage: Stage) -> None:
    await bind(stage, follow=True)
    await stage.broker.schemas.bind("default", "order", type="other")
    wider = {**ORDER, "required": []}
    await stage.broker.schemas.add("order", wider)
    bound = await stage.broker.schemas.list_bindings()
    assert {each.type: each.version for each in bound} == {"*": 2, "other": 1}
    await stage.publish(b"{}")


async def test_another_process_governs_by_a_new_binding_within_a_second(stage: Stage) -> None:
    other = await stage.another()
    await other.publish(b"{}")
    await bind(stage)
    other.broker.forget_queues()
    with pytest.raises(SchemaMismatch):
        await other.publish(b"{}")
    await stage.broker.schemas.unbind("default")
    await stage.publish(b"{}")


async def test_a_bound_schema_cannot_be_deleted_nor_its_queue_renamed(stage: Stage) -> None:
    await stage.queue("orders")
    await stage.broker.schemas.add("order", ORDER)
    await stage.broker.schemas.bind("orders", "order")
    with pytest.raises(InvalidState, match="bound to orders"):
        await stage.broker.schemas.delete("order")
    with pytest.raises(InvalidState, match="unbind"):
        await stage.admin.rename_queue("orders", "renamed")
    await stage.broker.schemas.unbind("orders")
    await stage.broker.schemas.delete("order")
    assert await stage.broker.schemas.list_schemas() == []


async def test_a_draft_is_a_schema_that_the_stored_bodies_fit(stage: Stage) -> None:
    await stage.publish(b'{"n": 1, "tags": ["a"]}')
    await stage.publish(b'{"n": 2.5, "note": null}')
    await stage.publish(b"not json")
    drafted, bodies = await stage.broker.schemas.draft("default")
    assert bodies == 2
    assert drafted["required"] == ["n"]
    assert drafted["properties"]["n"] == {"type": "number"}
    assert drafted["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
