"""Human steps: they wait until one person decides, or until their time is over."""

import asyncio
from typing import Any

import pytest

from penstock.agents.human_reminder import HumanReminder
from penstock.agents.pruner import Pruner
from penstock.broker.waiting.inbox import Inbox
from penstock.errors import AlreadyDecided, Conflict, Forbidden, InvalidInput, NotFound
from penstock.model.human import HumanPattern
from penstock.model.message import State, Verb
from penstock.rules.human import InboxStep, Person
from penstock.rules.human_spec import parse_spec
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio
ANN, BOB = Person("ann"), Person("bob", frozenset({"finance"}))
EVE = Person("eve")
ADMIN = Person("root", sees_all=True, acts_for_all=True)


def inbox_of(stage: Stage) -> Inbox:
    return stage.broker.inbox


async def request(stage: Stage, requester: str = "", **fields: Any) -> int:
    spec = {"title": "Refund?", "assign": {"users": ["ann"], "roles": ["finance"]}, **fields}
    return (await inbox_of(stage).request(parse_spec(spec), requester=requester)).id


async def run_reminder(stage: Stage) -> None:
    await HumanReminder(stage.store, stage.broker.directory, "test").tick()


async def find(stage: Stage, id: int) -> InboxStep:
    return await inbox_of(stage).get(id, ADMIN)


async def test_a_step_waits_without_a_worker_until_a_person_decides(stage: Stage) -> None:
    id = await request(stage)
    await stage.store.resume_held()
    await stage.travel(3_600)
    await stage.promote()
    await stage.store.resume_held()
    assert (await find(stage, id)).state is State.SCHEDULED
    decided = await inbox_of(stage).decide(id, ANN, "approve", comment="Fine.")
    assert decided.decision is not None
    assert (decided.decision.choice, decided.decision.by) == ("approve", "ann")
    record = await stage.store.get(id)
    assert record is not None
    row = record.timeline[-1]
    assert (row.verb, row.state, row.reason, row.final) == (
        Verb.DECIDE, State.COMPLETED, "approve", True,
    )  # fmt: skip


async def test_people_see_their_steps_and_decide_nothing_else(stage: Stage) -> None:
    id = await request(stage)
    inbox = inbox_of(stage)

    async def list_ids(person: Person, view: Any) -> list[int]:
        return [each.step.id for each in await inbox.list_steps(person, view=view)]

    assert await list_ids(ANN, "mine") == [id]
    assert (await list_ids(BOB, "mine"), await list_ids(BOB, "roles")) == ([], [id])
    assert (await list_ids(EVE, "all"), await list_ids(ADMIN, "all")) == ([], [id])
    with pytest.raises(NotFound):
        await inbox.decide(id, EVE, "approve")
    with pytest.raises(InvalidInput):
        await inbox.decide(id, ANN, "maybe")
    assert (await find(stage, id)).state is State.SCHEDULED


async def test_the_most_overdue_of_many_steps_is_listed_first(stage: Stage) -> None:
    inbox = inbox_of(stage)
    oldest = await request(stage, timeout=60)
    claimed = await request(stage, timeout=120)
    await inbox.claim(claimed, ANN)
    spec = parse_spec({"title": "Refund?", "timeout": 3_600, "assign": {"users": ["ann"]}})
    entry = await inbox.make_entry(spec, scope="default", requester="")
    for _ in range(3):
        await stage.store.enqueue([entry] * 700)
    found = await inbox.list_steps(ANN)
    assert [each.step.id for each in found[:2]] == [oldest, claimed]
    assert (len(found), found[1].step.state.claimed_by) == (2_102, "ann")
    assert (await inbox.count()).open == 2_102


async def test_the_second_decision_is_told_the_first(stage: Stage) -> None:
    id = await request(stage)
    await inbox_of(stage).decide(id, BOB, "reject")
    with pytest.raises(AlreadyDecided, match="'reject' by 'bob'"):
        await inbox_of(stage).decide(id, ANN, "approve")
    assert await inbox_of(stage).list_steps(ADMIN, view="all") == []


async def test_of_many_decisions_at_once_one_wins(stage: Stage) -> None:
    id = await request(stage)
    tries = [inbox_of(stage).decide(id, ANN, choice) for choice in ("approve", "reject") * 4]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    won = [each for each in outcomes if isinstance(each, InboxStep)]
    lost = [each for each in outcomes if isinstance(each, AlreadyDecided)]
    assert (len(won), len(lost)) == (1, 7)
    assert won[0].decision == (await find(stage, id)).decision


async def test_several_people_agree_in_any_order(stage: Stage) -> None:
    id = await request(stage, approvals=2)
    await asyncio.gather(
        inbox_of(stage).decide(id, ANN, "approve"), inbox_of(stage).decide(id, BOB, "approve")
    )
    decision = (await find(stage, id)).decision
    assert decision is not None
    assert sorted(each.by for each in decision.approvals) == ["ann", "bob"]


async def test_the_requester_needs_another_person(stage: Stage) -> None:
    id = await request(stage, requester="ann")
    with pytest.raises(Forbidden, match="requested human step"):
        await inbox_of(stage).decide(id, ANN, "approve")
    await inbox_of(stage).delegate(id, BOB, "eve")
    decided = await inbox_of(stage).decide(id, EVE, "approve")
    assert decided.decision is not None
    assert decided.decision.by == "eve"


async def test_claims_and_comments_are_kept(stage: Stage) -> None:
    id = await request(stage)
    await inbox_of(stage).claim(id, ANN)
    await inbox_of(stage).comment(id, BOB, "Which invoice?")
    with pytest.raises(Conflict, match="claimed by 'ann'"):
        await inbox_of(stage).claim(id, BOB)
    state = (await find(stage, id)).step.state
    assert state.claimed_by == "ann"
    assert [(each.by, each.text) for each in state.comments] == [("bob", "Which invoice?")]


async def test_a_timeout_reminds_escalates_and_expires(stage: Stage) -> None:
    id = await request(
        stage, timeout=100, reminders=[10], on_timeout={"escalate": "lead"}
    )  # fmt: skip
    await run_reminder(stage)
    assert (await find(stage, id)).step.state.reminded == 0
    await stage.travel(11)
    await run_reminder(stage)
    assert (await find(stage, id)).step.state.reminded == 1
    await stage.travel(90)
    await run_reminder(stage)
    assert (await find(stage, id)).step.state.escalated_to == ("lead",)
    await stage.travel(101)
    await run_reminder(stage)
    assert (await find(stage, id)).state is State.EXPIRED


async def test_a_timeout_may_decide_and_then_people_are_late(stage: Stage) -> None:
    id = await request(stage, timeout=5, on_timeout={"decide": "reject"})
    await stage.travel(6)
    await run_reminder(stage)
    decision = (await find(stage, id)).decision
    assert decision is not None
    assert (decision.choice, decision.by, decision.timed_out) == ("reject", "_timeout", True)
    with pytest.raises(AlreadyDecided, match="by '_timeout'"):
        await inbox_of(stage).decide(id, ANN, "approve")


async def test_a_pattern_is_versioned_and_open_steps_keep_their_text(stage: Stage) -> None:
    patterns = inbox_of(stage).patterns
    first = await patterns.save(HumanPattern(name="refund", spec={"title": "Refund {{n}}?"}))
    spec = await patterns.expand("refund", {"n": 7})
    id = (await inbox_of(stage).request(spec)).id
    second = await patterns.save(HumanPattern(name="refund", spec={"title": "Pay {{n}}?"}))
    assert (first.version, second.version) == (1, 2)
    found = (await find(stage, id)).step.spec
    assert (found.title, found.pattern) == ("Refund 7?", "refund@1")
    await patterns.delete("refund")
    with pytest.raises(NotFound, match="no pattern named 'refund'"):
        await patterns.expand("refund", {"n": 1})


async def test_a_cancelled_step_cannot_be_decided(stage: Stage) -> None:
    id = await request(stage)
    await stage.store.cancel([id])
    with pytest.raises(AlreadyDecided, match="is cancelled"):
        await inbox_of(stage).decide(id, ANN, "approve")


async def test_decisions_are_counted(stage: Stage) -> None:
    first, _ = await request(stage), await request(stage, timeout=5)
    await inbox_of(stage).decide(first, ANN, "approve")
    await stage.travel(10)
    counted = await inbox_of(stage).count()
    assert (counted.open, counted.overdue, counted.choices) == (1, 1, {"approve": 1})
    assert counted.median_seconds is not None


async def test_the_state_of_a_removed_step_is_deleted(stage: Stage) -> None:
    inbox = inbox_of(stage)
    kept, removed = [await request(stage) for _ in range(2)]
    for id in (kept, removed):
        await inbox.claim(id, ANN)
    assert len(await stage.store.documents("inbox")) == 2
    await inbox.decide(removed, ANN, "approve")
    agent = HumanReminder(stage.store, stage.broker.directory, "test")
    await agent.tick()
    assert len(await stage.store.documents("inbox")) == 2
    await stage.travel(91 * 86_400)
    await Pruner(stage.store, stage.broker.directory, "test").tick()
    await agent.tick()
    assert [each.name for each in await stage.store.documents("inbox")] == [str(kept)]
